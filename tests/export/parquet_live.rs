//! Tables of live sessions, of interrupted runs, and in buckets.

use std::path::Path;

use ctf::directory::StreamHandle;
use ctf::write::{EventRecord, FieldType, Value};
use ctf::{Timestamp, TraceWriter};
use rustix::process::Signal;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::traced_app::TracedApp;
use tests::{peers, test_live, traces, wait_until};

use super::parquet::assert_equal;
use super::tables;

/// Whether all files of a directory are whole.
fn are_whole(directory: &Path) -> bool {
    let files = tables::files(directory);
    files.iter().all(|file| {
        file.extension()
            .is_some_and(|extension| extension == "parquet")
    })
}

/// Writes a trace with events of three classes in two streams.
fn write_input(directory: &Path) {
    let mut trace = TraceWriter::create(directory.join("app")).unwrap();
    let streams = [StreamHandle::FIRST, trace.add_stream()];
    let classes = ["app:a", "app:b", "app:c"];
    let classes = classes.map(|name| {
        trace
            .event_class(name, &[("text", FieldType::Text)])
            .unwrap()
    });
    for number in 0..300 {
        if number == 150 {
            trace.flush().unwrap();
        }
        // The third class has its first event in the second half.
        let class = if number < 150 { number % 2 } else { number % 3 };
        let event = EventRecord {
            time: Timestamp(1_000_000 + 1000 * number as u64),
            process: 7,
            thread: 8,
            values: &[Value::Text(&number.to_string())],
        };
        trace
            .write_to(streams[number / 3 % 2], &classes[class], &event)
            .unwrap();
    }
    trace.finish().unwrap();
}

#[test]
fn tables_of_a_live_session_can_be_read_while_it_is_recorded() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create_session("my-session", &relay, Some(100_000));
    daemon.enable_channel("my-session", "chan", &["--buffers-uid"], true);
    daemon.lttng(&["start", "my-session"]);
    let mut app = TracedApp::start(&lab, "live");
    app.emit(10);
    let output = lab.path().join("tables");
    let words = [
        "--sink",
        "parquet",
        "--parquet-interval",
        "1",
        "--seek",
        "beginning",
        "-o",
    ];
    let words = [&words, &[output.to_str().unwrap()][..]].concat();
    let host = tests::viewer::hostname();
    let viewer = test_live::follow(&lab, &relay, &host, "my-session", &words);
    wait_until("the first events are in a file", || {
        output.is_dir() && tables::rows(&output).len() >= 10
    });
    app.emit(7);
    wait_until("further events are in a file", || {
        tables::rows(&output).len() >= 17
    });
    app.end();
    daemon.lttng(&["destroy", "my-session"]);
    viewer.wait().expect_success();
    assert!(are_whole(&output), "{:?}", tables::files(&output));
    let mut lines = tables::json_lines(&lab, &relay.output);
    let mut rows = tables::rows(&output);
    assert!(rows.len() >= 17, "{}", rows.len());
    // A directory gives traces and streams other names than a relay.
    for row in lines.iter_mut().chain(&mut rows) {
        row["trace"].take();
        row["stream"].take();
    }
    assert_equal(&rows, &lines, &output);
}

#[test]
fn files_are_whole_when_the_program_is_interrupted() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input);
    let output = lab.path().join("tables");
    let words = [
        "--sink",
        "parquet",
        "-o",
        output.to_str().unwrap(),
        "--follow",
    ];
    let viewer = Process::start(test_live::command(&lab, &words).arg(&input));
    // None has its name before it is whole.
    wait_until("files are being written", || {
        output.is_dir() && tables::files(&output).len() > 2
    });
    let is_hidden = |file: &Path| file.file_name().unwrap().to_str().unwrap().starts_with('.');
    assert!(tables::files(&output).iter().all(|file| is_hidden(file)));
    viewer.signal(Signal::INT);
    viewer.wait().expect_success();
    assert!(are_whole(&output), "{:?}", tables::files(&output));
    let rows = tables::rows(&output);
    // The last events may not have been read yet. The third file shows that half of them were.
    let lines = tables::json_lines(&lab, &input);
    assert!(rows.len() > 150, "{}", rows.len());
    assert_equal(&rows, &lines[..rows.len()], &input);
}

#[test]
fn a_killed_program_leaves_no_file_that_readers_take_for_a_table() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input);
    let output = lab.path().join("tables");
    let words = [
        "--sink",
        "parquet",
        "-o",
        output.to_str().unwrap(),
        "--follow",
    ];
    let viewer = Process::start(test_live::command(&lab, &words).arg(&input));
    wait_until("files are being written", || {
        output.is_dir() && tables::files(&output).len() > 2
    });
    viewer.signal(Signal::KILL);
    drop(viewer.wait());
    let extension = |file: &Path| file.extension().unwrap().to_owned();
    assert!(
        tables::files(&output)
            .iter()
            .all(|file| extension(file) != "parquet")
    );
}

#[test]
fn tables_are_put_into_a_bucket() {
    let lab = Lab::new();
    let root = lab.directory("rclone");
    std::fs::create_dir(root.join("bucket")).unwrap();
    let mut server = lab.command(peers::RCLONE.path());
    server.args([
        "serve",
        "s3",
        "--addr",
        "127.0.0.1:0",
        "--auth-key",
        "key,secret",
    ]);
    let mut server = Process::start(server.arg(&root));
    let url = server.wait_for_stderr("address of rclone", |line| {
        let (_, rest) = line.split_once("server on [")?;
        Some(rest.split_once("/]")?.0.to_owned())
    });
    let input = traces::with_every_field_type(&lab);
    let run = |secret: &str| {
        let words = ["--sink", "parquet", "-o", "s3://bucket/below/it"];
        let mut viewer = test_live::command(&lab, &words);
        viewer.args(["--archive-endpoint", &url]).arg(&input);
        viewer
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", secret);
        viewer.env("TMPDIR", lab.path());
        Process::start(&mut viewer).wait()
    };
    let refused = run("wrong");
    assert_eq!(refused.status.code(), Some(1), "{:?}", refused.stderr);
    let printed = refused.stderr.join("\n");
    assert!(
        printed.contains("cannot put a file into the bucket"),
        "{printed}"
    );
    run("secret").expect_success();
    let output = root.join("bucket/below/it");
    assert_equal(
        &tables::rows(&output),
        &tables::json_lines(&lab, &input),
        &input,
    );
    // The files on this host are gone.
    let mut left = std::fs::read_dir(lab.path()).unwrap();
    let is_ours = |name: &str| name.starts_with("test-live-parquet-");
    assert!(!left.any(|entry| is_ours(entry.unwrap().file_name().to_str().unwrap())));
}
