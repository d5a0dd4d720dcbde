//! The sessions and streams that exist: the only state that connections share. Knows neither files
//! nor sockets.
//!
//! Read in this order: [`session`] (the session of one producer), `stream_table` (its streams,
//! looked up and counted), [`stream`] (one of them), [`arrivals`] (how much has arrived),
//! [`recording`] (the chunks that the sessions of one recording share), `occupancy` (which
//! recording may write to which directory). [`publish`](crate::publish) has the part that viewers
//! may see.

pub mod archive_feed;
pub mod arrivals;
mod claims;
mod detached;
pub mod draining;
mod occupancy;
pub mod recording;
pub mod resumable;
pub mod resumption;
pub mod session;
mod settings;
pub mod stream;
mod stream_table;
mod unarchived;
pub mod viewers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use archive::name::BootId;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::{SessionId, StreamId, TraceId};

use crate::ingest::ConnectionId;
use crate::ingest::DataStream;
use crate::ingest::reorder_budget::ReorderBudget;
use crate::limits::{
    DRAIN_GRACE, EARLY_PACKET_BYTES, MAX_ENDED_SESSIONS, MAX_FILE_CALLS, MAX_STREAMS_IN_ALL,
};
use crate::publish::subscription::{Subscription, Subscriptions};
use crate::publish::tally::Totals;
use crate::store::session_directory::SessionDirectory;
use draining::TurnedAway;
use occupancy::SessionsByRoot;
use recording::{Recording, Recordings};
use resumable::DetachOutcome;
use resumption::ResumableSessions;
use session::{PeriodicRequests, Session, SessionIdentity};
pub use settings::RegistrySettings;
use stream::SessionStream;

/// All sessions and streams.
#[derive(Debug)]
pub struct Registry {
    settings: RegistrySettings,
    recordings: Recordings,
    /// The sessions whose producers are connected.
    sessions: RwLock<Sessions>,
    /// The sessions whose producers are gone, each with the time until which it lingers for packets
    /// in flight.
    lingering: Mutex<Vec<(Instant, Arc<Session>)>>,
    /// The sessions that have ended while viewers were attached or expected back, oldest first.
    ended: Mutex<VecDeque<Arc<Session>>>,
    /// The open streams of packets of all sessions.
    data_streams: RwLock<DataStreams>,
    /// The sessions by directory, to find those that would write to the same one.
    sessions_by_root: SessionsByRoot,
    /// Subscriptions to the list of sessions.
    subscriptions: Mutex<Subscriptions>,
    /// The resumable sessions, whether their producers are connected or not.
    resumable: ResumableSessions,
    turned_away: TurnedAway,
    reorder_budget: Arc<ReorderBudget>,
    /// A permit for each file call of a viewer that may block, of all sessions together.
    viewer_file_calls: Arc<Semaphore>,
    periodic: PeriodicRequests,
    next: Counters,
}

type Sessions = BTreeMap<SessionId, Arc<Session>>;

/// A stream and its session.
pub type OfSession = (Arc<Session>, Arc<DataStream>);

#[derive(Debug, Default)]
struct DataStreams {
    open: HashMap<StreamId, OfSession>,
    /// Counters of the streams that are no longer open.
    past: Totals,
}

/// A session that is rejected because this one, of another recording, writes to its directory.
#[derive(Debug, Error)]
#[error("{0} of another recording writes to the same directory")]
pub struct Occupied(Arc<Session>);

/// Another recording writes to the directory of a session, or has ended and is kept there.
#[derive(Debug, Error)]
#[error("another recording is in the directory of the session")]
pub struct DirectoryInUse;

/// The last numbers that were given. Numbers count from 1 and are never reused.
#[derive(Debug, Default)]
struct Counters {
    session: AtomicU64,
    stream: AtomicU64,
    trace: AtomicU64,
    connection: AtomicU64,
}

impl Registry {
    /// The registry of a relay, without any session.
    #[must_use]
    pub fn new(settings: RegistrySettings) -> Arc<Self> {
        Arc::new(Self {
            reorder_budget: ReorderBudget::of_relay(settings.reorder_memory),
            recordings: Recordings::default(),
            sessions: RwLock::default(),
            lingering: Mutex::default(),
            ended: Mutex::default(),
            data_streams: RwLock::default(),
            sessions_by_root: SessionsByRoot::default(),
            subscriptions: Mutex::default(),
            resumable: ResumableSessions::new(settings.max_detached),
            turned_away: TurnedAway::default(),
            viewer_file_calls: Arc::new(Semaphore::new(MAX_FILE_CALLS)),
            periodic: PeriodicRequests::default(),
            next: Counters::default(),
            settings,
        })
    }

    /// The settings that all sessions share.
    #[must_use]
    pub fn settings(&self) -> &RegistrySettings {
        &self.settings
    }

