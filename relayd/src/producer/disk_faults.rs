//! A resumable session on a disk that fails or stops at the n-th operation, for all n, or that
//! loses its power: the next relay restores the session from its log, the producer continues it,
//! and the files are those of a session that nothing has happened to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use relay_proto::{DataEvent, DataHeader, WholePacket};
use rustix::io::Errno;
use wire::{Bits, Bytes, ChunkId, EpochSeconds, Flagged, PacketIndex, SeqNum};

use super::data_connection::DataConnection;
use super::tests::session;
use super::*;
use crate::ingest::DiskFullPolicy;
use crate::ingest::reorder::ReorderWindow;
use crate::registry::RegistrySettings;
use crate::registry::archive_feed::ArchiveFeed;
use crate::store::disk::plan::{self, Fault};
use crate::store::disk::power_loss::{Unsynced, reconstruct};
use crate::store::disk_faults::Packets;
use crate::store::layout::Grouping;
use crate::store::pipe::Pipe;
use crate::store::pool::Pool;
use crate::store::repair::{repair, repair_at};
use crate::store::session_log::SessionLog;
use crate::store::sync::{SyncSettings, Syncer};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PACKETS: u64 = 7;
/// Channels, with the size in packets and the number of their tracefiles. 0: no limit.
const CHANNELS: [(&str, u64, u64); 4] = [
    ("plain", 0, 0),
    ("sized", 2, 0),
    ("ring", 2, 2),
    ("single", 2, 1),
];
/// Key of a stream that has no packets.
const IDLE_KEY: u64 = 99;
/// Connections of a producer until its session must be complete.
const MAX_CONNECTIONS: usize = 10;

/// A relay without sockets.
struct MemoryRelay {
    packets: Packets,
    registry: Arc<Registry>,
    syncer: Option<Arc<Syncer>>,
}

impl MemoryRelay {
    /// Starts on the output of one before that was killed, which it repairs.
    fn start(output: &Path, syncer: Option<Arc<Syncer>>) -> Self {
        let _ = repair(output, &SessionLog::trace_directories(output));
        Self::start_repaired(output, syncer)
    }

    /// Starts on the output of one before that lost its power.
    fn start_after_power_loss(output: &Path) -> Self {
        let _ = repair_at(output, &SessionLog::trace_directories(output), None);
        Self::start_repaired(output, None)
    }

    fn start_repaired(output: &Path, syncer: Option<Arc<Syncer>>) -> Self {
        let synced = |syncer: &Arc<Syncer>| Pool::with_syncer(100, Arc::clone(syncer));
        let pool = syncer.as_ref().map_or_else(|| Pool::new(100), synced);
        Self::start_with(output, pool, syncer, None)
    }

    fn start_with(
        output: &Path,
        pool: Arc<Pool>,
        syncer: Option<Arc<Syncer>>,
        archive: Option<Arc<ArchiveFeed>>,
    ) -> Self {
        let registry = Registry::new(RegistrySettings {
            output: output.to_owned(),
            grouping: Grouping::ByHost,
            allows_clear: true,
            window: ReorderWindow::default(),
            reorder_memory: 1 << 20,
            when_full: DiskFullPolicy::default(),
            resume_timeout: Duration::from_secs(600),
            max_detached: 100,
            time_zone: jiff::tz::TimeZone::UTC,
            archive,
            pool,
            metadata_file: None,
        });
        restore_sessions(&registry, Instant::now());
        registry.archive_unfinished();
        Self {
            packets: Packets::new(),
            registry,
            syncer,
        }
    }

    fn packet(&self, (channel, _, number): Sent) -> &(Vec<u8>, PacketIndex) {
        // There are packets of two streams, which several channels send.
        let packets = &self.packets.packets;
        &packets[channel % packets.len()][usize::try_from(number).unwrap()]
    }

    /// The packets that each channel has sent.
    fn recorded(&self) -> SentPackets {
        let channels = CHANNELS.iter().enumerate();
        let packets = channels.map(|(channel, (name, ..))| {
            let sent = (0..PACKETS).map(|number| self.packet((channel, StreamId(0), number)));
            (*name, sent.map(|(bytes, _)| bytes.clone()).collect())
        });
        packets.collect()
    }

