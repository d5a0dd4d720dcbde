//! A scripted recording on a disk that fails or stops at the n-th operation, for all n, and what
//! the repair makes of what is left: every packet that was acknowledged before is there once and in
//! order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ctf::decode::StreamDecoder;
use ctf::directory::StreamReader;
use ctf::index::{IndexFormat, Tail};
use ctf::model::Uuid;
use ctf::write::{
    Appended, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, metadata_packets,
};
use daemon::durability::Durability;
use jiff::tz::TimeZone;
use relay_proto::chunk::CloseCommand;
use rustix::io::Errno;
use wire::{Bytes, ChunkId, EpochSeconds, FileName, PacketIndex, Text, Timestamp, TracePath};

use super::StoreError;
use super::chunk::{Chunk, ChunkPlace, Holding};
use super::disk;
use super::disk::plan::{self, Fault};
use super::disk::power_loss::{Unsynced, reconstruct};
use super::metadata::MetadataFile;
use super::pool::Pool;
use super::repair::{Repaired, repair, repair_at};
use super::stream_files::{StreamFiles, StreamLayout, TracefileLimits};
use super::sync::{SyncSettings, Syncer};

const TRACE: &str = "ust/uid/0/64-bit";
const UUID: Uuid = Uuid(*b"0123456789abcdef");
const EVENTS: u64 = 3;
/// Cycles between the beginnings of two packets. The times of a packet's events begin at its number
/// times this.
const PACKET_TIME: u64 = 1000;

/// A packet of a stream that was acknowledged.
#[derive(Debug, Clone)]
struct Acknowledged {
    stream: u64,
    number: u64,
    /// Changes in the journal before the packet was synced. None: it was not.
    synced: Option<usize>,
    /// Changes before its tracefile began to be replaced. None: it was not.
    replaced: Option<usize>,
}

/// The packets of some streams, made beforehand.
pub(crate) struct Packets {
    pub(crate) metadata: Vec<u8>,
    /// Bytes and index of each packet, by stream and in order.
    pub(crate) packets: Vec<Vec<(Vec<u8>, PacketIndex)>>,
}

impl Packets {
    pub(crate) fn new() -> Self {
        Self::of_streams(2, 12)
    }

    /// The packets of so many streams, each with so many packets.
    pub(crate) fn of_streams(streams: u32, packets: u64) -> Self {
        let mut text = MetadataText::new(&TraceDeclaration::new(UUID, "disk-faults"));
        let class = text.stream(0).unwrap();
        let event = text.event(&class, &EventDeclaration::new(1, "event"));
        let event = event.unwrap();
        let streams = (0..streams).map(|id| Self::of(&class, &event, id, packets));
        Self {
            metadata: metadata_packets(UUID, text.as_str()),
            packets: streams.collect(),
        }
    }

    fn of(
        class: &DeclaredStreamClass,
        event: &DeclaredEventClass,
        stream: u32,
        packets: u64,
    ) -> Vec<(Vec<u8>, PacketIndex)> {
        let mut writer =
            StreamWriter::new(class, u64::from(stream), stream, PacketSize::new(256, 4096));
        let packet = |number: u64| {
            let begin = PACKET_TIME * number;
            writer.open(Timestamp(begin)).unwrap();
            for time in begin..begin + EVENTS {
                let event_record = EventRecord {
                    time: Timestamp(time),
                    process: 1,
                    thread: 1,
                    values: &[],
                };
                assert_eq!(writer.append(event, &event_record), Ok(Appended::Written));
            }
            let packet = writer.close(Timestamp(begin + PACKET_TIME - 1)).unwrap();
            (packet.bytes.to_vec(), packet.index)
        };
        (0..packets).map(packet).collect()
    }
}

/// A recording on the disk of the plan.
struct Recording<'a> {
    root: &'a Path,
    packets: &'a Packets,
    /// Syncs the files, as with `--durability=packet`. None: all of them are synced now and then.
    syncer: Option<Arc<Syncer>>,
    /// Operations are tried a second time, as a relay does when the disk is full.
    tries: usize,
    acknowledged: Vec<Acknowledged>,
    /// Numbers of the packets in each tracefile of the limited stream, by number of the file.
    files: BTreeMap<u64, BTreeSet<u64>>,
}

