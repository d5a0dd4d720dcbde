//! What an earlier process has left of a session in the spool of `consumer`, as sections of which
//! the first byte says what they are: a record, whose checksum is right, of the session log or of
//! the last segment; a further segment; or bytes at the end of one of the files. The first byte of
//! the input says which of the files have their usual first record.
//!
//! What is read has numbers without holes, is read again alike as long as nothing is
//! acknowledged, and is gone when a relay has it all.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use consumer::queue::{
    QueueCapacity, SessionEnd, SessionOutcome, Step, StreamKey, session_channel,
};
use consumer::spool::{self, SpoolSettings};
use consumer::status::SpoolCounters;
use fuzz::{output, sections};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// The session: its producer is sixteen times 7, its number is 0.
const SESSION: &str = "07070707-0707-0707-0707-070707070707-0";
/// The first record of its log: not live, in CTF 1.8, and called `s` on host `h`.
const FIRST_RECORD: &[u8] = &{
    let mut body = [0; 78];
    body[3] = 1;
    let mut at = 4;
    while at < 20 {
        body[at] = 7;
        at += 1;
    }
    (body[47], body[67]) = (1, 1);
    body[71] = 1;
    (body[76], body[77]) = (b's', b'h');
    body
};
/// The last byte of the body of each record.
const END: u8 = 1;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
});

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let output = output();
    let directory = output.path().join("spool");
    write_session(&directory.join(SESSION), *flags, input);
    let left = RUNTIME.block_on(take(&directory, false));
    for steps in &left.sessions {
        check_numbers(steps);
        check_bytes(steps, input);
    }
    let again = RUNTIME.block_on(take(&directory, false));
    // Packets of a damaged segment are sent before the damage is found.
    if left.quarantined == 0 {
        assert_eq!(again.sessions, left.sessions);
        assert_eq!(again.quarantined, 0);
    }
    let last = RUNTIME.block_on(take(&directory, true));
    assert_eq!(last.sessions, again.sessions);
    let rest: Vec<_> = names(&directory).filter(|name| !is_kept(name)).collect();
    assert!(rest.is_empty(), "{rest:?}");
});

/// Writes the files of a session.
fn write_session(directory: &Path, flags: u8, input: &[u8]) {
    fs::create_dir_all(directory).expect("a directory");
    let mut log = b"spool-s1".to_vec();
    if flags & 1 == 0 {
        record_log::encode(&[FIRST_RECORD, &[END]], &mut log);
    }
    let mut segments: Vec<Vec<u8>> = Vec::new();
    for section in sections(input) {
        let Some((kind, body)) = section.split_first() else {
            continue;
        };
        // A record needs a segment, whatever the input says first.
        if segments.is_empty() || kind % 5 == 2 {
            segments.push(segment(segments.len() as u64, flags));
        }
        let segment = segments.last_mut().expect("one was added");
        match kind % 5 {
            0 => record_log::encode(&[body, &[END]], &mut log),
            1 => record_log::encode(&[body, &[END]], segment),
            2 => {}
            3 => log.extend_from_slice(body),
            _ => segment.extend_from_slice(body),
        }
    }
    if flags & 2 == 0 {
        fs::write(directory.join("session.log"), log).expect("a file");
    }
    for (number, segment) in segments.iter().enumerate() {
        let path = directory.join(format!("packets-{number:08}.log"));
        fs::write(path, segment).expect("a file");
    }
}

/// The beginning of a segment: that of any step, without positions.
fn segment(number: u64, flags: u8) -> Vec<u8> {
    let mut bytes = b"spool-p1".to_vec();
    if flags & 4 == 0 {
        let mut body = vec![0, 0, 0, 16];
        body.extend_from_slice(&[0; 16]);
        body.extend_from_slice(&[7; 16]);
        body.extend_from_slice(&0u64.to_be_bytes());
        body.extend_from_slice(&number.to_be_bytes());
        record_log::encode(&[&body, &[END]], &mut bytes);
    }
    bytes
}

/// The names in a directory of a spool.
fn names(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().into())
}

fn is_kept(name: &Path) -> bool {
    let name = name.to_str().expect("text");
    name == "lock" || name.starts_with("quarantine-")
}

/// The sessions that a start of the spool has found.
struct Found {
    /// The steps of each session, with their numbers.
    sessions: Vec<Vec<(Step, u64)>>,
    quarantined: u64,
}

/// Takes all that is in the spool, and perhaps acknowledges it.
async fn take(directory: &Path, is_acknowledged: bool) -> Found {
    let settings = SpoolSettings {
        directory: directory.to_owned(),
        ..SpoolSettings::default()
    };
    let capacity = QueueCapacity::default();
    let counters = Arc::<SpoolCounters>::default();
    let (opener, sessions) = session_channel(capacity);
    let given_up = CancellationToken::new();
    let started = spool::start(
        sessions,
        &settings,
        capacity,
        Arc::clone(&counters),
        given_up,
    );
    let (running, mut recovered) = started.expect("nobody else uses the directory");
    // No session is new: what comes is what the spool has kept.
    drop(opener);
    let mut found = Vec::new();
    while let Some(mut session) = recovered.recv().await {
        let mut kept = Vec::new();
        let mut steps = Vec::new();
        while let Some(queued) = session.steps.next_step().await {
            steps.push((queued.step.clone(), queued.seq));
            match is_acknowledged {
                true => queued.acknowledge(),
                false => kept.push(queued),
            }
        }
        let end = SessionEnd::Complete;
        match is_acknowledged {
            true => session.steps.report_outcome(SessionOutcome {
                end,
                ..SessionOutcome::default()
            }),
            false => drop(session),
        }
        found.push(steps);
    }
    running.finish().await.expect("no thread panics");
    Found {
        sessions: found,
        quarantined: counters.quarantined.get(),
    }
}

/// Checks that the number of each packet is the next one, or that a gap says which are missing.
fn check_numbers(steps: &[(Step, u64)]) {
    let mut next = BTreeMap::<StreamKey, u64>::new();
    for (step, seq) in steps {
        match step {
            Step::Packet { stream, .. } => {
                let next = next.entry(*stream).or_insert(*seq);
                assert_eq!(seq, next);
                *next += 1;
            }
            Step::Gap {
                stream,
                before,
                packets,
            } => {
                let first = before - packets;
                let next = next.entry(*stream).or_insert(first);
                assert_eq!(first, *next);
                *next = *before;
            }
            _ => {}
        }
    }
}

/// Checks that all bytes are from the files.
fn check_bytes(steps: &[(Step, u64)], input: &[u8]) {
    for (step, _) in steps {
        if let Step::Packet { bytes, .. } | Step::Metadata { bytes, .. } = step {
            let mut parts = input.windows(bytes.len().max(1));
            assert!(bytes.is_empty() || parts.any(|part| part == bytes));
        }
    }
}
