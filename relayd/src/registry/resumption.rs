//! The part of the registry that acts when a resumable session loses its connections, is resumed,
//! or ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wire::StreamId;

use super::detached::DetachedSessions;
use super::recording::RecordingKey;
use super::resumable::{DetachOutcome, Resumable};
use super::session::Session;
use super::stream::SessionStream;
use super::{DirectoryInUse, Registry};
use crate::ingest::IngestError;

/// The resumable sessions of a relay.
#[derive(Debug)]
pub(super) struct ResumableSessions {
    sessions: Mutex<HashMap<RecordingKey, Arc<Session>>>,
    detached: DetachedSessions,
    counts: ResumeCounts,
}

/// Counters of how often sessions were detached, resumed, restored, or ended instead.
#[derive(Debug, Default)]
pub struct ResumeCounts {
    detached: AtomicU64,
    resumed: AtomicU64,
    restored: AtomicU64,
    expired: AtomicU64,
    given_up: AtomicU64,
}

/// A way in which a session changes hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeEvent {
    /// The control connection was lost, and the session is kept.
    Detached,
    /// A producer has continued its session on another connection.
    Resumed,
    /// A session of a relay before this one was restored.
    Restored,
    /// A session has ended because its producer did not resume it in time.
    Expired,
    /// A session has ended before its time because too many wait for their producers.
    GivenUp,
}

impl ResumeEvent {
    /// All events, for metrics.
    pub const ALL: [Self; 5] = [
        Self::Detached,
        Self::Resumed,
        Self::Restored,
        Self::Expired,
        Self::GivenUp,
    ];

    /// Label of the event in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Detached => "detached",
            Self::Resumed => "resumed",
            Self::Restored => "restored",
            Self::Expired => "expired",
            Self::GivenUp => "given_up",
        }
    }
}

impl ResumableSessions {
    /// Resumable sessions, of which there are none yet. At most `max_detached` are kept without a
    /// connection.
    pub(super) fn new(max_detached: usize) -> Self {
        Self {
            sessions: Mutex::default(),
            detached: DetachedSessions::new(max_detached),
            counts: ResumeCounts::default(),
        }
    }

    /// Locks the sessions that can be resumed, by their ids.
    pub(super) fn lock_sessions(&self) -> MutexGuard<'_, HashMap<RecordingKey, Arc<Session>>> {
        self.sessions.lock()
    }
}

impl ResumeCounts {
    fn counter(&self, event: ResumeEvent) -> &AtomicU64 {
        match event {
            ResumeEvent::Detached => &self.detached,
            ResumeEvent::Resumed => &self.resumed,
            ResumeEvent::Restored => &self.restored,
            ResumeEvent::Expired => &self.expired,
            ResumeEvent::GivenUp => &self.given_up,
        }
    }

