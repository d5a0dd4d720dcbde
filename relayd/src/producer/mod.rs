//! Executes the commands of a producer's control connection, and takes the packets of its data
//! connections. Implements `relay-proto`'s [`Relay`] trait; reads no socket, and knows no protocol
//! version past the opening of a session.
//!
//! Read in this order: [`Producer`] here, then `session` (opening one), `streams` (adding and
//! closing streams, indexes, metadata), `chunks` (rotating and clearing), `resume` (sessions that
//! outlive their connections), `restore` (sessions that outlive the relay), and
//! [`data_connection`].

#[cfg(test)]
mod archive_faults;
mod chunks;
pub mod data_connection;
#[cfg(test)]
mod disk_faults;
mod restore;
mod resume;
mod session;
mod streams;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ctf::model::Uuid;
use daemon::durability::Durability;
use daemon::host_clock;
use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::relay::{Refusal, Relay, SessionCreated};
use relay_proto::reply::RelayClock;
use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use relay_proto::session::CreateSession;
use relay_proto::stream::{AddStream, CloseStream, DataPending};
use relay_proto::{Minor, ReturnCode};
use tokio_util::sync::CancellationToken;
use wire::{SessionId, StreamId, Text};

use crate::ingest::{DataStream, MetadataStream};
use crate::registry::Registry;
use crate::store::sync::SyncTicket;
use chunks::SessionChunks;
pub use restore::restore_sessions;
use session::OpenSession;

/// The producer at the other end of one control connection.
#[derive(Debug)]
pub struct Producer {
    registry: Arc<Registry>,
    address: IpAddr,
    /// Token that is cancelled to end all connections of the session.
    connections: CancellationToken,
    /// The session of the connection. None until CREATE_SESSION or RESUME_SESSION.
    session: Option<OpenSession>,
    /// Streams that have had indexes since their ready entries were written.
    unflushed: Vec<Arc<DataStream>>,
    /// The stream of the last index, if it has too many indexes without packets.
    behind: Option<Arc<DataStream>>,
}

impl Producer {
    /// A producer at `address` that has not opened a session. `connections` is cancelled when
    /// another session takes the place of its session.
    #[must_use]
    pub fn new(registry: Arc<Registry>, address: IpAddr, connections: CancellationToken) -> Self {
        Self {
            registry,
            address,
            connections,
            session: None,
            unflushed: Vec::new(),
            behind: None,
        }
    }

    /// Whether a stream has so many indexes without packets that no more commands should be handled
    /// before some of these packets have arrived.
    #[must_use]
    pub fn awaits_packets(&mut self) -> bool {
        let has_come = |stream: &mut Arc<DataStream>| !stream.lock().lacks_packets();
        self.behind.take_if(has_come);
        self.behind.is_some()
    }

    /// Whether a stream of the session waits for space on the disk, so that its packets are not
    /// read.
    #[must_use]
    pub fn awaits_space(&self) -> bool {
        let open = self.session.as_ref();
        open.is_some_and(|open| open.session.totals().1.paused > 0)
    }

    /// Writes the index entries that have become ready. To be called after all received commands,
    /// and before their replies are sent.
    ///
    /// # Errors
    /// If the entries cannot be written. The connection cannot continue.
    pub fn write_ready_entries(&mut self) -> Result<(), Refusal> {
        let Some(open) = &mut self.session else {
            return Ok(());
        };
        self.unflushed
            .drain(..)
            .try_for_each(|stream| streams::write_ready_entries(&self.registry, open, stream))
    }

    /// Number of indexes of packets that have arrived. 0 without a session.
    #[must_use]
    pub fn indexes(&self) -> u64 {
        (self.session.as_ref()).map_or(0, |open| open.session.arrivals().indexes())
    }

    /// Records how many of the indexes one read of the connection has brought.
    pub fn record_batch(&self, indexes: u64) {
        if let Some(open) = &self.session {
            open.session.arrivals().record_batch(indexes);
        }
    }

