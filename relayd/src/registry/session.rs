//! The session of one producer: its streams, which of them are announced to viewers, and its end.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use relay_proto::session::TraceFormat;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use viewer_proto::stream::StreamRecord;
use wire::{FixedText, Micros, SessionId, StreamId, Text, TraceId, TracePath};

use super::arrivals::Arrivals;
use super::recording::{Recording, RecordingKey};
use super::resumable::{Owner, Resumable};
use super::stream::SessionStream;
use super::stream_table::{StreamTable, holds_back};
use super::viewers::SessionViewers;
use crate::ingest::reorder_budget::ReorderBudget;
use crate::ingest::{MetadataStream, Resumed};
use crate::limits::{MAX_METADATA_STREAMS, MAX_STREAMS, METADATA_TIMEOUT, TICK};
use crate::publish::announced::{AnnouncedStreams, ListedStream};
use crate::publish::subscription::{Subscription, Subscriptions};
use crate::publish::tally::Totals;
use crate::publish::viewer_lag::ViewerLag;
use crate::publish::watermark::Watermark;
use crate::store::StoreError;
use crate::store::session_directory::SessionDirectory;
use crate::store::sync::file::SyncStatus;
pub use archiving::ArchivedAs;
use archiving::Archiving;
pub use periodic::PeriodicRequests;
use periodic::PeriodicWork;

mod archiving;
mod periodic;
mod resuming;

/// The properties of a session that never change.
#[derive(Debug)]
pub struct SessionIdentity {
    /// Number of the session.
    pub id: SessionId,
    /// Name of the session, as its user gave it.
    pub name: Text,
    /// Name of the traced host.
    pub host: Text,
    /// Interval at which the producer sends its packets. Zero: the session is not live.
    pub live_timer: Micros,
    /// Format of the traces that the producer sends.
    pub trace_format: TraceFormat,
    /// Directory, relative to the relay's output. None: the path of each stream contains it.
    pub directory: Option<TracePath>,
    /// Address of the peer of the control connection.
    pub producer: IpAddr,
    /// Recording at its session daemon, which has a new id each time that it is started. None: the
    /// producer is older than 2.11.
    pub recording: Option<RecordingKey>,
}

/// The session of one producer, shared by its connections, its viewers and the registry.
#[derive(Debug)]
pub struct Session {
    identity: SessionIdentity,
    recording: Arc<Recording>,
    streams: Mutex<StreamTable>,
    data_connections: Mutex<DataConnections>,
    announced: Mutex<AnnouncedStreams>,
    /// Copy of [`AnnouncedStreams::next`] that is read without the lock.
    announced_next: AtomicU64,
    viewers: SessionViewers,
    viewer_lag: ViewerLag,
    producer_gone: AtomicBool,
    has_failed: AtomicBool,
    subscriptions: Mutex<Subscriptions>,
    periodic: PeriodicWork,
    watermark: Arc<Watermark>,
    reorder_budget: Arc<ReorderBudget>,
    sync: Arc<SyncStatus>,
    /// Keeps retention from removing the directory, also that of other relays. None: the session
    /// has ended, or has no directory of its own.
    retained: Mutex<Option<SessionDirectory>>,
    archiving: Archiving,
    /// Locked while the control connection creates or moves files.
    directory: Mutex<()>,
    /// The control connection that the session belongs to.
    owner: Mutex<Owner>,
    /// The part that outlives the connections. Empty: the session ends with its control connection.
    resumable: OnceLock<Resumable>,
    arrivals: Arrivals,
}

/// The data connections of a session.
#[derive(Debug, Default)]
struct DataConnections {
    open: usize,
    /// Address of the peer of the first data connection.
    from: Option<IpAddr>,
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SessionIdentity { id, name, host, .. } = &self.identity;
        write!(f, "{id} ({host}/{name})")
    }
}

impl Session {
    /// A session without streams, whose connections end when `connections` is cancelled. Made by
    /// the [registry](super::Registry::new_session).
    #[must_use]
    pub fn new(
        identity: SessionIdentity,
        directory: Option<SessionDirectory>,
        recording: Arc<Recording>,
        reorder_budget: Arc<ReorderBudget>,
        connections: CancellationToken,
        periodic: PeriodicRequests,
    ) -> Self {
        let owner = Owner::new(connections, identity.producer);
        Self {
            identity,
            recording,
            streams: Mutex::default(),
            data_connections: Mutex::default(),
            announced: Mutex::default(),
            announced_next: AtomicU64::new(0),
            viewers: SessionViewers::default(),
            viewer_lag: ViewerLag::default(),
            producer_gone: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            subscriptions: Mutex::default(),
            periodic: PeriodicWork::new(periodic),
            watermark: Arc::default(),
            reorder_budget,
            sync: Arc::default(),
            retained: Mutex::new(directory),
            archiving: Archiving::default(),
            directory: Mutex::default(),
            owner: Mutex::new(owner),
            resumable: OnceLock::new(),
            arrivals: Arrivals::default(),
        }
    }

