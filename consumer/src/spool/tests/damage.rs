//! Bits that the disk has flipped, and foreign files.

use record_log::{HEADER_BYTES, RECORD_HEAD_BYTES, Records};

use super::super::disk::Disk;
use super::super::record::{LogRecord, RecordHead, SESSION_LOG, SegmentRecord, StateStep};
use super::*;

/// Returns a session of three segments whose packets are all in the spool, of a process that was
/// killed after the session's end.
fn whole_session() -> (MemoryDisk, Vec<Step>) {
    let disk = MemoryDisk::default();
    let settings = settings(16 << 10, SpoolFullPolicy::Block, Durability::Process);
    let mut spool = TestSpool::new(&disk, &settings);
    let key = spool.open_new(ROOMY);
    let mut sent = begin_steps();
    for number in 0..4 {
        sent.push(packet(0, number, 250));
        sent.push(packet(1, number, 250));
    }
    sent.extend([metadata("more"), packet(0, 4, 250), close(0), close(1)]);
    for step in &sent {
        spool.append(key, std::slice::from_ref(step));
    }
    spool.end(key);
    (disk.after_kill(), sent)
}

fn packets_of(steps: &[Step]) -> u64 {
    let is_packet = |step: &&Step| matches!(step, Step::Packet { .. });
    steps.iter().filter(is_packet).count() as u64
}

#[test]
fn a_flipped_bit_is_detected_in_each_byte_of_each_file() {
    let (disk, sent) = whole_session();
    let paths = disk.paths();
    let segments = paths.iter().filter(|path| path.contains("packets-"));
    assert_eq!(segments.count(), 5, "{paths:?}");
    for path in &paths {
        for at in 0..disk.length(path) {
            let damaged = disk.after_kill();
            damaged.change(path, |bytes| bytes[at] ^= 1 << (at % 8));
            let (spool, sessions) = TestSpool::recover(&damaged);
            let case = format!("{path} at {at}");
            let Some(found) = sessions.first() else {
                assert!(spool.counters.quarantined.get() > 0, "{case}");
                continue;
            };
            // Nothing wrong is sent, and what is missing is reported.
            assert!(
                found
                    .iter()
                    .all(|(step, _)| matches!(step, Step::Gap { .. }) || sent.contains(step)),
                "{case}"
            );
            let (packets, gaps) = packets_and_gaps(found);
            let is_cut =
                !damaged.paths().contains(path) || damaged.length(path) < disk.length(path);
            assert!(is_cut, "{case}: not detected");
            if path.contains("packets-") {
                assert_eq!(packets + gaps, packets_of(&sent), "{case}");
                assert_eq!(
                    found.len() as u64 - packets,
                    (sent.len() as u64 - packets_of(&sent)) + gap_steps(found),
                    "{case}"
                );
            }
        }
    }
}

fn gap_steps(steps: &[Numbered]) -> u64 {
    let is_gap = |(step, _): &&Numbered| matches!(step, Step::Gap { .. });
    steps.iter().filter(is_gap).count() as u64
}

#[test]
fn damaged_segment_is_set_aside_and_the_others_are_sent() {
    let (disk, sent) = whole_session();
    let path = disk
        .paths()
        .into_iter()
        .find(|path| path.contains("packets-00000001"))
        .unwrap();
    disk.change(&path, |bytes| bytes[200] ^= 1);
    let (spool, sessions) = TestSpool::recover(&disk);
    let (packets, gaps) = packets_and_gaps(&sessions[0]);
    assert!(gaps > 0 && gaps <= 3, "{gaps}");
    assert_eq!(packets + gaps, packets_of(&sent));
    assert_eq!(spool.counters.quarantined.get(), 1);
    let aside = format!("quarantine-{}", path.replace('/', "-"));
    assert!(disk.paths().contains(&aside) || spool.store.disk.paths().contains(&aside));
    let last = sent
        .iter()
        .rposition(|step| matches!(step, Step::Packet { .. }))
        .unwrap();
    assert!(sessions[0].contains(&(sent[last].clone(), 4)));
}

