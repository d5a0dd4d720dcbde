//! A resumable session on a disk that fails or stops at the n-th operation, for all n, or that
//! loses its power: the next relay restores the session from its log, the producer continues it,
//! and the files are those of a session that nothing has happened to.

pub(super) mod memory_relay;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use wire::{ChunkId, EpochSeconds, SeqNum};

use super::tests::session;
use super::*;
use crate::registry::archive_feed::ArchiveFeed;
use crate::store::disk::plan::{self, Fault};
use crate::store::disk::power_loss::{Unsynced, reconstruct};
use crate::store::pool::Pool;
use crate::store::repair::repair;
use crate::store::session_log::SessionLog;
use crate::store::sync::{SyncSettings, Syncer};
use memory_relay::{Connections, MemoryRelay, opened};

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
        let mut connections = Connections::new(relay, CancellationToken::new());
        let sent = self.send_on(&mut connections);
        connections.end(sent.is_err(), Instant::now());
        self.has_ended = sent.is_ok();
        self.has_ended
    }

    fn send_on(&mut self, to: &mut Connections<&MemoryRelay>) -> Result<(), Refusal> {
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
        let last = Some(SeqNum(PACKETS - 1));
        let streams = streams.iter().map(|(stream, _)| (*stream, last));
        to.close_chunk()?;
        to.close_streams(streams.chain([(idle.0, None), (metadata.0, None)]))
    }

    /// Asks for the positions of the streams, and waits until what they say is durable.
    fn ask(&mut self, to: &mut Connections<&MemoryRelay>, streams: &[(Option<StreamId>, u64)]) {
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

/// What each channel has sent.
pub(super) type SentPackets = Vec<(&'static str, Vec<Vec<u8>>)>;

/// The packets that each channel has sent.
fn recorded(relay: &MemoryRelay) -> SentPackets {
    let channels = CHANNELS.iter().enumerate();
    let packets = channels.map(|(channel, (name, ..))| {
        let sent = (0..PACKETS).map(|number| relay.packet((channel, StreamId(0), number)));
        (*name, sent.map(|(bytes, _)| bytes.clone()).collect())
    });
    packets.collect()
}

/// Records a session that nothing happens to, whose streams are fed to an archiver. Returns the
/// packets of its channels.
pub(super) fn record(output: &Path, feed: &Arc<ArchiveFeed>) -> SentPackets {
    let relay = MemoryRelay::start_with(output, Pool::new(100), None, Some(Arc::clone(feed)));
    Client::default().send(&relay);
    recorded(&relay)
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
    (at <= plan.operations).then(|| recorded(&relay))
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