    /// Syncs what was written, as a reply to a producer waits for it.
    fn sync(&self) {
        if let Some(syncer) = &self.syncer {
            syncer.run_round();
        }
    }
}

/// What each channel has sent.
pub(super) type SentPackets = Vec<(&'static str, Vec<Vec<u8>>)>;

/// A packet: its channel, the number of the stream, and its own.
type Sent = (usize, StreamId, u64);

fn header((_, stream, number): Sent, bytes: &[u8]) -> DataHeader {
    DataHeader {
        circuit: 0,
        stream,
        seq: SeqNum(number),
        data_size: u32::try_from(bytes.len()).unwrap(),
        padding_size: 0,
    }
}

/// The memory of a producer of its session when it loses its connections.
#[derive(Debug, Default)]
struct Client {
    /// The packets of each channel that the relay has acknowledged, with the number of changes of
    /// the disk so far.
    acknowledged: Vec<(usize, [u64; CHANNELS.len()])>,
    /// Changes of the disk before all packets and metadata were acknowledged as durable. None: they
    /// were not.
    durable: Option<usize>,
    /// Time at which the session was created, in seconds: a later time if its directory has what a
    /// crash left of an earlier attempt.
    created: u64,
    resumed: usize,
    has_ended: bool,
}

/// The connections of a client.
struct Connections<'a> {
    relay: &'a MemoryRelay,
    control: Producer,
    data: DataConnection,
}

fn opened(key: u64, channel: &str, size: u64, count: u64) -> OpenStream {
    let stream = AddStream {
        channel: channel.into(),
        path: "ust/uid".into(),
        tracefile_size: Bytes(size),
        tracefile_count: count,
        chunk: Some(ChunkId(0)),
    };
    let first = SeqNum(0);
    OpenStream { key, first, stream }
}

impl Client {
    /// Connects again and again until the session is complete.
    fn send(&mut self, relay: &MemoryRelay) {
        let is_complete = (0..MAX_CONNECTIONS).any(|_| self.try_send(relay) || plan::is_dead());
        assert!(
            is_complete || plan::is_dead(),
            "the session is not complete"
        );
    }

    /// Connects, and sends what the relay does not have. Returns whether the session is complete.
    fn try_send(&mut self, relay: &MemoryRelay) -> bool {
        let registry = Arc::clone(&relay.registry);
        let mut connections = Connections {
            relay,
            control: Producer::new(Arc::clone(&registry), ADDRESS, CancellationToken::new()),
            data: DataConnection::new(registry, ADDRESS),
        };
        let sent = self.send_on(&mut connections);
        connections.data.end();
        connections.control.end(sent.is_err(), Instant::now());
        self.has_ended = sent.is_ok();
        self.has_ended
    }

    fn send_on(&mut self, to: &mut Connections<'_>) -> Result<(), Refusal> {
        let mut session = session("faults");
        let recording = session.recording.as_mut().unwrap();
        recording.created = EpochSeconds(self.created);
        let resume = ResumeSession {
            daemon: recording.daemon,
            id: recording.id,
        };
        if to.control.resume_session(Minor(15), resume).is_ok() {
            self.resumed += 1;
        } else if self.durable.is_some() {
            // The relay has completed it.
            return Ok(());
        } else {
            to.control.create_session(Minor(15), session)?;
            let made = to.control.make_resumable(MakeResumable { timeout: 600 });
            made.inspect_err(|refusal| {
                if refusal.code == ReturnCode::EXISTS {
                    self.created += 1;
                }
            })?;
        }
        to.control.create_chunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(0),
            name: None,
        })?;
        let metadata = to.control.open_stream(opened(0, "metadata", 0, 0))?;
        let mut streams = Vec::new();
        for (key, (name, size, count)) in CHANNELS.into_iter().enumerate() {
            let size = size * to.packet_bytes();
            streams.push(
                to.control
                    .open_stream(opened(key as u64, name, size, count))?,
            );
        }
        let idle = to.control.open_stream(opened(IDLE_KEY, "idle", 0, 0))?;
        to.control.streams_sent()?;
        to.send_metadata(metadata.0, metadata.1)?;
        if let Some(stream) = idle.0 {
            to.send_beacon(stream)?;
        }
        let least = self
            .acknowledged
            .last()
            .map_or([0; CHANNELS.len()], |last| last.1);
        for ((_, next), least) in streams.iter().zip(least) {
            assert!(*next >= least, "{next} of {streams:?} was acknowledged");
        }
        let mut together = Vec::new();
        for number in 0..PACKETS {
            let sent: Vec<_> = streams
                .iter()
                .enumerate()
                .filter_map(|(channel, (stream, next))| {
                    Some((channel, stream.filter(|_| *next <= number)?, number))
                })
                .collect();
            // The first two packets of all streams are received together.
            match number {
                0 => together = sent,
                1 => to.send_together(together.drain(..).chain(sent).collect())?,
                _ => sent
                    .into_iter()
                    .try_for_each(|packet| to.send_packet(packet))?,
            }
            if number % 2 == 1 {
                self.ask(to, &streams);
            }
        }
        self.ask(to, &streams);
        self.durable.get_or_insert(plan::journal_len());
        to.close(metadata.0, &streams, idle.0)
    }

    /// Asks for the positions of the streams, and waits until what they say is durable.
    fn ask(&mut self, to: &mut Connections<'_>, streams: &[(Option<StreamId>, u64)]) {
        let mut positions = [PACKETS; CHANNELS.len()];
        for (position, (stream, _)) in positions.iter_mut().zip(streams) {
            let asked = stream.and_then(|stream| to.control.position(stream));
            *position = asked.map_or(*position, |(_, durable)| durable);
        }
        to.relay.sync();
        if !plan::is_dead() {
            self.acknowledged.push((plan::journal_len(), positions));
        }
    }
}