    /// The budget of memory for early packets of all sessions together.
    #[must_use]
    pub fn reorder_budget(&self) -> &Arc<ReorderBudget> {
        &self.reorder_budget
    }

    /// The streams that hold early packets, those with most bytes first. None: of all sessions.
    #[must_use]
    pub fn early_streams(&self, of: Option<&Arc<Session>>) -> Vec<OfSession> {
        let held = |stream: &DataStream| {
            let totals = stream.tally().totals();
            totals.waiting_bytes + totals.waiting_packets * EARLY_PACKET_BYTES
        };
        let mut holders: Vec<(u64, OfSession)> = match of {
            Some(session) => {
                let streams = session.streams().into_iter();
                let streams = streams.filter_map(|stream| match stream {
                    SessionStream::Data(stream) => {
                        Some((held(&stream), (Arc::clone(session), stream)))
                    }
                    SessionStream::Metadata(_) => None,
                });
                streams.filter(|(held, _)| *held > 0).collect()
            }
            None => {
                let streams = self.data_streams.read();
                let streams = streams.open.values();
                let streams = streams.map(|of_session| (held(&of_session.1), of_session));
                let holders = streams.filter(|(held, _)| *held > 0);
                holders.map(|(held, of)| (held, of.clone())).collect()
            }
        };
        holders.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
        holders.into_iter().map(|(_, stream)| stream).collect()
    }

    /// A permit for each file call of a viewer that may block, of all sessions together.
    #[must_use]
    pub fn viewer_file_calls(&self) -> &Arc<Semaphore> {
        &self.viewer_file_calls
    }

    /// A session without streams, which is not among those of the registry yet. `directory` is None
    /// if the paths of its streams contain it.
    #[must_use]
    pub fn new_session(
        &self,
        identity: SessionIdentity,
        directory: Option<SessionDirectory>,
        recording: Arc<Recording>,
        connections: CancellationToken,
    ) -> Arc<Session> {
        let budget = ReorderBudget::of_session(&self.reorder_budget);
        let periodic = self.periodic.clone();
        Arc::new(Session::new(
            identity,
            directory,
            recording,
            budget,
            connections,
            periodic,
        ))
    }

    /// The recordings that sessions belong to.
    #[must_use]
    pub fn recordings(&self) -> &Recordings {
        &self.recordings
    }

    /// Gives new sessions higher numbers than this one.
    pub fn reserve_session(&self, session: SessionId) {
        self.next.session.fetch_max(session.0, Ordering::Relaxed);
    }

    /// Gives new streams higher numbers than this one.
    pub fn reserve_stream(&self, stream: StreamId) {
        self.next.stream.fetch_max(stream.0, Ordering::Relaxed);
    }

    /// Gives new traces higher numbers than this one.
    pub fn reserve_trace(&self, trace: TraceId) {
        self.next.trace.fetch_max(trace.0, Ordering::Relaxed);
    }

    /// A number for a new session.
    #[must_use]
    pub fn next_session(&self) -> SessionId {
        SessionId(next(&self.next.session))
    }

    /// A number for a new stream.
    #[must_use]
    pub fn next_stream(&self) -> StreamId {
        StreamId(next(&self.next.stream))
    }

    /// A number for a new trace.
    #[must_use]
    pub fn next_trace(&self) -> TraceId {
        TraceId(next(&self.next.trace))
    }

    /// A number for a new data connection.
    #[must_use]
    pub fn next_connection(&self) -> ConnectionId {
        ConnectionId(next(&self.next.connection))
    }

    /// This run of the relay in the archive. None: there is no archive.
    #[must_use]
    pub fn boot(&self) -> Option<BootId> {
        self.settings.archive.as_ref().map(|feed| feed.boot())
    }