/// Calls an operation until it succeeds, at most as often as the recording tries.
macro_rules! retry {
    ($recording:expr, $operation:expr) => {{
        let mut left = $recording.tries;
        loop {
            left -= 1;
            match $operation {
                Err(_) if left > 0 => {}
                done => break done,
            }
        }
    }};
}

fn name(text: &str) -> FileName {
    FileName::parse(&Text::from(text)).unwrap()
}

fn directory() -> TracePath {
    TracePath::parse(&Text::from(TRACE)).unwrap()
}

impl Recording<'_> {
    fn session(&self) -> PathBuf {
        self.root.join("host/session")
    }

    fn chunk(&self, id: u64, place: ChunkPlace) -> Result<Holding, ()> {
        let (began, utc) = (EpochSeconds(100 * id), TimeZone::UTC);
        Chunk::create(ChunkId(id), began, &self.session(), place, &utc).map_err(drop)
    }

    fn stream(
        &self,
        pool: &Arc<Pool>,
        id: usize,
        chunk: &Holding,
    ) -> Result<StreamFiles, StoreError> {
        let size = self.packets.packets[id][0].0.len() as u64;
        let limits = (id == 1).then_some(TracefileLimits {
            size: Bytes(2 * size + 1),
            count: Some(2),
        });
        let layout = StreamLayout {
            directory: directory(),
            name: name(["plain", "limited"][id]),
            limits,
            index_format: Some(IndexFormat::V1_1),
        };
        StreamFiles::create(layout, Arc::clone(pool), chunk.clone(), Arc::default())
    }

    fn send(
        &mut self,
        files: &mut StreamFiles,
        id: usize,
        numbers: Range<u64>,
    ) -> Result<(), StoreError> {
        for number in numbers {
            let (bytes, index) = &self.packets.packets[id][usize::try_from(number).unwrap()];
            let len = u32::try_from(bytes.len()).unwrap();
            if let Some(next) = files.next_number(len) {
                let replaced = self.files.remove(&next).unwrap_or_default();
                self.replace(id, &replaced);
                retry!(self, files.begin_next(next))?;
            }
            let (first, rest) = bytes.split_at(100);
            retry!(self, files.append_payload(first))?;
            let place = retry!(self, files.finish_packet(rest, 0))?;
            let entries = || std::iter::once((place, *index));
            retry!(self, files.write_entries(&place, entries()))?;
            if id == 1 {
                // As in `StreamFiles`: two packets fill a file.
                self.files
                    .entry((number / 2) % 2)
                    .or_default()
                    .insert(number);
            }
            self.acknowledged.push(Acknowledged {
                stream: id as u64,
                number,
                synced: None,
                replaced: None,
            });
        }
        Ok(())
    }

    fn replace(&mut self, id: usize, numbers: &BTreeSet<u64>) {
        for packet in &mut self.acknowledged {
            if packet.stream == id as u64 && numbers.contains(&packet.number) {
                packet.replaced = Some(plan::journal_len());
            }
        }
    }

    /// Syncs all files, then all directories.
    fn sync(&mut self) -> Result<(), ()> {
        if let Some(syncer) = &self.syncer {
            syncer.run_round();
            // A round continues after a failure: from then on nothing is safe.
            if !plan::is_dead() {
                self.mark_synced();
            }
            return Ok(());
        }
        let mut directories = vec![self.root.to_owned()];
        let mut at = 0;
        while let Some(directory) = directories.get(at).cloned() {
            at += 1;
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    disk::sync_file(&File::open(path).unwrap()).map_err(drop)?;
                }
            }
        }
        for directory in directories {
            disk::sync_directory(File::open(directory).unwrap()).map_err(drop)?;
        }
        self.mark_synced();
        Ok(())
    }

    fn mark_synced(&mut self) {
        for packet in &mut self.acknowledged {
            packet.synced.get_or_insert(plan::journal_len());
        }
    }

    fn metadata(&self, file: &mut MetadataFile) -> Result<(), ()> {
        let (first, rest) = self.packets.metadata.split_at(60);
        retry!(self, file.append_text(first)).map_err(drop)?;
        retry!(self, file.append_text(rest)).map_err(drop)?;
        retry!(self, file.finish_piece(0)).map_err(drop)?;
        Ok(())
    }

    /// Records, rotates, records again and ends. Stops at an operation that cannot be retried, as
    /// at a kill.
    fn record(&mut self) -> Result<(), ()> {
        let pool = match &self.syncer {
            Some(syncer) => Pool::with_syncer(99, Arc::clone(syncer)),
            None => Pool::new(99),
        };
        let chunk = self.chunk(0, ChunkPlace::Session)?;
        let created = MetadataFile::create(
            Arc::clone(&pool),
            directory(),
            name("metadata"),
            chunk.clone(),
            Arc::default(),
        );
        let mut metadata = created.map_err(drop)?;
        self.metadata(&mut metadata)?;
        let mut plain = self.stream(&pool, 0, &chunk).map_err(drop)?;
        let mut limited = self.stream(&pool, 1, &chunk).map_err(drop)?;
        // Before the first packet, so that the index file has a beacon and no entry for a while.
        plain.write_beacon(Timestamp(1)).map_err(drop)?;
        self.send(&mut plain, 0, 0..2).map_err(drop)?;
        self.sync()?;
        self.send(&mut limited, 1, 0..7).map_err(drop)?;
        self.send(&mut plain, 0, 2..4).map_err(drop)?;
        // So that the next packet has to reopen the files by name.
        plain.close_files();
        self.sync()?;
        self.send(&mut plain, 0, 4..5).map_err(drop)?;
        // The rotation.
        chunk.move_to(ChunkPlace::Old).map_err(drop)?;
        let next = self.chunk(1, ChunkPlace::New)?;
        metadata.enter_chunk(next.clone()).map_err(drop)?;
        self.metadata(&mut metadata)?;
        plain.enter_chunk(next.clone()).map_err(drop)?;
        self.send(&mut plain, 0, 5..6).map_err(drop)?;
        next.move_to(ChunkPlace::Dated).map_err(drop)?;
        let archive = Some(CloseCommand::MoveToCompleted);
        chunk
            .end(EpochSeconds(100), archive, &TimeZone::UTC)
            .map_err(drop)?;
        limited.enter_chunk(next.clone()).map_err(drop)?;
        self.files.clear();
        // The last writer has left the chunk: its markers are removed, once its files are synced.
        if self.syncer.is_none() {
            self.sync()?;
        }
        drop(chunk);
        // Begins with an even number: two packets fill a file again, as `send` assumes.
        self.send(&mut limited, 1, 8..11).map_err(drop)?;
        self.sync()?;
        plain.write_beacon(Timestamp(6500)).map_err(drop)?;
        self.send(&mut plain, 0, 6..9).map_err(drop)?;
        // Half a packet, which never arrives completely.
        let half = &self.packets.packets[0][9].0[..150];
        retry!(self, plain.append_payload(half)).map_err(drop)?;
        plain.drop_packet();
        plain.leave_chunk();
        limited.leave_chunk();
        if self.syncer.is_some() {
            // Their markers are removed by the round that follows.
            drop((next, plain, limited, metadata));
        }
        self.sync()
    }
}