    fn count(&self, event: ResumeEvent) {
        self.counter(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Number of events since the relay was started.
    #[must_use]
    pub fn of(&self, event: ResumeEvent) -> u64 {
        self.counter(event).load(Ordering::Relaxed)
    }
}

impl Registry {
    /// Keeps the session as [`make_resumable`](Self::make_resumable) does, if no other recording
    /// has its directory.
    pub fn make_resumable_alone(
        &self,
        key: RecordingKey,
        session: &Arc<Session>,
        resumable: Resumable,
    ) -> Result<bool, DirectoryInUse> {
        self.begin_alone(session, || self.make_resumable(key, session, resumable))
    }

    /// Keeps the session with these ids when its connections are lost. Returns false if there is
    /// another with these ids, if it is kept already, if it is over, or if it is turned away.
    #[must_use]
    pub fn make_resumable(
        &self,
        key: RecordingKey,
        session: &Arc<Session>,
        resumable: Resumable,
    ) -> bool {
        let mut sessions = self.resumable.sessions.lock();
        // A superseded session is over before it is removed from this table: inserted after that,
        // it would stay.
        let is_refused =
            sessions.contains_key(&key) || session.is_over() || self.turned_away.turn_away(key);
        if is_refused || !session.make_resumable(resumable) {
            return false;
        }
        sessions.insert(key, Arc::clone(session));
        true
    }

    /// Whether a resumable session has these ids.
    #[must_use]
    pub fn has_resumable(&self, key: RecordingKey) -> bool {
        self.resumable.sessions.lock().contains_key(&key)
    }

    /// Gives the session with these ids to a control connection, and ends the connections that it
    /// had. Returns the session and the number of the connection among those that it has had.
    #[must_use]
    pub fn resume(
        &self,
        key: RecordingKey,
        connections: CancellationToken,
        address: IpAddr,
        now: Instant,
    ) -> Option<(Arc<Session>, u64)> {
        let session = self.resumable.sessions.lock().get(&key).cloned()?;
        if session.sync_status().has_failed() {
            // Part of what its producer believes to be written may be lost.
            return None;
        }
        let was_detached = session.is_detached();
        let generation = session.attach(connections, address)?;
        session.viewers().doubt(now);
        self.resumable.counts.count(ResumeEvent::Resumed);
        info!(%session, %address, was_detached, "session resumed");
        Some((session, generation))
    }

    /// Lets the producer continue a stream: removes what it will send again, and gives the stream
    /// another number, so that what earlier connections still send is not taken for it. Returns the
    /// number, and the next packet or byte.
    ///
    /// # Errors
    /// If the files of the stream cannot be truncated.
    pub fn reopen_stream(
        &self,
        session: &Arc<Session>,
        stream: &SessionStream,
    ) -> Result<(StreamId, u64), IngestError> {
        let wire_id = self.next_stream();
        let next = match stream {
            SessionStream::Data(stream) => {
                let mut writer = stream.lock();
                let before = writer.wire_id();
                let next = writer.reopen(wire_id)?;
                // Unlocked, because the tables of the registry are locked before a stream, never
                // after.
                drop(writer);
                let mut streams = self.data_streams.write();
                streams.open.remove(&before);
                let entry = (Arc::clone(session), Arc::clone(stream));
                streams.open.insert(wire_id, entry);
                next.0
            }
            SessionStream::Metadata(stream) => {
                let reopened = stream.reopen(wire_id);
                let next = reopened.map_err(|source| IngestError::Store {
                    stream: stream.id(),
                    source,
                })?;
                next.0
            }
        };
        session.renumber(stream.id(), wire_id);
        Ok((wire_id, next))
    }

    /// Removes a session that could not be restored completely. Nothing is written to its log.
    pub fn discard(&self, session: &Arc<Session>) {
        self.sessions.write().remove(&session.id());
        session.end_control(true);
        self.forget_all_closed(session);
    }

    /// Completes the restoration of a session of a relay before this one: it has no connection.
    pub fn restore(&self, session: &Arc<Session>, now: Instant) {
        let timeout = session.resumable().map(|resumable| resumable.timeout);
        let generation = session.generation();
        session.detach(generation, now + timeout.unwrap_or_default());
        session.viewers().expect_restored(now);
        self.resumable.counts.count(ResumeEvent::Restored);
        self.limit_detached(session, now);
    }

    /// Keeps a resumable session whose control connection has ended.
    pub(super) fn detach(
        &self,
        session: &Arc<Session>,
        generation: u64,
        now: Instant,
    ) -> DetachOutcome {
        let timeout = session.resumable().map(|resumable| resumable.timeout);
        let timeout = timeout.unwrap_or_default();
        let outcome = session.detach(generation, now + timeout);
        if outcome == DetachOutcome::Detached {
            self.forget_all_closed(session);
            self.resumable.counts.count(ResumeEvent::Detached);
            let seconds = timeout.as_secs();
            info!(%session, seconds, "connection of the session lost: the session is kept for its producer");
            self.limit_detached(session, now);
        }
        outcome
    }

    /// Counts a session that has been detached, and gives up others if they are too many.
    fn limit_detached(&self, session: &Arc<Session>, now: Instant) {
        for session in self.resumable.detached.add(session) {
            self.give_up(&session, now);
        }
    }

    /// Gives up detached sessions until the relay has room for another stream. Returns whether it
    /// has.
    pub fn make_room(&self, now: Instant) -> bool {
        while !self.has_room() {
            match self.resumable.detached.take() {
                Some(session) => self.give_up(&session, now),
                None => return false,
            }
        }
        true
    }

    fn give_up(&self, session: &Arc<Session>, now: Instant) {
        // Its producer may be resuming it.
        if session.expire(None) {
            warn!(%session, "session ended: too many sessions wait for their producers, and this one is the oldest of its host");
            self.resumable.counts.count(ResumeEvent::GivenUp);
            self.end_expired(session, now);
        }
    }

    /// Whether some session may wait for its producer to resume it.
    pub(super) fn has_detached(&self) -> bool {
        self.resumable.detached.may_have_any()
    }

    /// Ends the sessions that have been detached for too long.
    pub(super) fn end_detached(&self, now: Instant) {
        for session in self.resumable.detached.take_expired(now) {
            warn!(%session, "session ended: its producer has not resumed it in time");
            self.resumable.counts.count(ResumeEvent::Expired);
            self.end_expired(&session, now);
        }
    }

    fn end_expired(&self, session: &Arc<Session>, now: Instant) {
        self.remove_ended(session, now);
        session.end_control(true);
        self.forget_all_closed(session);
        self.forget_resumable(session);
    }

    /// Ends the possibility to resume a session whose chunk and streams are all closed.
    pub fn complete_if_done(&self, session: &Session) {
        if session.is_resumable() && session.is_complete() {
            self.forget_resumable(session);
        }
    }

    /// Forgets that a session is resumable, and removes its log.
    pub(super) fn forget_resumable(&self, session: &Session) {
        session.end_resuming();
        let Some(key) = session.resume_key() else {
            return;
        };
        let removed = {
            let mut sessions = self.resumable.sessions.lock();
            // Another session may have been opened with these ids.
            let is_it = sessions
                .get(&key)
                .is_some_and(|own| own.id() == session.id());
            is_it.then(|| sessions.remove(&key)).flatten()
        };
        if let Some(resumable) = removed.as_ref().and_then(|session| session.kept()) {
            resumable.chunk.lock().take();
            self.log_ended_for_archive(session, &resumable.log);
            resumable.log.remove();
        }
    }

    /// The counters of how often sessions were detached and resumed.
    #[must_use]
    pub fn resume_counts(&self) -> &ResumeCounts {
        &self.resumable.counts
    }
}