impl Connections<'_> {
    fn packet_bytes(&self) -> u64 {
        self.relay.packets.packets[0][0].0.len() as u64
    }

    fn send_metadata(&mut self, stream: Option<StreamId>, next: u64) -> Result<(), Refusal> {
        let text = &self.relay.packets.metadata;
        let Some(stream) = stream.filter(|_| next == 0) else {
            assert!(next == 0 || next == text.len() as u64, "a part of a piece");
            return Ok(());
        };
        let metadata = SendMetadata { stream, padding: 0 };
        self.control.begin_metadata(metadata, text.len() as u64)?;
        let (first, rest) = text.split_at(60);
        self.control.metadata_text(first)?;
        self.control.metadata_text(rest)?;
        self.control.end_metadata()?;
        self.finish()
    }

    /// Sends packets that are received together, then their indexes.
    fn send_together(&mut self, sent: Vec<Sent>) -> Result<(), Refusal> {
        let relay = self.relay;
        let packets = sent.iter().map(|sent| {
            let (payload, _) = relay.packet(*sent);
            let header = header(*sent, payload);
            WholePacket { header, payload }
        });
        let handled = self.data.handle_packets(packets);
        let held = handled.map_err(|error| Refusal::new(ReturnCode::UNKNOWN, error))?;
        // There is only one fault, and what has failed is tried again.
        assert!(held.is_empty());
        sent.into_iter().try_for_each(|sent| self.send_index(sent))
    }

    fn send_packet(&mut self, sent: Sent) -> Result<(), Refusal> {
        let (bytes, _) = self.relay.packet(sent);
        let (first, rest) = bytes.split_at(100);
        let header = header(sent, bytes);
        let payload = |bytes, last| DataEvent::Payload { bytes, last };
        self.handle(DataEvent::Begin(header))?;
        // As if the packets with odd numbers were large.
        let left = match header.seq.0 % 2 {
            0 => first.to_vec(),
            _ => self.splice(first),
        };
        if !left.is_empty() {
            self.handle(payload(&left, false))?;
        }
        self.handle(payload(rest, true))?;
        self.send_index(sent)
    }

    fn send_index(&mut self, sent: Sent) -> Result<(), Refusal> {
        let (_, packet) = self.relay.packet(sent);
        let (_, stream, number) = sent;
        let (seq, packet) = (Some(SeqNum(number)), *packet);
        self.control.add_index(SendIndex {
            stream,
            seq,
            packet,
        })?;
        self.finish()
    }

    /// Sends a beacon of a stream without packets.
    fn send_beacon(&mut self, stream: StreamId) -> Result<(), Refusal> {
        self.control.add_index(SendIndex {
            stream,
            seq: None,
            packet: PacketIndex {
                packet_size: Bits(0),
                content_size: Bits(0),
                ..self.relay.packets.packets[0][0].1
            },
        })?;
        self.control.write_ready_entries()?;
        self.relay
            .registry
            .sessions()
            .iter()
            .for_each(|session| session.do_periodic_work());
        self.finish()
    }

    fn handle(&mut self, event: DataEvent<'_>) -> Result<(), Refusal> {
        let handled = self.data.handle_event(event);
        handled.map_err(|error| Refusal::new(ReturnCode::UNKNOWN, error))
    }

    /// Moves bytes of the packet to its tracefile through a pipe. Returns those that cannot be
    /// moved.
    fn splice(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut peer, source) = UnixStream::pair().unwrap();
        peer.write_all(bytes).unwrap();
        let mut pipe = Pipe::new(bytes.len()).unwrap();
        assert_eq!(pipe.fill(&source, bytes.len()).unwrap(), bytes.len());
        self.data.splice_payload(&mut pipe, bytes.len());
        let mut left = vec![0; pipe.len()];
        pipe.read(&mut left).unwrap();
        left
    }

    /// Writes what is ready, and what there was no space for.
    fn finish(&mut self) -> Result<(), Refusal> {
        let failed = |error| Refusal::new(ReturnCode::UNKNOWN, error);
        self.data.write_ready_entries().map_err(failed)?;
        self.control.write_ready_entries()?;
        // There is only one fault, so that an attempt succeeds.
        while self.data.is_paused() && !plan::is_dead() {
            self.data.resume().map_err(failed)?;
        }
        while !self.control.resume() && !plan::is_dead() {}
        Ok(())
    }

    fn close(
        &mut self,
        metadata: Option<StreamId>,
        streams: &[(Option<StreamId>, u64)],
        idle: Option<StreamId>,
    ) -> Result<(), Refusal> {
        self.control.close_chunk(CloseTraceChunk {
            chunk: ChunkId(0),
            closed: EpochSeconds(1),
            command: Flagged(None),
        })?;
        let streams = streams
            .iter()
            .map(|(stream, _)| (*stream, Some(SeqNum(PACKETS - 1))));
        for (stream, last) in streams.chain([(idle, None), (metadata, None)]) {
            if let Some(stream) = stream {
                self.control.close_stream(CloseStream { stream, last })?;
                self.finish()?;
            }
        }
        self.relay.sync();
        self.control.check_synced()
    }
}