/// The outcome of a run of the script.
struct Run {
    root: tempfile::TempDir,
    acknowledged: Vec<Acknowledged>,
    record: plan::Record,
    has_ended: bool,
}

fn run(packets: &Packets, fault: Option<(usize, Fault)>) -> Run {
    run_with(packets, fault, None)
}

/// Runs the script with a syncer.
fn run_synced(packets: &Packets) -> Run {
    let settings = SyncSettings {
        durability: Durability::Packet,
        // Rounds run only where the script asks for one.
        interval: Duration::from_secs(3600),
    };
    run_with(packets, None, Some(Syncer::without_thread(settings)))
}

fn run_with(packets: &Packets, fault: Option<(usize, Fault)>, syncer: Option<Arc<Syncer>>) -> Run {
    let root = tempfile::tempdir().unwrap();
    let mut recording = Recording {
        root: root.path(),
        packets,
        syncer,
        tries: 2,
        acknowledged: Vec::new(),
        files: BTreeMap::new(),
    };
    let (ended, record) = plan::run(fault, || recording.record());
    let acknowledged = recording.acknowledged;
    Run {
        root,
        acknowledged,
        record,
        has_ended: ended.is_ok(),
    }
}

/// The numbers of the packets of each stream, in order, each of them whole.
fn read(root: &Path, case: &str) -> BTreeMap<u64, Vec<u64>> {
    let mut seen = BTreeMap::<u64, Vec<u64>>::new();
    let metadata = ctf::directory::traces_below(root).unwrap_or_default();
    if metadata.is_empty() {
        return seen;
    }
    for trace in ctf::directory::open(&[root]).unwrap().traces {
        let declared = trace.metadata.trace();
        for stream in &trace.streams {
            let mut packets = StreamReader::new(stream);
            let mut decoder = StreamDecoder::new();
            let mut packet = Vec::new();
            while packets.next(&mut packet).expect(case) {
                let head = decoder.begin_packet(declared, &packet).expect(case);
                let mut events = 0;
                while decoder.advance(declared, &packet).expect(case) {
                    events += 1;
                }
                assert_eq!(events, EVENTS);
                let numbers = seen.entry(head.stream_id.unwrap()).or_default();
                numbers.push(head.begin.unwrap() / PACKET_TIME);
            }
        }
    }
    seen
}