#[test]
fn segment_without_the_metadata_that_it_needs_becomes_a_gap() {
    let (disk, sent) = whole_session();
    let log = disk
        .paths()
        .into_iter()
        .find(|path| path.ends_with("session.log"))
        .unwrap();
    // The power failed before the log's end was on the disk, and after the segment's was.
    let length = disk.length(&log);
    let steps = [metadata("more"), close(0), close(1)];
    assert!(steps.iter().all(|step| sent.contains(step)));
    disk.change(&log, |bytes| {
        let text = b"more";
        let at = bytes
            .windows(text.len())
            .position(|part| part == text)
            .unwrap();
        bytes.truncate(at);
    });
    assert!(disk.length(&log) < length);
    let (_, sessions) = TestSpool::recover(&disk);
    let (packets, _) = packets_and_gaps(&sessions[0]);
    assert_eq!(packets, packets_of(&sent) - 1);
    assert!(
        sessions[0]
            .iter()
            .all(|(step, _)| *step != packet(0, 4, 250))
    );
}

#[test]
fn foreign_files_are_ignored_and_kept() {
    let (disk, sent) = whole_session();
    let mut foreign = disk.clone();
    foreign.create_directory("notes").unwrap();
    foreign.write_at("notes/x", 0, b"text").unwrap();
    foreign.write_at("README", 0, b"text").unwrap();
    let (_, sessions) = TestSpool::recover(&foreign);
    assert_eq!(packets_and_gaps(&sessions[0]), (packets_of(&sent), 0));
    assert!(foreign.paths().contains(&"notes/x".to_owned()));
    assert!(foreign.paths().contains(&"README".to_owned()));
}

#[test]
fn numbers_after_which_there_is_no_other_are_damage() {
    let head = |step| RecordHead { step, after: 0 };
    let step = |step| {
        let path = "x".to_owned();
        LogRecord::Step(head(step), StateStep::AddTrace { path })
    };
    let packet = |stream, seq| SegmentRecord::Packet {
        head: head(1),
        stream: StreamKey(stream),
        seq,
        index: PacketIndex::default(),
        bytes: Bytes::from_static(b"packet"),
    };
    let paths = whole_session().0.paths();
    let path = |name: &str| paths.iter().find(|path| path.ends_with(name)).unwrap();
    let (log, segment) = (path("session.log"), path("packets-00000004.log"));
    let last = path("packets-00000004.log").replace("00000004", &u64::MAX.to_string());

    let (disk, _) = whole_session();
    disk.change(log, |bytes| {
        let first = Records::new(SESSION_LOG, bytes).next().unwrap().len();
        bytes.truncate(HEADER_BYTES + RECORD_HEAD_BYTES + first);
        step(u64::MAX).encode(bytes);
    });
    assert_eq!(TestSpool::recover(&disk).0.counters.quarantined.get(), 1);

    let (disk, sent) = whole_session();
    disk.change(segment, |bytes| packet(0, u64::MAX).encode(bytes));
    let (spool, sessions) = TestSpool::recover(&disk);
    assert_eq!(packets_and_gaps(&sessions[0]), (packets_of(&sent), 0));
    assert_eq!(spool.counters.quarantined.get(), 1);

    // The numbers of packets say how many there are at most, also of all streams together.
    let (disk, _) = whole_session();
    disk.change(segment, |bytes| {
        packet(0, u64::MAX - 1).encode(bytes);
        packet(1, u64::MAX - 1).encode(bytes);
    });
    let (mut spool, _) = TestSpool::recover(&disk);
    spool.store.close(0);

    let (mut disk, sent) = whole_session();
    disk.rename(segment, &last).unwrap();
    let (_, sessions) = TestSpool::recover(&disk);
    assert_eq!(packets_and_gaps(&sessions[0]), (packets_of(&sent) - 1, 1));
    assert!(disk.paths().contains(&last), "not one of the spool");
}