/// Records a session that nothing happens to, whose streams are fed to an archiver. Returns the
/// packets of its channels.
pub(super) fn record(output: &Path, feed: &Arc<ArchiveFeed>) -> SentPackets {
    let relay = MemoryRelay::start_with(output, Pool::new(100), None, Some(Arc::clone(feed)));
    Client::default().send(&relay);
    relay.recorded()
}

/// Records a session as [`record`] does with a relay that is killed at an operation, and the next
/// one, which has the streams archived. None: there are fewer operations.
pub(super) fn record_killed(
    output: &Path,
    at: usize,
    feed: &Arc<ArchiveFeed>,
) -> Option<SentPackets> {
    let start = |feed| {
        let _ = repair(output, &SessionLog::trace_directories(output));
        MemoryRelay::start_with(output, Pool::new(100), None, Some(feed))
    };
    let mut client = Client::default();
    let ((), plan) = plan::run(Some((at, Fault::Stop)), || {
        // The feed, which holds the session and so the lock of its log, is dropped with the relay.
        client.send(&start(Arc::new(ArchiveFeed::new(true).unwrap())));
    });
    let relay = start(Arc::clone(feed));
    client.send(&relay);
    (at <= plan.operations).then(|| relay.recorded())
}

/// The files below a directory that are not those of the relay, with their content.
fn tree(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap();
                files.insert(name.to_str().unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// A session that nothing happens to, and the number of operations that it takes.
fn undisturbed() -> (BTreeMap<String, Vec<u8>>, usize) {
    let output = tempfile::tempdir().unwrap();
    let ((), record) = plan::run(None, || {
        Client::default().send(&MemoryRelay::start(output.path(), None));
    });
    let files = tree(output.path());
    let is_log = |name: &String| name.starts_with(".relayd");
    assert!(!files.keys().any(is_log) && files.len() > 10, "{files:?}");
    (files, record.operations)
}

/// Directory of the session that was created at this second, with a separator after it.
fn session_directory(created: u64) -> String {
    format!("host/faults-19700101-{created:06}/")
}

/// Fails unless the session that was created at a second has the files of one that nothing has
/// happened to, and no other files are there but those of earlier attempts.
fn assert_same(output: &Path, want: &BTreeMap<String, Vec<u8>>, created: u64, case: &str) {
    let mut got = tree(output);
    // What the repair has renamed, and a log without a name that the disk had kept.
    got.retain(|name, _| !name.starts_with(".relayd") && !name.contains("/."));
    for earlier in 0..created {
        got.retain(|name, _| !name.starts_with(&session_directory(earlier)));
    }
    let moved = |(name, bytes): (String, _)| {
        let name = name.replace(&session_directory(created), &session_directory(0));
        (name, bytes)
    };
    let got: BTreeMap<_, _> = got.into_iter().map(moved).collect();
    let names: BTreeSet<_> = got.keys().chain(want.keys()).collect();
    for name in names {
        let (got, want) = (got.get(name), want.get(name));
        let lens = [got, want].map(|file| file.map(Vec::len));
        let (got, want) = (
            got.map_or(&[][..], |file| file),
            want.map_or(&[][..], |file| file),
        );
        let first = got.iter().zip(want).position(|(a, b)| a != b);
        assert!(
            got == want,
            "{case}: {name}: lengths {lens:?}, first difference at {first:?}"
        );
    }
}

#[test]
fn session_whose_relay_is_killed_at_any_operation_is_continued_without_loss() {
    let (want, operations) = undisturbed();
    assert!(operations > 100, "{operations}");
    let mut resumed = 0;
    for at in 1..=operations {
        let output = tempfile::tempdir().unwrap();
        let mut client = Client::default();
        plan::run(Some((at, Fault::Stop)), || {
            client.send(&MemoryRelay::start(output.path(), None));
        });
        client.send(&MemoryRelay::start(output.path(), None));
        resumed += client.resumed;
        let case = format!("killed at operation {at}");
        assert_same(output.path(), &want, 0, &case);
    }
    assert!(resumed > operations / 2, "{resumed} of {operations}");
}

#[test]
fn session_with_a_single_failed_operation_is_continued_without_loss() {
    let (want, operations) = undisturbed();
    for error in [Errno::NOSPC, Errno::IO] {
        for at in 1..=operations {
            let output = tempfile::tempdir().unwrap();
            let mut client = Client::default();
            plan::run(Some((at, Fault::Error(error))), || {
                client.send(&MemoryRelay::start(output.path(), None));
            });
            // A beacon that could not be removed is removed by the next start.
            MemoryRelay::start(output.path(), None);
            let case = format!("{error} at operation {at}");
            assert_same(output.path(), &want, 0, &case);
        }
    }
}

#[test]
fn session_whose_relay_loses_its_power_after_any_operation_is_continued_from_what_is_durable() {
    let (want, _) = undisturbed();
    let output = tempfile::tempdir().unwrap();
    let mut whole = Client::default();
    let ((), record) = plan::run(None, || {
        let syncer = Syncer::without_thread(SyncSettings {
            durability: Durability::Packet,
            interval: Duration::from_secs(3600),
        });
        whole.send(&MemoryRelay::start(output.path(), Some(syncer)));
    });
    assert_same(output.path(), &want, 0, "no fault");
    for at in 0..=record.journal.len() {
        let seed = Unsynced::Partial(97 * at as u64);
        for unsynced in [Unsynced::Journaled, seed] {
            let left = tempfile::tempdir().unwrap();
            reconstruct(output.path(), &record.journal[..at], unsynced, left.path());
            let before = whole.acknowledged.iter().rev();
            let mut client = Client {
                acknowledged: before
                    .filter(|(then, _)| *then <= at)
                    .take(1)
                    .copied()
                    .collect(),
                durable: whole.durable.filter(|then| *then <= at),
                ..Client::default()
            };
            let case = format!("power loss after change {at}, unsynced: {unsynced:?}");
            plan::run(None, || {
                client.send(&MemoryRelay::start_after_power_loss(left.path()))
            });
            assert_same(left.path(), &want, client.created, &case);
        }
    }
}