    /// Id of the session. None until one is opened.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session.as_ref().map(|open| open.session.id())
    }

    /// Name of the session, for the log. None until one is opened.
    #[must_use]
    pub fn session_name(&self) -> Option<String> {
        self.session.as_ref().map(|open| open.session.to_string())
    }

    /// Tries again to write what there was no space for on the disk. Returns whether all of it is
    /// written, so that replies may be sent and more commands received.
    pub fn resume(&mut self) -> bool {
        match &mut self.session {
            Some(open) if !open.paused.is_empty() => streams::resume(&self.registry, open),
            _ => true,
        }
    }

    /// The round of syncs that must be complete before replies are sent. None: replies guarantee no
    /// more than that what they acknowledge is written, or everything is synced.
    #[must_use]
    pub fn request_sync(&self) -> Option<SyncTicket> {
        let syncer = self.registry.settings().pool.syncer()?;
        // Before a session is open, nothing is acknowledged.
        let has_promise = syncer.settings().durability == Durability::Packet;
        let is_needed = has_promise && self.session.is_some();
        is_needed.then(|| syncer.request_round()).flatten()
    }

    /// Checks that everything of the session could be synced. Otherwise the session fails.
    ///
    /// # Errors
    /// If a file could not be synced. The connection cannot continue.
    pub fn check_synced(&self) -> Result<(), Refusal> {
        let checked = self
            .session
            .as_ref()
            .map(|open| open.session.check_synced());
        let checked = checked.unwrap_or(Ok(()));
        checked.map_err(|error| Refusal::new(ReturnCode::UNKNOWN, error))
    }

    /// Ends the control connection. If it `failed`, no further packets of its streams are waited
    /// for.
    pub fn end(mut self, failed: bool, now: Instant) {
        if let Some(open) = self.session.take() {
            let (session, generation) = (&open.session, open.generation);
            self.registry.end_control(session, generation, failed, now);
        }
    }

    /// The open session. Refuses the command if there is none or another session has taken its
    /// place.
    fn open(&mut self) -> Result<&mut OpenSession, Refusal> {
        let open = self.session.as_mut().ok_or_else(session::no_session)?;
        if open.session.is_over() || !open.session.is_owned_by(open.generation) {
            return Err(session::superseded());
        }
        Ok(open)
    }
}

impl Relay for Producer {
    fn clear_allowed(&self) -> bool {
        self.registry.settings().allows_clear
    }