/// Checks that the tree has these packets, and nothing that a closed tree has not.
fn assert_repaired(root: &Path, required: impl Fn(&Acknowledged) -> bool, run: &Run, case: &str) {
    let seen = read(root, case);
    for (stream, numbers) in &seen {
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "{case}: {stream}: {numbers:?}"
        );
    }
    for packet in run.acknowledged.iter().filter(|packet| required(packet)) {
        let numbers = seen.get(&packet.stream);
        let is_there = numbers.is_some_and(|numbers| numbers.contains(&packet.number));
        assert!(is_there, "{case}: {packet:?} of {seen:?}");
    }
    assert_closed(root, case);
    assert_eq!(repair_with_plan(root), Repaired::default(), "{case}");
}

/// Checks that nothing in the tree shows that it was open, and that each index file covers its
/// tracefile.
fn assert_closed(directory: &Path, case: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_unfinished = name.starts_with(".relayd") || name.starts_with(".tmp_");
        let is_empty = || path.is_dir() && fs::read_dir(&path).unwrap().next().is_none();
        assert!(!is_unfinished || is_empty(), "{case}: {}", path.display());
        if path.is_dir() {
            assert_closed(&path, case);
        } else if let Some(data) = name.strip_suffix(".idx") {
            let index = ctf::index::read(&fs::read(&path).unwrap()).unwrap();
            assert_eq!(index.tail, Tail::Clean, "{case}: {}", path.display());
            let data = path.parent().unwrap().with_file_name(data);
            let len = Bytes(data.metadata().unwrap().len());
            assert!(index.covers_file(len), "{case}: {}", path.display());
        }
    }
}

/// Repairs without a fault. With a plan, nothing is really synced, which takes long.
fn repair_with_plan(root: &Path) -> Repaired {
    plan::run(None, || repair(root, &BTreeSet::new())).0
}

/// Repairs without a fault, as after a power loss: no boot id says that there was none.
fn repair_after_power_loss(root: &Path) {
    let _ = plan::run(None, || repair_at(root, &BTreeSet::new(), None));
}

