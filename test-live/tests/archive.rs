//! Sessions of an archive beside the directories that were archived: the same text.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use archive::store::Store;
use archive::test_support::{SessionArchive, corrupt_object};
use ctf::directory::StreamHandle;
use ctf::write::{EventRecord, FieldType, Width};
use ctf::{Timestamp, TraceWriter};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use wire::ChunkId;

/// Milliseconds between two events of a stream, and events of a packet.
const STEP: u64 = 10;
const EVENTS: u64 = 50;
/// A time of 2026, in milliseconds since 1970.
const BEGIN: u64 = 1_795_773_600_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Writes a trace of three streams, from `begin` on, in milliseconds since 1970. One is idle for
/// long, one loses events.
fn write_trace(directory: &Path, begin: u64, packets: u64) {
    fs::create_dir_all(directory).unwrap();
    let mut trace = TraceWriter::create(directory).unwrap();
    let fields = [
        ("number", FieldType::Unsigned(Width::Bits64)),
        ("text", FieldType::Text),
    ];
    let class = trace.event_class("app:step", &fields).unwrap();
    let second = trace.add_stream();
    let third = trace.add_stream();
    for packet in 0..packets {
        for number in 0..EVENTS {
            let at = begin + (packet * EVENTS + number) * STEP;
            for stream in [StreamHandle::FIRST, second, third] {
                if stream == second && packet % 5 != 1 {
                    continue;
                }
                let values = [number.into(), "some text of an event".into()];
                let event = EventRecord {
                    time: Timestamp(at * 1_000_000),
                    process: 7,
                    thread: 8,
                    values: &values,
                };
                trace.write_to(stream, &class, &event).unwrap();
            }
        }
        if packet == 3 {
            trace.discard(third, 9).unwrap();
        }
        trace.flush().unwrap();
    }
    trace.finish().unwrap();
}

/// An archive in a directory.
struct Archive {
    directory: TempDir,
    store: Arc<dyn Store>,
}

impl Archive {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("file://{}", directory.path().display());
        let store = archive::store::open(&url, None).unwrap();
        Self { directory, store }
    }

    fn url(&self, path: &str) -> String {
        format!("file://{}{path}", self.directory.path().display())
    }

    /// Archives a directory in small blocks.
    fn add(&self, number: u64, directory: &Path, name: &str) {
        runtime().block_on(async {
            let mut session = SessionArchive::new(&self.store, number, "vm", name);
            session.block_bytes = 4096;
            session.add_directory(directory, None).await;
            session.end().await;
        });
    }
}

fn test_live(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_test-live"));
    command.env("TZ", "UTC").args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines about losses, without the stream's name.
fn losses(output: &Output) -> Vec<String> {
    let text = stderr(output);
    let lines = text.lines().filter(|line| line.contains("warning"));
    let what = lines.map(|line| line.split(" stream ").next().unwrap_or(line).to_owned());
    what.collect()
}

fn assert_same(directory: &Path, url: &str, options: &[&str]) {
    let of = |target: &str| test_live(&[options, &[target]].concat());
    let (want, got) = (of(directory.to_str().unwrap()), of(url));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!want.stdout.is_empty(), "{}", stderr(&want));
    let (wanted, shown) = (text(&want), text(&got));
    let mut lines = wanted.lines().zip(shown.lines());
    let differing = lines.find(|(want, got)| want != got);
    let what = format!("{} {options:?}: {}", directory.display(), stderr(&got));
    assert_eq!(differing, None, "{what}");
    assert_eq!(wanted.len(), shown.len(), "{what}");
    assert_eq!(want.status.code(), got.status.code(), "{}", stderr(&got));
    assert_eq!(losses(&want).len(), losses(&got).len(), "{}", stderr(&got));
}

#[test]
fn a_session_has_the_text_of_its_directory_whatever_the_options() {
    let (archive, traces) = (Archive::new(), tempfile::tempdir().unwrap());
    write_trace(&traces.path().join("ust/uid/0/64-bit"), BEGIN, 40);
    write_trace(&traces.path().join("ust/uid/1/64-bit"), BEGIN + 7, 30);
    archive.add(1, traces.path(), "app");
    for target in ["", "/host/vm/app"] {
        assert_same(traces.path(), &archive.url(target), &[]);
    }
    let url = archive.url("/host/vm/app");
    for options in [
        &["--clock-seconds"][..],
        &["-b", "2026-11-27 10:00:05", "-e", "2026-11-27 10:00:08"],
        &["-b", "10:00:05", "-e", "10:00:08.5"],
        &["--limit", "100"],
    ] {
        assert_same(traces.path(), &url, options);
    }
}