    fn create_session(
        &mut self,
        minor: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal> {
        let (open, created) = session::create_session(
            &self.registry,
            self.address,
            self.connections.clone(),
            minor,
            &session,
        )?;
        self.session = Some(open);
        Ok(created)
    }

    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal> {
        // Cloned, because `open` borrows the whole producer.
        let registry = Arc::clone(&self.registry);
        streams::add_stream(&registry, self.open()?, &stream)
    }

    fn streams_sent(&mut self) -> Result<(), Refusal> {
        let open = self.open()?;
        // A snapshot ends before a viewer could attach.
        if !open.is_snapshot {
            open.session.publish_streams();
        }
        Ok(())
    }

    fn begin_metadata(&mut self, metadata: SendMetadata, length: u64) -> Result<(), Refusal> {
        streams::begin_metadata(self.open()?, &metadata, length)
    }

    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal> {
        streams::metadata_text(self.open()?, text)
    }

    fn end_metadata(&mut self) -> Result<(), Refusal> {
        streams::end_metadata(self.open()?)
    }

    fn reset_metadata(&mut self, reset: ResetMetadata) -> Result<(), Refusal> {
        streams::reset_metadata(self.open()?, &reset)
    }

    fn add_index(&mut self, index: SendIndex) -> Result<(), Refusal> {
        let (stream, is_behind) = streams::add_index(self.open()?, &index)?;
        if is_behind {
            self.behind = Some(Arc::clone(&stream));
        }
        let is_last = |last: &Arc<DataStream>| Arc::ptr_eq(last, &stream);
        // A beacon adds no entry, but may find a ready one that there was no space for.
        let is_flushed = index.packet.is_beacon() && !stream.is_paused();
        if !is_flushed && !self.unflushed.last().is_some_and(is_last) {
            self.unflushed.push(stream);
        }
        Ok(())
    }

    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal> {
        let registry = Arc::clone(&self.registry);
        streams::close_stream(&registry, self.open()?, &close)
    }

    fn begin_data_pending(&mut self) {
        if let Some(open) = &self.session {
            open.session.begin_data_pending();
        }
    }

    fn data_pending(&mut self, ask: DataPending) -> Option<bool> {
        streams::is_pending(&self.registry, self.session.as_ref()?, &ask)
    }

    fn quiescent_control(&mut self, stream: StreamId) {
        if let Some(open) = &self.session {
            streams::quiescent(&self.registry, open, stream);
        }
    }

    fn end_data_pending(&mut self) -> bool {
        self.session
            .as_ref()
            .is_some_and(|open| open.session.has_unpolled_streams())
    }

    fn create_chunk(&mut self, chunk: CreateTraceChunk) -> Result<(), Refusal> {
        let registry = Arc::clone(&self.registry);
        Ok(chunks::create_chunk(&registry, self.open()?, &chunk)?)
    }

    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal> {
        Ok(chunks::rotate_streams(self.open()?, &rotation)?)
    }

    fn close_chunk(&mut self, close: CloseTraceChunk) -> Result<Text, Refusal> {
        let registry = Arc::clone(&self.registry);
        Ok(chunks::close_chunk(&registry, self.open()?, &close)?)
    }

    fn has_resume(&self) -> bool {
        !self.registry.settings().resume_timeout.is_zero()
    }

    fn make_resumable(&mut self, request: MakeResumable) -> Result<(), Refusal> {
        let registry = Arc::clone(&self.registry);
        Ok(resume::make_resumable(&registry, self.open()?, request)?)
    }

    fn resume_session(
        &mut self,
        _minor: Minor,
        request: ResumeSession,
    ) -> Result<SessionCreated, Refusal> {
        let connections = self.connections.clone();
        let (open, resumed) =
            resume::resume_session(&self.registry, self.address, connections, request)?;
        self.session = Some(open);
        Ok(resumed)
    }

    fn open_stream(&mut self, request: OpenStream) -> Result<(Option<StreamId>, u64), Refusal> {
        let registry = Arc::clone(&self.registry);
        resume::open_stream(&registry, self.open()?, &request)
    }

    fn position(&mut self, stream: StreamId) -> Option<(u64, u64)> {
        let registry = Arc::clone(&self.registry);
        resume::position(&registry, self.open().ok()?, stream)
    }

    fn clock(&self) -> RelayClock {
        let boot = host_clock::boot_id().and_then(Uuid::parse);
        RelayClock {
            code: ReturnCode::OK,
            time: host_clock::realtime(),
            monotonic: host_clock::monotonic(),
            boot: boot.map_or([0; 16], |id| id.0),
        }
    }

    fn skip_packets(&mut self, request: SkipPackets) -> Result<(), Refusal> {
        let registry = Arc::clone(&self.registry);
        Ok(resume::skip_packets(&registry, self.open()?, request)?)
    }

    fn chunk_exists(&mut self, ask: TraceChunkExists) -> bool {
        self.session
            .as_ref()
            .is_some_and(|open| open.session.recording().has_chunk(ask.chunk))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use relay_proto::data::{DataEvent, DataHeader};
    use relay_proto::session::{DaemonId, Recording, TraceFormat};
    use viewer_proto::relay::{Next, Position, Relay as _, Session as _, Stream as _};
    use viewer_proto::session::Seek;
    use wire::{
        Bits, Bytes, ChunkId, ClassId, EpochSeconds, Micros, PacketIndex, SeqNum, Timestamp,
    };

    use super::data_connection::DataConnection;
    use super::*;
    use crate::live::View;
    use crate::registry::RegistrySettings;
    use crate::registry::recording::RecordingKey;
    use crate::store::pool::Pool;
    use crate::store::sync::Syncer;

    const TIMEOUT: Duration = Duration::from_secs(600);
    const KEEP: MakeResumable = MakeResumable { timeout: 600 };

    /// A session that a producer may resume.
    pub(super) fn session(name: &str) -> CreateSession {
        CreateSession {
            name: name.into(),
            host: "host".into(),
            base_path: Text::default(),
            live_timer: Micros(0),
            snapshot: false,
            recording: Some(Recording {
                daemon: DaemonId([7; 16]),
                id: 1,
                created: EpochSeconds(0),
                name_has_date: false,
                current_chunk: None,
            }),
            trace_format: TraceFormat::Ctf1,
        }
    }

    pub(super) fn stream(channel: &str) -> AddStream {
        AddStream {
            channel: channel.into(),
            path: "ust/uid".into(),
            tracefile_size: Bytes(0),
            tracefile_count: 0,
            chunk: Some(ChunkId(0)),
        }
    }

    pub(super) fn chunk() -> CreateTraceChunk {
        CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(0),
            name: None,
        }
    }

    fn piece(stream: StreamId) -> SendMetadata {
        SendMetadata { stream, padding: 0 }
    }

    fn send_metadata(producer: &mut Producer, stream: StreamId) {
        producer.begin_metadata(piece(stream), 4).unwrap();
        producer.metadata_text(b"text").unwrap();
        producer.end_metadata().unwrap();
    }

    /// Sends the first packet of a stream, 8 bytes, and its index.
    fn send_packet(producer: &mut Producer, stream: StreamId) {
        let seq = SeqNum(0);
        let header = DataHeader {
            circuit: 0,
            stream,
            seq,
            data_size: 8,
            padding_size: 0,
        };
        let (bytes, last) = (&[0; 8], true);
        let mut data = DataConnection::new(Arc::clone(&producer.registry), producer.address);
        for event in [DataEvent::Begin(header), DataEvent::Payload { bytes, last }] {
            data.handle_event(event).unwrap();
        }
        let packet = PacketIndex {
            packet_size: Bits(64),
            content_size: Bits(64),
            begin: Timestamp(0),
            end: Timestamp(1),
            events_discarded: 0,
            class: ClassId(0),
            instance: None,
            packet_seq: None,
        };
        let seq = Some(seq);
        let index = SendIndex {
            stream,
            seq,
            packet,
        };
        producer.add_index(index).unwrap();
        data.write_ready_entries().unwrap();
        producer.write_ready_entries().unwrap();
    }

    /// The registry of a relay that keeps sessions for `resume_timeout`.
    pub(super) fn registry(
        output: &Path,
        resume_timeout: Duration,
        pool: Arc<Pool>,
    ) -> Arc<Registry> {
        Registry::new(RegistrySettings {
            resume_timeout,
            max_detached: 3,
            ..RegistrySettings::new(output.to_owned(), pool)
        })
    }

    /// A producer with a session of this name.
    pub(super) fn with_session(registry: &Arc<Registry>, name: &str) -> Producer {
        let (address, stop) = (IpAddr::V4(Ipv4Addr::LOCALHOST), CancellationToken::new());
        let mut producer = Producer::new(Arc::clone(registry), address, stop);
        producer.create_session(Minor(15), session(name)).unwrap();
        producer
    }

    fn key() -> RecordingKey {
        let recording = session("any").recording.unwrap();
        (recording.daemon, recording.id)
    }

    /// Runs `work` in a thread, and returns once the thread sleeps, as it does when it waits for a
    /// lock.
    fn spawn_until_it_sleeps<'scope, T: Send + 'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> thread::ScopedJoinHandle<'scope, T> {
        let (sender, receiver) = mpsc::channel();
        let handle = scope.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            work()
        });
        let thread = receiver.recv().unwrap().as_raw_nonzero();
        let sleeps = || {
            let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
            stat.rsplit(')')
                .next()
                .unwrap()
                .trim_start()
                .starts_with('S')
        };
        while !sleeps() {
            thread::yield_now();
        }
        handle
    }

    #[test]
    fn a_session_that_is_resumed_while_its_connection_ends_goes_on() {
        let output = tempfile::tempdir().unwrap();
        let registry = registry(output.path(), TIMEOUT, Pool::new(100));
        let mut producer = with_session(&registry, "resumed");
        producer.make_resumable(KEEP).unwrap();
        let session = Arc::clone(&producer.session.as_ref().unwrap().session);
        let (stop, address, now) = (CancellationToken::new(), producer.address, Instant::now());
        let resumed = thread::scope(|scope| {
            // Both wait for this lock, the resumption first: the old connection loses its session.
            let directory = session.lock_directory(0);
            let resume = || registry.resume(key(), stop, address, now);
            let resuming = spawn_until_it_sleeps(scope, resume);
            spawn_until_it_sleeps(scope, || producer.end(true, now));
            drop(directory);
            resuming.join().unwrap()
        });
        assert!(resumed.is_some());
        assert!(!session.is_over());
    }

    #[test]
    fn a_session_that_is_superseded_meanwhile_does_not_become_resumable() {
        let output = tempfile::tempdir().unwrap();
        let registry = registry(output.path(), TIMEOUT, Pool::new(100));
        let producer = with_session(&registry, "superseded");
        let open = producer.session.as_ref().unwrap();
        // After the command was admitted.
        open.session.supersede();
        assert!(resume::make_resumable(&registry, open, KEEP).is_err());
        assert!(!registry.has_resumable(key()));
    }

    #[test]
    fn a_viewer_of_the_last_data_sees_packets_that_arrive_before_it_knows_the_streams() {
        let output = tempfile::tempdir().unwrap();
        let registry = registry(output.path(), TIMEOUT, Pool::new(100));
        let mut producer = with_session(&registry, "watched");
        producer.create_chunk(chunk()).unwrap();
        let id = producer.add_stream(stream("chan_0")).unwrap();
        let metadata = producer.add_stream(stream("metadata")).unwrap();
        producer.streams_sent().unwrap();
        send_metadata(&mut producer, metadata);
        let session = Arc::clone(&producer.session.as_ref().unwrap().session);
        let view = View::new(Arc::clone(&registry), None, (producer.address, 0).into());
        let mut viewer = view.attach(session.id(), Seek::Last).unwrap();
        assert_eq!(session.viewers().attached(), 1);
        send_packet(&mut producer, id);
        let streams = viewer.new_streams();
        let packets = streams
            .into_iter()
            .find_map(|stream| match stream.position {
                Position::Packets(stream) => Some(stream),
                Position::Metadata(_) => None,
            });
        assert!(matches!(packets.unwrap().next(), Next::Packet { .. }));
    }

    #[test]
    fn a_session_whose_files_cannot_be_synced_fails_in_place_of_the_reply() {
        let (output, sync) = (tempfile::tempdir().unwrap(), Syncer::start_failing());
        let pool = Pool::with_syncer(100, Arc::clone(sync.syncer()));
        let registry = registry(output.path(), Duration::ZERO, pool);
        let connections = CancellationToken::new();
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut producer = Producer::new(registry, address, connections.clone());
        assert!(producer.request_sync().is_none(), "it has no session");
        producer
            .create_session(Minor(15), session("failing"))
            .unwrap();
        producer.create_chunk(chunk()).unwrap();
        assert!(producer.request_sync().is_none(), "nothing is written");
        producer.add_stream(stream("chan_0")).unwrap();
        let metadata = producer.add_stream(stream("metadata")).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(producer.request_sync().unwrap().wait());
        assert!(producer.check_synced().is_ok(), "directories are synced");
        send_metadata(&mut producer, metadata);
        runtime.block_on(producer.request_sync().unwrap().wait());
        let refusal = producer.check_synced().unwrap_err();
        let why = refusal.to_string();
        assert!(why.starts_with("cannot sync ust/uid/metadata"), "{why}");
        assert!(producer.session.as_ref().unwrap().session.has_failed());
        assert!(connections.is_cancelled());
        assert!(producer.begin_metadata(piece(metadata), 4).is_err());
    }
}