    /// Subscribes to changes of the list of sessions.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().add(subscription);
    }

    /// Removes a subscription. One that was not added is no error.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().remove(subscription);
    }

    /// Whether the relay may have one more stream.
    pub(in crate::registry) fn has_room(&self) -> bool {
        self.data_streams.read().open.len() < MAX_STREAMS_IN_ALL
    }

    /// Adds a stream that takes packets.
    pub fn add_data_stream(&self, session: &Arc<Session>, stream: Arc<DataStream>) {
        let entry = (Arc::clone(session), Arc::clone(&stream));
        self.data_streams.write().open.insert(stream.id(), entry);
    }

    /// The sessions whose producers are connected, by number.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// The sessions whose producers are gone and that linger for packets in flight.
    #[must_use]
    pub fn lingering(&self) -> Vec<Arc<Session>> {
        let lingering = self.lingering.lock();
        let sessions = lingering.iter().map(|(_, session)| Arc::clone(session));
        sessions.collect()
    }

    /// A function that lists the directories, relative to the output, of the sessions that have not
    /// ended. It does not keep the registry. A session without a directory of its own has markers
    /// for as long as it is open.
    pub fn open_directories(self: &Arc<Self>) -> impl Fn() -> BTreeSet<PathBuf> + use<> {
        let registry = Arc::downgrade(self);
        move || {
            let Some(registry) = registry.upgrade() else {
                return BTreeSet::new();
            };
            let sessions = [registry.sessions(), registry.lingering()].concat();
            let directories = sessions
                .iter()
                .filter_map(|session| session.identity().directory.as_ref());
            directories
                .map(|directory| Path::new(directory.as_ref()).to_owned())
                .collect()
        }
    }

    /// Number of open streams of packets, and the counters of all that ever existed.
    #[must_use]
    pub fn totals(&self) -> (usize, Totals) {
        let streams = self.data_streams.read();
        let mut totals = streams.past;
        for (_, stream) in streams.open.values() {
            totals += stream.tally().totals();
        }
        (streams.open.len(), totals)
    }

    /// The session with this number, while its producer is connected.
    #[must_use]
    pub fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        self.sessions.read().get(&id).cloned()
    }

    /// The sessions to which viewers may attach, by number: those whose producers are connected,
    /// and those that have ended and for which a viewer is expected back.
    #[must_use]
    pub fn sessions_for_viewers(&self, now: Instant) -> Vec<Arc<Session>> {
        // Before the others: a session that ends in between must not be missing.
        let sessions = self.sessions();
        let ended = self.ended.lock();
        let ended = ended
            .iter()
            .filter(|session| session.viewers().are_expected(now));
        let all = sessions.iter().chain(ended);
        // By number, because a session may be in both lists for a moment.
        let all: BTreeMap<_, _> = all.map(|session| (session.id(), session)).collect();
        all.into_values().cloned().collect()
    }

    /// The session with this number, if viewers may attach to it.
    #[must_use]
    pub fn session_for_viewers(&self, id: SessionId, now: Instant) -> Option<Arc<Session>> {
        let is_it =
            |session: &&Arc<Session>| session.id() == id && session.viewers().are_expected(now);
        let connected = self.session(id);
        connected.or_else(|| self.ended.lock().iter().find(is_it).cloned())
    }

    /// A stream that takes packets, and its session.
    #[must_use]
    pub fn data_stream(&self, id: StreamId) -> Option<OfSession> {
        self.data_streams.read().open.get(&id).cloned()
    }

    /// Ends a session whose control connection has ended. The session lingers until the packets in
    /// flight have arrived, unless the connection failed. A resumable session is kept until its
    /// producer has another connection. `generation` is that of the connection.
    pub fn end_control(&self, session: &Arc<Session>, generation: u64, failed: bool, now: Instant) {
        match self.detach(session, generation, now) {
            // Another session has superseded this one, or another connection has taken it over.
            DetachOutcome::NotOwner | DetachOutcome::Detached => return,
            DetachOutcome::Ends => {}
        }
        self.remove_ended(session, now);
        session.end_control(failed);
        self.forget_all_closed(session);
        if session.is_empty() {
            let peer = session.identity().producer;
            info!(%session, %peer, "session ended");
        } else {
            info!(%session, "session lingers: packets are still in flight");
            let mut lingering = self.lingering.lock();
            lingering.push((now + DRAIN_GRACE, Arc::clone(session)));
            // Each of them has memory and files that no connection answers for.
            let is_full = lingering.len() > self.settings.max_detached;
            let oldest = is_full.then(|| lingering.remove(0));
            // Unlocked, because to end a session makes file calls.
            drop(lingering);
            if let Some((_, oldest)) = oldest {
                self.end_lingering(&oldest);
            }
        }
    }

    fn end_lingering(&self, session: &Session) {
        if !session.is_empty() {
            warn!(%session, "session ended: packets that were announced have not come");
            session.abort();
            self.forget_all_closed(session);
        }
    }

    /// Removes a session whose producer is gone. It is kept for the viewers that are attached or
    /// expected back.
    fn remove_ended(&self, session: &Arc<Session>, now: Instant) {
        if session.viewers().are_any(now) {
            let mut ended = self.ended.lock();
            let is_full = ended.len() >= MAX_ENDED_SESSIONS;
            let oldest = is_full.then(|| ended.pop_front());
            // Before it is removed from the others, so that viewers see it in one of the two.
            ended.push_back(Arc::clone(session));
            drop(ended);
            // Not under the lock: the last reference to a session may close files.
            drop(oldest);
        }
        self.sessions.write().remove(&session.id());
        self.subscriptions.lock().notify();
    }

    /// Forgets the ended sessions for which no viewer is attached or expected back.
    fn forget_ended(&self, now: Instant) {
        let mut forgotten = Vec::new();
        self.ended.lock().retain(|session| {
            let is_kept = session.viewers().are_any(now);
            if !is_kept {
                forgotten.push(Arc::clone(session));
            }
            is_kept
        });
        if !forgotten.is_empty() {
            self.subscriptions.lock().notify();
        }
    }

    /// Removes the closed streams of a session from the registry.
    pub fn forget_all_closed(&self, session: &Session) {
        let streams = session.streams();
        let closed = streams.iter().filter(|stream| stream.is_closed());
        let closed: Vec<_> = closed.map(SessionStream::id).collect();
        self.forget_closed(session, &closed);
    }

    /// Removes those of these streams that are closed from the registry.
    pub fn forget_closed(&self, session: &Session, ids: &[StreamId]) {
        let closed = session.forget_closed(ids);
        if !closed.is_empty() {
            self.forget_data_streams(closed);
        }
        session.unlock_directory_if_ended();
        self.complete_if_done(session);
    }

    fn forget_data_streams(&self, closed: Vec<StreamId>) {
        // Collected, because to drop them may close files, which must not happen with the lock
        // held.
        let mut forgotten = Vec::with_capacity(closed.len());
        let mut streams = self.data_streams.write();
        for id in closed {
            if let Some(entry) = streams.open.remove(&id) {
                // Under one lock, so that a scrape counts the stream once.
                streams.past += entry.1.tally().totals().past();
                forgotten.push(entry);
            }
        }
        drop(streams);
        drop(forgotten);
    }

    /// Whether [`tick`](Self::tick) has anything to do. Makes no file call.
    #[must_use]
    pub fn has_periodic_work(&self, now: Instant) -> bool {
        self.may_have_due_sessions()
            || !self.lingering.lock().is_empty()
            || !self.ended.lock().is_empty()
            || self.has_detached()
            || self.settings.pool.is_idle_round_due(now)
    }

    fn may_have_due_sessions(&self) -> bool {
        let syncer = self.settings.pool.syncer();
        self.periodic.is_any() || syncer.is_some_and(|syncer| syncer.tally().failures() > 0)
    }

    /// The sessions that have periodic work.
    fn due_sessions(&self) -> Vec<Arc<Session>> {
        if !self.may_have_due_sessions() {
            return Vec::new();
        }
        // Before the look, so that a request that comes meanwhile is not lost.
        self.periodic.take();
        let sessions = self.sessions.read();
        let due = sessions.values().filter(|s| s.has_periodic_work());
        let due: Vec<_> = due.cloned().collect();
        if !due.is_empty() {
            // They may have more work than fits one tick, and another tick does it if a file call
            // of this one hangs.
            self.periodic.add();
        }
        due
    }

    /// Writes beacons, closes idle files, and ends sessions that have lingered for [`DRAIN_GRACE`].
    /// Must be called every [`TICK`](crate::limits::TICK) in which it [has anything to
    /// do](Self::has_periodic_work).
    pub fn tick(&self, now: Instant) {
        // A copy: the table must not stay locked during file calls.
        for session in self.due_sessions() {
            session.do_periodic_work();
        }
        for session in self.lingering() {
            // The session logs an error itself.
            let _ = session.check_synced();
        }
        self.settings.pool.close_idle_files(now);
        self.end_detached(now);
        self.forget_ended(now);
        let mut ended = Vec::new();
        self.lingering.lock().retain_mut(|(until, session)| {
            // The grace period begins when the last data connection has ended.
            if session.has_data_connection() {
                *until = now + DRAIN_GRACE;
            }
            let is_kept = !session.is_empty() && now < *until;
            if !is_kept {
                ended.push(Arc::clone(session));
            }
            is_kept
        });
        ended.iter().for_each(|session| self.end_lingering(session));
    }

    /// Removes all sessions from the registry because the relay stops, but for those that are
    /// resumable: viewers are not to miss them. The caller [closes](Self::close) each of those that
    /// are returned.
    #[must_use]
    pub fn take_sessions(&self) -> Vec<Arc<Session>> {
        let mut connected = self.sessions.write();
        let sessions = connected.clone();
        connected.retain(|_, session| session.is_resumable());
        drop(connected);
        let lingering = std::mem::take(&mut *self.lingering.lock());
        let lingering = lingering.into_iter().map(|(_, session)| session);
        sessions.into_values().chain(lingering).collect()
    }

    /// Ends a session, so that everything received is on disk. The next relay continues it if it is
    /// resumable.
    pub fn close(&self, session: &Arc<Session>) {
        if session.suspend() {
            return;
        }
        session.end_control(true);
        self.forget_all_closed(session);
    }
}

fn next(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}
