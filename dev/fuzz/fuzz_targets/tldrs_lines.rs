//! What clients send to the tldrs daemon, as sections: the first byte of the input says how the
//! events are stored, the first byte of each section is the client. What is stored are events, one
//! to a line, as many as the record says; exports are JSON.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use fuzz::sections;
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use tef::Checked;
use tempfile::TempDir;
use tldrs_daemon::files::list_traces;
use tldrs_daemon::record::TraceRecord;
use tldrs_daemon::{Daemon, DaemonSettings, Storage};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

const CLIENTS: usize = 3;
/// Short, so that some lines are too long.
const MAX_LINE_BYTES: usize = 200;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
});
/// The working directory, to which exports are relative.
static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = fuzz::output();
    std::env::set_current_dir(directory.path()).expect("a directory");
    directory
});

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let (exports, own) = (DIRECTORY.path(), fuzz::output());
    let traces = own.path().join("traces");
    fs::create_dir(&traces).expect("a directory");
    let storage = match flags & 1 {
        0 => Storage::Directory(traces.clone()),
        _ => Storage::File(traces.join("all.jsonl")),
    };
    let settings = DaemonSettings {
        max_line_bytes: MAX_LINE_BYTES,
        max_traces: 5,
        ..DaemonSettings::new(own.path().join("socket"), storage)
    };
    RUNTIME.block_on(serve(settings, &clients(input)));
    check_traces(&traces);
    for entry in fs::read_dir(exports).expect("a directory") {
        let path = entry.expect("an entry").path();
        let export = fs::read(&path).expect("a file");
        serde_json::from_slice::<Vec<IgnoredAny>>(&export).expect("an export");
        fs::remove_file(path).expect("a file");
    }
});

/// Returns what each client sends, in pieces.
fn clients(input: &[u8]) -> [Vec<Vec<u8>>; CLIENTS] {
    let mut clients: [Vec<Vec<u8>>; CLIENTS] = Default::default();
    // Whether the line of each client is an event, if it has begun.
    let mut is_event = [None; CLIENTS];
    for section in sections(input) {
        let Some((number, bytes)) = section.split_first() else {
            continue;
        };
        let number = usize::from(*number) % CLIENTS;
        let is_event = &mut is_event[number];
        let mut bytes = bytes.to_vec();
        for byte in &mut bytes {
            match byte {
                b'\n' => *is_event = None,
                _ => {
                    let is_event = is_event.get_or_insert(*byte == b'{');
                    // Nothing is exported outside of the working directory.
                    if *byte == b'/' && !*is_event {
                        *byte = b'_';
                    }
                }
            }
        }
        clients[number].push(bytes);
    }
    clients
}

/// Runs a daemon until all clients have disconnected.
async fn serve(settings: DaemonSettings, clients: &[Vec<Vec<u8>>; CLIENTS]) {
    let socket = settings.sockets[0].clone();
    let daemon = Daemon::start(settings, None).expect("a free socket");
    let stop = CancellationToken::new();
    let running = tokio::spawn(daemon.run(stop.clone()));
    let mut connected = Vec::new();
    for _ in clients {
        connected.push(UnixStream::connect(&socket).await.expect("a daemon"));
    }
    for (client, pieces) in connected.iter_mut().zip(clients) {
        for piece in pieces {
            // A client that sends DIE is disconnected, and so are all others soon.
            let _ = client.write_all(piece).await;
            // The daemon runs on this thread: it gets its turns between the pieces.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    }
    drop(connected);
    stop.cancel();
    running.await.expect("no task panics");
}

fn check_traces(directory: &Path) {
    for trace in list_traces(directory).expect("a directory") {
        let events = fs::read(&trace.files.events).expect("a file");
        let lines = lines_of(&events);
        let record = TraceRecord::load(&trace.files.record);
        assert_eq!(record.events, lines.len() as u64);
        assert_eq!((record.clients, record.lost), (0, 0));
        assert_eq!(record.pending_exports, []);
        for line in lines {
            assert!(matches!(tef::check(line), Checked::Valid(_)));
        }
        let rejected = fs::read(&trace.files.rejected).unwrap_or_default();
        let rejected = lines_of(&rejected);
        assert!(rejected.len() as u64 <= record.refused);
        for line in rejected {
            serde_json::from_slice::<IgnoredAny>(line).expect("a refused line");
        }
    }
}

/// The lines of a file, each of which has an end.
fn lines_of(file: &[u8]) -> Vec<&[u8]> {
    let lines = file.split_inclusive(|byte| *byte == b'\n');
    let line = lines.map(|line| line.strip_suffix(b"\n").expect("a whole line"));
    line.collect()
}
