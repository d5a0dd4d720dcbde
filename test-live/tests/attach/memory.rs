//! The memory that the program takes: after sessions have ended, and for packets.

use std::collections::VecDeque;
use std::io::{BufReader, Lines};
use std::process::ChildStdout;

use crate::fake::{Fake, Metadata, Session, Stream, record};
use crate::program::{Program, drain};
use crate::trace::{Tracefile, metadata};

/// The number of sessions at the same time, each of one stream.
const AT_ONCE: u64 = 10;

/// A tracefile of one packet.
const SHORT: Tracefile = Tracefile {
    stream: 0,
    streams: 1,
    packets: 1,
    ticks: 1,
    bulk: 0,
};

/// Replaces the sessions of a relay by further ones, each of which ends when it has been read.
fn add_sessions(fake: &Fake, first: u64, metadata: &str) {
    let mut world = fake.world();
    // Commands of earlier sessions are not needed.
    world.asked.clear();
    world.sessions.clear();
    for id in first..first + AT_ONCE {
        let (of_metadata, of_packets) = (2 * id, 2 * id + 1);
        let records = vec![
            record(of_metadata, id, "a", "metadata"),
            record(of_packets, id, "a", "c"),
        ];
        world.sessions.push(Session {
            is_over: true,
            ..Session::new(id, "s", vec![records])
        });
        let of_metadata = world.metadata.entry(of_metadata).or_insert(Metadata {
            is_over: true,
            ..Metadata::default()
        });
        of_metadata.replies.push_back(metadata.as_bytes().to_vec());
        world.tracefiles.insert(of_packets, SHORT);
        let indexes: VecDeque<_> = SHORT.indexes().collect();
        let stream = Stream {
            indexes,
            is_over: true,
        };
        world.streams.insert(of_packets, stream);
    }
}

#[test]
fn memory_use_does_not_grow_with_ended_sessions() {
    const ROUNDS: u64 = 14;
    let metadata = metadata(2500);
    assert!(metadata.len() > 300_000, "{}", metadata.len());
    let fake = Fake::start(Vec::new());
    let options = ["--follow", "--poll", "--seek", "beginning"];
    let mut program = Program::start(&fake, "", &options);
    drain(program.take_output());
    let mut after_first = 0;
    for round in 0..ROUNDS {
        add_sessions(&fake, 1 + round * AT_ONCE, &metadata);
        program.wait_for_errors("has ended", usize::try_from(AT_ONCE).unwrap());
        if round == 3 {
            after_first = program.memory("VmRSS");
        }
    }
    let grown = program.memory("VmRSS").saturating_sub(after_first);
    // Some of the last may not have been removed yet; all together take 180 MiB and more.
    assert!(grown < 32 << 10, "{grown} KiB");
}

/// A session of such streams, which ends when they have been read.
fn session_of(streams: &[Tracefile]) -> Fake {
    let mut records = vec![record(1, 1, "a", "metadata")];
    for of in streams {
        records.push(record(2 + of.stream, 1, "a", &format!("c_{}", of.stream)));
    }
    let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
    fake.put_metadata(1, &[&metadata(0)]);
    for of in streams {
        fake.put(2 + of.stream, of.indexes());
        fake.world().tracefiles.insert(2 + of.stream, *of);
    }
    fake.world().most_bytes = 1 << 20;
    fake.end();
    let list = |session: &mut Session| session.is_listed = true;
    fake.world().sessions.iter_mut().for_each(list);
    fake
}

fn streams(streams: u64, packets: u64, ticks: u64, bulk: u64) -> Vec<Tracefile> {
    let of = |stream| Tracefile {
        stream,
        streams,
        packets,
        ticks,
        bulk,
    };
    (0..streams).map(of).collect()
}

const TICKS: [&str; 6] = [
    "--seek",
    "beginning",
    "--sink",
    "json",
    "--filter",
    "$name == \"tick\"",
];

/// Waits for `count` ticks from `first` on, in order.
fn wait_for_ticks(lines: &mut Lines<BufReader<ChildStdout>>, first: u64, count: u64) {
    for want in first..first + count {
        let line = lines.next().unwrap_or_else(|| Ok("the end".to_owned()));
        let line = line.unwrap();
        let number = format!("\"fields\":{{\"number\":{want},");
        assert!(line.contains(&number), "{want}: {line}");
    }
}

/// The peak memory, in MiB, of showing such streams.
fn peak_of(streams: &[Tracefile]) -> u64 {
    let fake = session_of(streams);
    // The program must still run when its memory is measured.
    let options = [&["--follow"], &TICKS[..]].concat();
    let mut program = Program::start(&fake, "/host/vm/s", &options);
    let mut lines = program.lines();
    let ticks = streams.iter().map(|of| of.packets * of.ticks).sum();
    wait_for_ticks(&mut lines, 0, ticks);
    let most = program.peak_of_own_memory();
    program.terminate();
    assert!(lines.next().is_none());
    let (is_well, printed) = program.finish();
    assert!(is_well, "{printed}");
    most
}

#[test]
fn twenty_streams_of_large_packets_stay_within_the_memory_budget() {
    let most = peak_of(&streams(20, 1, 512, 64 << 10));
    assert!(most < 64 + 12, "{most} MiB");
}

#[test]
fn streams_that_wait_for_each_other_make_progress_without_free_memory() {
    let most = peak_of(&streams(60, 4, 40, 50_000));
    assert!(most < 64 + 12, "{most} MiB");
}

#[test]
fn events_larger_than_the_free_memory_are_loaded_one_at_a_time() {
    let most = peak_of(&streams(6, 1, 1, 40 << 20));
    // One packet in memory, and an event, for which twice as much may be loaded as it needs.
    assert!(most < 40 + 80 + 12, "{most} MiB");
}

#[test]
fn a_directory_of_large_packets_stays_within_the_memory_budget() {
    let directory = tempfile::tempdir().unwrap();
    let streams = streams(12, 2, 160, 64 << 10);
    std::fs::write(directory.path().join("metadata"), metadata(0)).unwrap();
    for of in &streams {
        let bytes = of.read(0, of.packets * of.packet_size());
        let name = format!("c_{}", of.stream);
        std::fs::write(directory.path().join(name), bytes).unwrap();
    }
    let options = [&["--no-follow"], &TICKS[..]].concat();
    let mut program = Program::show(directory.path().to_str().unwrap(), &options, &[]);
    let mut lines = program.lines();
    wait_for_ticks(&mut lines, 0, 3000);
    // The rest does not fit into a pipe: it has not ended.
    let most = program.peak_of_own_memory();
    wait_for_ticks(&mut lines, 3000, 12 * 2 * 160 - 3000);
    assert!(lines.next().is_none());
    assert!(program.finish().0);
    assert!(most < 64 + 12, "{most} MiB");
}

#[test]
fn a_packet_that_cannot_be_spilled_is_lost_and_the_others_are_shown() {
    let fake = session_of(&streams(2, 1, 1, 40 << 20));
    let nowhere = [("TMPDIR", "/nonexistent")];
    let target = format!("net://{}/host/vm/s", fake.address);
    let mut program = Program::show(&target, &TICKS, &nowhere);
    assert_eq!(program.lines().map(Result::unwrap).count(), 1);
    let (_, printed) = program.finish();
    let lost = "lost a packet of a/c_1: cannot store it in a temporary file: ";
    assert!(printed.contains(lost), "{printed}");
}