/// Repairs, and dies at each operation of the repair in turn. Returns how many there were.
fn repair_with_kills(root: &Path) -> usize {
    let none = BTreeSet::new();
    for kills in 1.. {
        let ((), record) = plan::run(Some((kills, Fault::Stop)), || {
            let _ = repair(root, &none);
        });
        if record.operations < kills {
            return kills;
        }
    }
    unreachable!()
}

#[test]
fn a_recording_on_a_disk_that_works_is_complete_and_needs_no_repair() {
    let packets = Packets::new();
    let run = run(&packets, None);
    assert!(run.has_ended);
    assert_repaired(
        run.root.path(),
        |packet| packet.replaced.is_none(),
        &run,
        "no fault",
    );
    let session = run.root.path().join("host/session");
    let dated = session.join("19700101T000140+0000-1");
    assert!(dated.join(TRACE).join("plain").exists());
    let archive = "archives/19700101T000000+0000-19700101T000140+0000-0";
    assert!(session.join(archive).join(TRACE).join("plain").exists());
}

#[test]
fn packets_acknowledged_before_a_kill_at_any_operation_survive_it_and_kills_of_the_repair() {
    let packets = Packets::new();
    let whole = run(&packets, None).record.operations;
    assert!(whole > 100, "{whole}");
    let mut repairs = 0;
    for at in 1..=whole {
        let run = run(&packets, Some((at, Fault::Stop)));
        assert!(!run.has_ended || at == whole || run.record.operations == at);
        // Not after every kill, for the time that it takes.
        if at % 4 == 0 {
            repairs += repair_with_kills(run.root.path());
        }
        repair_with_plan(run.root.path());
        let case = format!("killed at operation {at}");
        assert_repaired(
            run.root.path(),
            |packet| packet.replaced.is_none(),
            &run,
            &case,
        );
    }
    assert!(repairs > whole, "{repairs}");
}

#[test]
fn synced_packets_survive_a_power_loss_after_any_operation() {
    let packets = Packets::new();
    assert_synced_packets_survive(&run(&packets, None), Unsynced::Lost);
}

#[test]
fn synced_packets_survive_a_power_loss_after_any_operation_of_a_relay_that_syncs() {
    let packets = Packets::new();
    let run = run_synced(&packets);
    assert!(run.has_ended);
    // Nothing is left to be repaired: the markers are removed once everything is synced.
    assert_closed(run.root.path(), "no fault");
    assert_synced_packets_survive(&run, Unsynced::Journaled);
}

/// Loses power after each change of a run in turn, and checks what the repair makes of the rest.
fn assert_synced_packets_survive(run: &Run, all_lost: Unsynced) {
    let journal = &run.record.journal;
    for at in 0..=journal.len() {
        let cases = (0..2).map(|seed| Unsynced::Partial(97 * at as u64 + seed));
        for unsynced in [all_lost].into_iter().chain(cases) {
            let left = tempfile::tempdir().unwrap();
            reconstruct(run.root.path(), &journal[..at], unsynced, left.path());
            let case = format!("power loss after change {at}, unsynced: {unsynced:?}");
            repair_after_power_loss(left.path());
            let required = |packet: &Acknowledged| {
                packet.synced.is_some_and(|synced| synced <= at)
                    && packet.replaced.is_none_or(|replaced| replaced > at)
            };
            assert_repaired(left.path(), required, run, &case);
        }
    }
}

#[test]
fn a_single_failed_operation_loses_no_packet() {
    let packets = Packets::new();
    let whole = run(&packets, None).record.operations;
    for error in [Errno::NOSPC, Errno::IO] {
        for at in 1..=whole {
            let run = run(&packets, Some((at, Fault::Error(error))));
            repair_with_plan(run.root.path());
            let case = format!("{error} at operation {at}");
            let seen = read(run.root.path(), &case);
            for packet in run
                .acknowledged
                .iter()
                .filter(|packet| packet.replaced.is_none())
            {
                let numbers = seen.get(&packet.stream);
                let is_there = numbers.is_some_and(|numbers| numbers.contains(&packet.number));
                assert!(is_there, "{case}: {packet:?} of {seen:?}");
            }
        }
    }
}
