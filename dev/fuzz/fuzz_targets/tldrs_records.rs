//! What a tldrs daemon that was killed has left of a trace. The first byte says how it stored
//! events; then the record of the trace, in which `/out/` stands for a directory for exports, its
//! events, and its refused lines as sections. The daemon that starts makes the exports that are
//! due, and goes on with the trace.
#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fuzz::sections;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use tldrs_daemon::files::TraceFiles;
use tldrs_daemon::record::{PendingExport, TraceRecord};
use tldrs_daemon::{Daemon, DaemonSettings, Storage};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// The name of the trace, and its id.
const NAME: &str = "run-1";
/// Longest name of an export that the system takes, in bytes.
const MAX_NAME_BYTES: usize = 255;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
});

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let is_one_file = flags & 1 != 0;
    let directory = fuzz::output();
    let directory = directory.path();
    let (traces, exports) = (directory.join("traces"), directory.join("out"));
    for made in [&traces, &exports] {
        fs::create_dir(made).expect("a directory");
    }
    let files = TraceFiles::in_directory(&traces, NAME);
    let mut sections = sections(input);
    let record = sections.next().unwrap_or_default();
    let record = with_directory(record, &exports);
    fs::write(&files.record, &record).expect("a file");
    let events = sections.next().unwrap_or_default();
    fs::write(&files.events, events).expect("a file");
    if let Some(rejected) = sections.next() {
        fs::write(&files.rejected, rejected).expect("a file");
    }
    let before = TraceRecord::load(&files.record);
    // Nothing is exported outside of the directory.
    let is_within = |pending: &PendingExport| pending.path.parent() == Some(&exports);
    if !before.pending_exports.iter().all(is_within) {
        return;
    }
    let storage = match is_one_file {
        true => Storage::File(files.events.clone()),
        false => Storage::Directory(traces),
    };
    let socket = directory.join("socket");
    start(&socket, &storage, b"");
    check_exports(&before, is_one_file, &exports);
    let resumed = TraceRecord::load(&files.record);
    start(&socket, &storage, b"OPEN run-1\n{\"new\":1}\n");
    let after = TraceRecord::load(&files.record);
    assert_eq!(after.events, resumed.events.saturating_add(1));
    assert_eq!((after.clients, after.pending_exports.len()), (0, 0));
    let stored = fs::read(&files.events).expect("a file");
    assert!(
        stored.starts_with(events) && stored.ends_with(b"\n{\"new\":1}\n") || events.is_empty()
    );
});

/// The record, with the path of the directory for exports.
fn with_directory(record: &[u8], exports: &Path) -> Vec<u8> {
    let directory = format!("{}/", exports.display()).into_bytes();
    let mut rest = record;
    let mut with = Vec::new();
    while let [first, tail @ ..] = rest {
        match rest.strip_prefix(b"/out/") {
            Some(tail) => {
                with.extend(&directory);
                rest = tail;
            }
            None => {
                with.push(*first);
                rest = tail;
            }
        }
    }
    with
}

/// Starts a daemon, lets a client send something, and stops it.
fn start(socket: &Path, storage: &Storage, sent: &[u8]) {
    let settings = DaemonSettings::new(socket.to_owned(), storage.clone());
    RUNTIME.block_on(async {
        let daemon = Daemon::start(settings, None).expect("a free socket");
        let mut client = UnixStream::connect(socket).expect("a daemon");
        client.write_all(sent).expect("room for a line");
        drop(client);
        let stop = CancellationToken::new();
        let running = tokio::spawn(daemon.run(stop.clone()));
        tokio::task::yield_now().await;
        stop.cancel();
        running.await.expect("no task panics");
    });
}

/// Checks that the exports which were due have been made.
fn check_exports(record: &TraceRecord, is_one_file: bool, directory: &Path) {
    let is_made = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.len() <= MAX_NAME_BYTES && !path.ends_with("/")
    };
    let of_trace = is_one_file || record.id == NAME;
    let due = record.pending_exports.iter().filter(|_| of_trace);
    let due = due.filter(|pending| pending.uid == 0 && is_made(&pending.path));
    let due: BTreeSet<_> = due.map(|pending| &pending.path).collect();
    for path in due {
        // A path with a NUL is none to the system: nothing can be exported there.
        let export = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
            export => export.expect("an export"),
        };
        serde_json::from_slice::<Vec<IgnoredAny>>(&export).expect("JSON");
    }
    let found = fs::read_dir(directory).expect("a directory").count();
    assert!(found <= record.pending_exports.len());
}