    /// Number of the session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.identity.id
    }

    /// The properties that never change.
    #[must_use]
    pub fn identity(&self) -> &SessionIdentity {
        &self.identity
    }

    /// The recording that the session belongs to.
    #[must_use]
    pub fn recording(&self) -> &Arc<Recording> {
        &self.recording
    }

    /// The budget of memory for early packets of the session.
    #[must_use]
    pub fn reorder_budget(&self) -> &Arc<ReorderBudget> {
        &self.reorder_budget
    }

    /// The status that says whether the files of the session could be synced.
    #[must_use]
    pub fn sync_status(&self) -> &Arc<SyncStatus> {
        &self.sync
    }

    /// The viewers that are attached, or expected back.
    #[must_use]
    pub fn viewers(&self) -> &SessionViewers {
        &self.viewers
    }

    /// Counters of how much has arrived on the connections of the session.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// The lag of the attached viewers.
    #[must_use]
    pub fn viewer_lag(&self) -> &ViewerLag {
        &self.viewer_lag
    }

    /// Number of open streams of packets, and the counters of all that the session ever had.
    #[must_use]
    pub fn totals(&self) -> (usize, Totals) {
        let streams = self.streams.lock();
        let (mut open, mut totals) = (0, streams.past());
        for stream in streams.streams() {
            if let SessionStream::Data(stream) = stream {
                open += 1;
                totals += stream.tally().totals();
            }
        }
        (open, totals)
    }

    /// Whether the producer is gone, so that no stream will be added.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.producer_gone.load(Ordering::Acquire)
    }

    // Streams.

    /// Whether the session may have one more stream.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.streams.lock().len() < MAX_STREAMS
    }

    /// Whether the session may have one more metadata stream.
    #[must_use]
    pub fn has_room_for_metadata(&self) -> bool {
        self.streams.lock().metadata_streams() < MAX_METADATA_STREAMS
    }

    /// The path of a trace, which shares its bytes with those of the streams that it has.
    #[must_use]
    pub fn share_path(&self, path: TracePath) -> TracePath {
        self.streams.lock().share_path(path)
    }

    /// Adds a stream. A new trace gets its number from `new_trace`. Viewers learn of it later.
    pub fn add_stream(
        &self,
        stream: SessionStream,
        path: TracePath,
        channel: Text,
        new_trace: impl FnOnce() -> TraceId,
    ) {
        let mut streams = self.streams.lock();
        let trace = streams.trace_id(&path, new_trace);
        let record = StreamRecord {
            stream: stream.id(),
            trace,
            is_metadata: u32::from(matches!(stream, SessionStream::Metadata(_))),
            path: FixedText(path.to_text()),
            channel: FixedText(channel),
        };
        let content = stream.content();
        let since = holds_back(&content).then(|| self.watermark.latest());
        if let Some(since) = since {
            self.periodic.request_timeouts();
            self.watermark.hold_back(since);
        }
        let timeout = self.metadata_timeout();
        let listed = Arc::new(ListedStream { record, content });
        streams.add(stream, path, listed, since, timeout);
        let discarded = streams.take_discarded();
        // In this order: to drop the discarded streams may close files, which must not happen with
        // the lock held.
        drop(streams);
        drop(discarded);
    }

    /// The stream with this number, unless it is closed.
    #[must_use]
    pub fn stream(&self, id: StreamId) -> Option<SessionStream> {
        let streams = self.streams.lock();
        let stream = streams.get(id).filter(|stream| !stream.is_closed());
        stream.cloned()
    }

    /// All streams in the table, closed ones included.
    #[must_use]
    pub fn streams(&self) -> Vec<SessionStream> {
        self.streams.lock().streams().cloned().collect()
    }

    /// Number of open streams that the producer has published.
    #[must_use]
    pub fn published_streams(&self) -> usize {
        self.streams.lock().published()
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.lock().len() == 0
    }

    /// Removes those of these streams that are closed. Returns the numbers by which the producer
    /// names the streams of packets among them.
    #[must_use]
    pub fn forget_closed(&self, ids: &[StreamId]) -> Vec<StreamId> {
        let mut streams = self.streams.lock();
        let closed = ids.iter().filter_map(|id| streams.forget(*id)).collect();
        self.limit_watermark(&mut streams);
        let discarded = streams.take_discarded();
        // In this order: this may close files and move a chunk, which must not happen with the lock
        // held.
        drop(streams);
        drop(discarded);
        closed
    }

    /// Begins a data-pending round, in which the producer asks about its streams one by one.
    pub fn begin_data_pending(&self) {
        self.streams.lock().begin_data_pending();
    }

    /// Marks a stream about which the producer asked in this round.
    pub fn mark_asked(&self, id: StreamId) {
        self.streams.lock().mark_asked(id);
    }

    /// Whether the producer left out some open stream in this round.
    #[must_use]
    pub fn has_unpolled_streams(&self) -> bool {
        self.streams.lock().has_unpolled_streams()
    }

    // Announcements to viewers.

    /// Publishes the streams that the producer has added so far.
    pub fn publish_streams(&self) {
        let mut streams = self.streams.lock();
        let ready = streams.publish();
        self.announce(streams, ready);
    }

    /// Announces the streams of a trace to viewers, because its metadata has arrived.
    pub fn announce_trace(&self, trace: &TracePath) {
        let mut streams = self.streams.lock();
        if let Some(ready) = streams.describe(trace) {
            self.announce(streams, ready);
        }
    }

    /// Announces the streams of a trace, some of whose metadata has arrived, to viewers: at once,
    /// or if a stream class is still to come, after a timeout or at the end of the session.
    pub fn announce_described(&self, metadata: &MetadataStream) {
        if !metadata.awaits_stream_class() {
            return self.announce_trace(metadata.trace());
        }
        let mut streams = self.streams.lock();
        streams.describe_later(metadata.trace(), self.metadata_timeout());
        self.periodic.request_timeouts();
    }

    /// Number of ticks for which metadata is awaited.
    fn metadata_timeout(&self) -> u64 {
        let period = self.identity.live_timer.period().unwrap_or_default();
        let ticks = (METADATA_TIMEOUT + 3 * period).as_millis() / TICK.as_millis();
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Announces streams whose metadata is known: viewers cannot decode others.
    fn announce(&self, mut streams: MutexGuard<'_, StreamTable>, ready: Vec<Arc<ListedStream>>) {
        let mut forgotten = Vec::new();
        let mut announced = self.announced.lock();
        for listed in ready {
            forgotten.extend(announced.push(listed));
        }
        self.announced_next
            .store(announced.next(), Ordering::Release);
        drop(announced);
        // After the streams are in the list, so that a viewer that sees the higher watermark sees
        // the new streams too.
        self.limit_watermark(&mut streams);
        self.subscriptions.lock().notify();
        // In this order: to drop the forgotten streams may close files, which must not happen with
        // the lock held.
        drop(streams);
        drop(forgotten);
    }

    /// The watermark of the session.
    #[must_use]
    pub fn watermark(&self) -> &Arc<Watermark> {
        &self.watermark
    }

    /// Raises the watermark if viewers are no longer held back for its oldest stream.
    fn limit_watermark(&self, streams: &mut StreamTable) {
        if self.watermark.update_limit(streams.oldest_awaited()) {
            // Packets may have been withheld from subscribers.
            self.subscriptions.lock().notify();
        }
    }

    /// Stops holding viewers back, because no metadata will arrive any more.
    fn await_no_metadata(&self) {
        let mut streams = self.streams.lock();
        streams.await_none();
        let ready = streams.describe_overdue(true);
        self.announce(streams, ready);
    }

    /// Subscribes to new streams and the end of the session.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().add(subscription);
    }

    /// Removes a subscription. One that was not added is no error.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().remove(subscription);
    }

    /// Number of the next stream that will be announced.
    #[must_use]
    pub fn announced_next(&self) -> u64 {
        self.announced_next.load(Ordering::Acquire)
    }

    /// The announced streams from a position on, each with its number.
    #[must_use]
    pub fn announced_from(&self, position: u64) -> Vec<(u64, Arc<ListedStream>)> {
        let announced = self.announced.lock();
        announced
            .from(position)
            .map(|(number, listed)| (number, Arc::clone(listed)))
            .collect()
    }

    // Connections, and the end.

    /// Adds a data connection from this address. Returns whether the connection may carry packets
    /// of this session. Because stream numbers are easy to guess, it must have the address of the
    /// control connection or, since a host may have several, that of the first data connection.
    #[must_use]
    pub fn add_data_connection(&self, from: IpAddr) -> bool {
        let mut connections = self.data_connections.lock();
        let first = *connections.from.get_or_insert(from);
        let may = from == first || from == self.owner.lock().address;
        connections.open += usize::from(may);
        may
    }

    /// Forgets the address of data connections: the producer has another control connection.
    pub(super) fn forget_data_address(&self) {
        self.data_connections.lock().from = None;
    }

    /// Whether a data connection is open.
    #[must_use]
    pub fn has_data_connection(&self) -> bool {
        self.data_connections.lock().open > 0
    }

    /// Removes a data connection that has ended. After the last one no missing packet can arrive:
    /// they are given up, and streams may be closed. Returns whether it was the last.
    pub fn remove_data_connection(&self) -> bool {
        let is_last = {
            let mut connections = self.data_connections.lock();
            connections.open -= 1;
            connections.open == 0
        };
        // The producer of a resumable session sends what is missing on its next connection.
        if !is_last || self.is_resumable() {
            return is_last;
        }
        for stream in self.streams() {
            if let SessionStream::Data(stream) = stream {
                let ended = stream.lock().end_data();
                if let Err(error) = ended {
                    warn!(session = %self, %error, "early packets not written: they are lost");
                }
            }
        }
        true
    }

    /// Ends the session, because its control connection has ended: no stream will be added and no
    /// index will arrive. Unless the connection has failed, packets whose index has arrived may
    /// still be in flight.
    pub fn end_control(&self, failed: bool) {
        self.await_no_metadata();
        self.producer_gone.store(true, Ordering::Release);
        self.subscriptions.lock().notify();
        if failed {
            return self.abort();
        }
        for stream in self.streams() {
            match stream {
                SessionStream::Data(stream) => {
                    let mut writer = stream.lock();
                    if let Err(error) = writer.close_after(None) {
                        warn!(session = %self, %error, "index entries not written: stream closed without them");
                        writer.close_now();
                    }
                }
                SessionStream::Metadata(stream) => stream.close(),
            }
        }
    }

    /// Locks the directory of the session for its control connection, which creates or moves files
    /// there. None: the session is over, or has another control connection than that of
    /// `generation`.
    #[must_use]
    pub fn lock_directory(&self, generation: u64) -> Option<MutexGuard<'_, ()>> {
        let guard = self.directory.lock();
        (!self.is_over() && self.is_owned_by(generation)).then_some(guard)
    }

    /// Ends the session because another supersedes it. What has arrived is written.
    pub fn supersede(&self) {
        self.connections().cancel();
        let _guard = self.directory.lock();
        self.end_control(true);
        for stream in self.streams() {
            // A closed metadata stream keeps its file locked, which would keep the successor from
            // replacing the file.
            if let SessionStream::Metadata(stream) = stream
                && let Err(error) = stream.rotate(None)
            {
                warn!(session = %self, %error, "metadata file not closed");
            }
        }
    }

    /// Retries to write what the disk had no space for on a stream. Returns whether the stream is
    /// no longer paused. If the attempt fails for another reason, the session fails too.
    #[must_use]
    pub fn resume_stream(&self, stream: &SessionStream) -> bool {
        let id = stream.id();
        match stream.resume() {
            Ok(Resumed::Yes { was_reported }) => {
                if was_reported {
                    warn!(session = %self, stream = %id, "producer resumed");
                }
                if let SessionStream::Metadata(metadata) = stream {
                    self.announce_described(metadata);
                }
            }
            Ok(Resumed::Already) => {}
            Ok(Resumed::No(why)) => {
                if let Some(why) = why {
                    warn!(session = %self, %why, "producer paused");
                }
                return false;
            }
            Err(why) => {
                error!(session = %self, error = %why, "session aborted");
                self.fail();
            }
        }
        true
    }

    /// Closes every stream now and marks the session as failed, because some of its data was lost.
    /// A resumable session loses its connections instead: its producer sends the data again.
    pub fn fail(&self) {
        if self.is_resumable() {
            return self.connections().cancel();
        }
        self.has_failed.store(true, Ordering::Relaxed);
        self.abort();
    }

    /// Fails the session if some of its files could not be synced. The data connections end as
    /// well, so that the producer notices.
    ///
    /// # Errors
    /// If a file could not be synced.
    pub fn check_synced(&self) -> Result<(), StoreError> {
        let checked = self.sync.check();
        if let Err(error) = &checked
            && !self.has_failed()
        {
            error!(session = %self, %error, "session aborted");
            // Even a resumable session: what it has lost was perhaps acknowledged as written, and
            // is not sent again. Its producer opens another one.
            self.has_failed.store(true, Ordering::Relaxed);
            self.connections().cancel();
            self.abort();
        }
        checked
    }

    /// Whether some data of the session was rejected or could not be written.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Closes every stream now, because a connection has failed.
    pub fn abort(&self) {
        for stream in self.streams() {
            match stream {
                SessionStream::Data(stream) => stream.lock().close_now(),
                SessionStream::Metadata(stream) => stream.close(),
            }
        }
    }
}