#[test]
fn sessions_are_listed_and_missing_ones_described() {
    let (archive, traces) = (Archive::new(), tempfile::tempdir().unwrap());
    write_trace(&traces.path().join("kernel"), BEGIN, 2);
    let nothing = test_live(&["--list", &archive.url("")]);
    assert!(
        stderr(&nothing).contains("there is no archive"),
        "{}",
        stderr(&nothing)
    );
    archive.add(1, traces.path(), "app");
    archive.add(2, traces.path(), "app");
    archive.add(3, traces.path(), "web server");
    let listed = test_live(&["--list", "--json", &archive.url("")]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names = listed.as_array().unwrap().iter();
    let names: Vec<_> = names
        .map(|session| session["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["app", "app", "web server"]);
    let text = test_live(&["--list", &archive.url("/host/vm/web server")]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.starts_with(&archive.url("/host/vm/web server (created 2026-")),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1);
    for (name, hint) in [
        ("apq", "did you mean"),
        ("database", "there are: vm/app, vm/web server"),
    ] {
        let missing = test_live(&[&archive.url(&format!("/host/vm/{name}"))]);
        let said = stderr(&missing);
        assert!(
            said.contains(&format!("no session vm/{name} in file://")),
            "{said}"
        );
        assert!(
            said.contains(hint) && missing.status.code() == Some(1),
            "{said}"
        );
    }
    let both = test_live(&[&archive.url("/host/vm/app")]);
    assert!(
        stderr(&both).contains("2 sessions have this name"),
        "{}",
        stderr(&both)
    );
    let none = test_live(&["file:///no/such/directory"]);
    assert!(
        stderr(&none).contains("no such directory"),
        "{}",
        stderr(&none)
    );
    assert!(!Path::new("/no/such").exists());
}

#[test]
fn a_time_without_packets_is_said() {
    let (archive, traces) = (Archive::new(), tempfile::tempdir().unwrap());
    write_trace(&traces.path().join("kernel"), BEGIN, 3);
    archive.add(1, traces.path(), "app");
    for (options, said) in [
        (
            ["-b", "2026-11-28 00:00:00"],
            "no packet from --begin to --end: all are from 2026-",
        ),
        (
            ["-b", "2026-12-01 00:00:00"],
            "all sessions ended before --begin",
        ),
        (
            ["-e", "2026-11-27 09:00:00"],
            "no packet from --begin to --end: all are from 2026-",
        ),
        (
            ["-e", "2026-11-20 09:00:00"],
            "all sessions were created after --end",
        ),
    ] {
        let url = archive.url("/host/vm/app");
        let output = test_live(&[&options[..], &[&url]].concat());
        let text = stderr(&output);
        assert!(text.contains(said), "{options:?}: {text}");
        assert_eq!(output.status.code(), Some(1));
        let allowed = [&options[..], &["--session-not-found", "end", &url]].concat();
        assert_eq!(test_live(&allowed).status.code(), Some(0));
    }
}

#[test]
fn a_damaged_block_is_reported_and_the_others_are_shown() {
    let (archive, traces) = (Archive::new(), tempfile::tempdir().unwrap());
    write_trace(&traces.path().join("kernel"), BEGIN, 40);
    archive.add(1, traces.path(), "app");
    let whole = test_live(&[&archive.url("/host/vm/app")]);
    let sessions = archive.directory.path().join("sessions");
    let session = fs::read_dir(sessions).unwrap().next().unwrap().unwrap();
    let part = session.path().join("part-00000001-00000000");
    let len = usize::try_from(fs::metadata(&part).unwrap().len()).unwrap();
    corrupt_object(&session.path(), "part-00000001-00000000", len / 2);
    let damaged = test_live(&[&archive.url("/host/vm/app")]);
    let said = stderr(&damaged);
    assert!(said.contains("cannot be read: object sessions/"), "{said}");
    assert!(
        said.contains("a block does not have its checksum"),
        "{said}"
    );
    assert_eq!(damaged.status.code(), Some(1));
    let lines = |output: &Output| output.stdout.split(|byte| *byte == b'\n').count();
    assert!(lines(&damaged) < lines(&whole) && lines(&damaged) > lines(&whole) / 2);
}

#[test]
fn info_of_a_session_is_that_of_its_directory() {
    let (archive, traces) = (Archive::new(), tempfile::tempdir().unwrap());
    write_trace(&traces.path().join("ust/uid/0/64-bit"), BEGIN, 10);
    archive.add(1, traces.path(), "app");
    let info = |target: &str| {
        let output = test_live(&["info", "--json", target]);
        let mut info: Value = serde_json::from_slice(&output.stdout).unwrap();
        for trace in info["traces"].as_array_mut().unwrap() {
            trace["name"].take();
            trace["paths"].take();
        }
        info
    };
    let url = archive.url("/host/vm/app");
    assert_eq!(info(&url), info(traces.path().to_str().unwrap()));
    let top = test_live(&["top", "--batch", "-n", "1", "-d", "1", &url]);
    let table = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(table.contains("vm/app"), "{table}{}", stderr(&top));
}

/// The directories of captured sessions, if there are any.
fn captured_sessions() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let directory = std::env::var_os("CAPTURES").map_or(beside, PathBuf::from);
    let entries = |path: PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path())
    };
    let hosts = entries(directory).flat_map(|capture| entries(capture.join("output")));
    let mut sessions: Vec<_> = hosts
        .flat_map(entries)
        .filter(|path| path.is_dir())
        .collect();
    sessions.sort();
    sessions
}

#[test]
fn captured_sessions_have_the_text_of_their_directories() {
    for session in captured_sessions() {
        let archive = Archive::new();
        let mut chunks: Vec<_> = fs::read_dir(session.join("archives"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        chunks.sort();
        runtime().block_on(async {
            let mut archived = SessionArchive::new(&archive.store, 1, "vm", "app");
            archived.block_bytes = 4096;
            if chunks.is_empty() {
                archived.add_directory(&session, None).await;
            }
            for (number, chunk) in (0..).zip(&chunks) {
                archived.add_directory(chunk, Some(ChunkId(number))).await;
            }
            archived.end().await;
        });
        assert_same(&session, &archive.url("/host/vm/app"), &[]);
    }
}
