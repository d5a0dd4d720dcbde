//! From the forms of a recording through `consumer` and `relayd` to CTF: every record arrives as it
//! was, in order.

use std::fs::{self, File};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use codetracer::events::{EventDecoder, Item};
use ctf::decode::StreamDecoder;
use ctf::directory::{self, StreamReader};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, wait_until};

/// Every kind of record and value, one on each line.
const LINES: &str = include_str!("../../crates/codetracer/tests/data/every-event.jsonl");
/// Every kind of record and value, as binary form 1.
const VERSION_1: &[u8] = include_bytes!("../../crates/codetracer/tests/data/every-event.v1.bin");
/// Every kind of record and value as binary form 0, which has no large integers.
const VERSION_0: &[u8] = include_bytes!("../../crates/codetracer/tests/data/every-event.v0.bin");

const METADATA: &str = r#"{"workdir":"/demo","program":"/demo/main.small","args":["a b"]}"#;

/// What a trace on the relay says about a recording.
#[derive(Debug, Default)]
struct Received {
    records: Vec<String>,
    metadata: Vec<String>,
    /// Copies of files, with their paths.
    files: Vec<(String, Vec<u8>)>,
}

/// Reads the only trace below a directory.
fn receive(output: &Path) -> Received {
    let mut received = Received::default();
    let traces = directory::open(&[output]).unwrap().traces;
    assert_eq!(traces.len(), 1);
    for trace in traces {
        let declared = trace.metadata.trace();
        assert_eq!(trace.streams.len(), 1);
        let mut packets = StreamReader::new(&trace.streams[0]);
        let mut decoder = StreamDecoder::new();
        let mut fields = EventDecoder::default();
        let mut packet = Vec::new();
        while packets.next(&mut packet).unwrap() {
            decoder.begin_packet(declared, &packet).unwrap();
            while decoder.advance(declared, &packet).unwrap() {
                let event = decoder.event(declared, &packet).unwrap();
                fields.clear();
                event.visit(&mut fields).unwrap();
                match fields.decode(event.class().name().unwrap()).unwrap() {
                    Item::Record(record) => received.records.push(record.to_string()),
                    Item::Metadata(metadata) => received.metadata.push(metadata.to_json()),
                    Item::End { records } => {
                        assert_eq!(records, received.records.len() as u64);
                    }
                    Item::FileChunk(chunk) => {
                        if chunk.offset == 0 {
                            received.files.push((chunk.path.into_owned(), Vec::new()));
                        }
                        let (_, content) = received.files.last_mut().unwrap();
                        assert_eq!(content.len() as u64, chunk.offset);
                        content.extend_from_slice(&chunk.content);
                        let is_last = content.len() as u64 == chunk.size;
                        assert_eq!(is_last, chunk.sha256.len() == 64);
                    }
                }
            }
        }
    }
    received
}

fn relay_options(relay: &Relay) -> [String; 2] {
    [
        format!("--ctrl-url=tcp://{}", relay.control),
        format!("--data-url=tcp://{}", relay.data),
    ]
}

/// Returns the command `consumer codetracer` with this source.
fn send_command(lab: &Lab, relay: &Relay, source: impl AsRef<Path>) -> Command {
    let mut command = lab.command(binaries::consumer());
    command
        .args(["codetracer", "--session=run", "--live=20000"])
        .args(relay_options(relay))
        .arg(source.as_ref());
    command
}

/// Sends a source to its end, and returns what arrives.
fn send(lab: &Lab, source: impl AsRef<Path>) -> Received {
    let relay = Relay::start(lab);
    let sent = Process::start(&mut send_command(lab, &relay, source)).wait();
    assert!(sent.status.success(), "{:#?}", sent.stderr);
    assert!(sent.stderr[0].contains("records/s"), "{:#?}", sent.stderr);
    receive(&relay.output)
}

fn lines() -> Vec<String> {
    LINES.lines().map(str::to_owned).collect()
}

fn array() -> String {
    format!("[{}]", lines().join(","))
}

/// Returns a directory with a recording and copies of two files.
fn recording(lab: &Lab) -> PathBuf {
    let directory = lab.directory("recording");
    fs::write(directory.join("trace.json"), array()).unwrap();
    fs::write(directory.join("trace_metadata.json"), METADATA).unwrap();
    fs::create_dir_all(directory.join("files/demo")).unwrap();
    fs::write(directory.join("files/demo/main.small"), "print 1\n").unwrap();
    let large: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    fs::write(directory.join("files/demo/large"), large).unwrap();
    directory
}

#[test]
fn a_finished_directory_arrives_with_metadata_and_copies() {
    let lab = Lab::new();
    let directory = recording(&lab);
    let received = send(&lab, &directory);
    assert_eq!(received.records, lines());
    assert_eq!(received.metadata, [METADATA]);
    let paths: Vec<_> = received.files.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["demo/main.small", "demo/large"]);
    for (path, content) in &received.files {
        let original = fs::read(directory.join("files").join(path)).unwrap();
        assert_eq!(*content, original, "{path}");
    }
}

#[test]
fn binary_files_and_lines_arrive_as_the_json_file_does() {
    for (name, content, missing) in [
        ("trace.json", array().as_bytes(), 0),
        ("trace.jsonl", LINES.as_bytes(), 0),
        ("v1.bin", VERSION_1, 0),
        ("v0.bin", VERSION_0, 1),
    ] {
        let lab = Lab::new();
        let file = lab.path().join(name);
        fs::write(&file, content).unwrap();
        let received = send(&lab, &file);
        assert_eq!(received.records.len(), lines().len() - missing, "{name}");
        if missing == 0 {
            assert_eq!(received.records, lines(), "{name}");
        }
        assert!(received.files.is_empty() && received.metadata.is_empty());
    }
}

#[test]
fn a_growing_directory_is_followed_until_its_array_is_closed() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let directory = lab.directory("recording");
    let sending = Process::start(&mut send_command(&lab, &relay, &directory));
    let mut file = File::create(directory.join("trace.json")).unwrap();
    let array = array();
    // Cut within elements, texts and characters; each piece has to be read before the next is
    // there.
    for piece in array.as_bytes().chunks(array.len() / 7 + 1) {
        file.write_all(piece).unwrap();
        let size = stream_size(&relay.output);
        let is_last = array.as_bytes().ends_with(piece);
        if !is_last {
            wait_until("the piece arrives", || stream_size(&relay.output) > size);
        }
        fs::write(directory.join("trace_metadata.json"), METADATA).unwrap();
        fs::create_dir_all(directory.join("files/demo")).unwrap();
        fs::write(directory.join("files/demo/main.small"), "1").unwrap();
    }
    sending.wait().expect_success();
    let received = receive(&relay.output);
    assert_eq!(received.records, lines());
    assert_eq!(received.metadata, [METADATA]);
    let last = received.files.last().unwrap();
    assert_eq!(last, &("demo/main.small".to_owned(), b"1".to_vec()));
}

/// Returns the bytes of the files of streams below a directory.
fn stream_size(output: &Path) -> usize {
    let files = tests::tree::files(output, "records_0");
    files.values().map(Vec::len).sum()
}

#[test]
fn a_pipe_ends_its_recording_and_sources_come_from_the_source_root() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let root = lab.directory("sources");
    fs::write(root.join("main.small"), "print 1\n").unwrap();
    fs::write(lab.path().join("secret"), "secret").unwrap();
    let mut command = send_command(&lab, &relay, "-");
    command
        .arg(format!("--source-root={}", root.display()))
        .stdin(Stdio::piped());
    let mut sending = Process::start(&mut command);
    let mut pipe = sending.stdin().unwrap();
    writeln!(pipe, "{METADATA}").unwrap();
    let main = root.join("main.small");
    let paths = [
        serde_json::json!({ "Path": main }).to_string(),
        serde_json::json!({ "Path": lab.path().join("secret") }).to_string(),
        serde_json::json!({ "Path": root.join("../secret") }).to_string(),
    ];
    for line in paths.iter().map(String::as_str).chain(LINES.lines()) {
        writeln!(pipe, "{line}").unwrap();
    }
    drop(pipe);
    sending.wait().expect_success();
    let received = receive(&relay.output);
    assert_eq!(received.records, [&paths[..], &lines()].concat());
    assert_eq!(received.metadata, [METADATA]);
    let copy = main.to_str().unwrap().trim_start_matches('/').to_owned();
    assert_eq!(received.files, [(copy, b"print 1\n".to_vec())]);
}

#[test]
fn malformed_elements_are_reported_and_the_rest_arrives() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let file = lab.path().join("trace.json");
    let text = r#"[{"Path":"p"},{"Path":7},{"Path":"q"},{"Step":{"path_id":-1}},{"New":[1]}]"#;
    fs::write(&file, text).unwrap();
    let sent = Process::start(&mut send_command(&lab, &relay, &file)).wait();
    assert!(sent.status.success(), "{:#?}", sent.stderr);
    let report = sent.stderr.last().unwrap();
    assert!(report.contains("2 elements are no records"), "{report}");
    let want = [
        r#"{"Path":"p"}"#,
        r#"{"Path":"<invalid>"}"#,
        r#"{"Path":"q"}"#,
        r#"{"New":[1]}"#,
    ];
    assert_eq!(receive(&relay.output).records, want);
}

#[test]
fn containers_and_missing_files_are_refused() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let directory = lab.directory("container");
    let container = [0xc0, 0xde, 0x72, 0xac, 0xe2, 4, 0, 0, 0, 0];
    fs::write(directory.join("run.ct"), container).unwrap();
    for (source, reason) in [
        (directory.clone(), "container"),
        (directory.join("run.ct"), "container"),
        (directory.join("none"), "No such file"),
    ] {
        let sent = Process::start(&mut send_command(&lab, &relay, source)).wait();
        assert_eq!(sent.status.code(), Some(1));
        let error = sent.stderr.last().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn links_and_fifos_in_somebody_elses_recording_are_not_opened() {
    let lab = Lab::new();
    let secret = lab.directory("secret");
    fs::write(secret.join("main.small"), "secret").unwrap();
    fs::write(secret.join("metadata"), METADATA).unwrap();
    fs::write(secret.join("records"), array()).unwrap();
    let source = lab.directory("source");
    fs::write(source.join("trace.json"), array()).unwrap();
    symlink(&secret, source.join("files")).unwrap();
    symlink("../secret/metadata", source.join("trace_metadata.json")).unwrap();
    let relay = Relay::start(&lab);
    let sent = Process::start(&mut send_command(&lab, &relay, &source)).wait();
    assert!(sent.status.success(), "{:#?}", sent.stderr);
    let warning = "source file is not sent path=\"/demo/main.small\"";
    assert!(sent.stderr[0].contains(warning), "{:#?}", sent.stderr);
    let received = receive(&relay.output);
    assert_eq!(received.records, lines());
    assert!(received.files.is_empty() && received.metadata.is_empty());

    let replace = |name: &str, with: &dyn Fn(&Path)| {
        let place = source.join(name);
        fs::remove_file(&place).unwrap();
        with(&place);
    };
    let fifo = |place: &Path| mkfifoat(CWD, place, Mode::RUSR | Mode::WUSR).unwrap();
    replace("trace_metadata.json", &fifo);
    Process::start(&mut send_command(&lab, &relay, &source))
        .wait()
        .expect_success();
    for (with, reason) in [
        (&fifo as &dyn Fn(&Path), "not a regular file"),
        (
            &|place: &Path| symlink("../secret/records", place).unwrap(),
            "Too many levels of symbolic links",
        ),
    ] {
        replace("trace.json", with);
        let sent = Process::start(&mut send_command(&lab, &relay, &source)).wait();
        assert_eq!(sent.status.code(), Some(1));
        let error = sent.stderr.last().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_recording_that_is_interrupted_ends_with_what_was_read() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let directory = recording(&lab);
    let cut = array().trim_end_matches(']').to_owned();
    fs::write(directory.join("trace.json"), cut).unwrap();
    let sending = Process::start(&mut send_command(&lab, &relay, &directory));
    wait_until("the records arrive", || {
        stream_size(&relay.output) > LINES.len()
    });
    sending.signal(Signal::INT);
    let sent = sending.wait();
    assert_eq!(sent.status.code(), Some(1));
    assert!(
        sent.stderr[0].contains("stopped before the end"),
        "{:#?}",
        sent.stderr
    );
    assert_eq!(receive(&relay.output).records, lines());
}

#[test]
fn babeltrace_shows_the_fields_of_records_and_reports_nothing() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let directory = recording(&lab);
    Process::start(&mut send_command(&lab, &relay, directory))
        .wait()
        .expect_success();
    let shown = Babeltrace::Two.read(&relay.output);
    assert_eq!(shown.stderr, [""; 0]);
    assert!(shown.status.success());
    let count = |name: &str| {
        let name = format!(" {name}: ");
        shown
            .stdout
            .iter()
            .filter(|line| line.contains(&name))
            .count()
    };
    let of_kind = |kind: &str| {
        let kind = format!("{{\"{kind}\":");
        LINES.lines().filter(|line| line.starts_with(&kind)).count()
    };
    for (name, kind) in [
        ("ct:step", "Step"),
        ("ct:call", "Call"),
        ("ct:return", "Return"),
        ("ct:value", "Value"),
        ("ct:log", "Event"),
        ("ct:path", "Path"),
        ("ct:function", "Function"),
        ("ct:type", "Type"),
    ] {
        assert_eq!(count(name), of_kind(kind), "{name}");
    }
    assert_eq!(count("ct:variable"), 2);
    assert_eq!(count("ct:meta"), 1);
    let call = shown.stdout.iter().find(|line| line.contains(" ct:call: "));
    let call = call.unwrap();
    assert!(
        call.contains(r#"function_id = 0, function = "<toplevel>", args = "[]""#),
        "{call}"
    );
    let step = shown.stdout.iter().find(|line| line.contains(" ct:step: "));
    let step = step.unwrap();
    assert!(
        step.contains(r#"path_id = 0, line = 1, file = "main.small""#),
        "{step}"
    );
}

#[test]
fn each_connection_to_the_socket_is_a_recording() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let socket = lab.path().join("codetracer.socket");
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "--live=20000", "--clock-interval=0"])
        .args(relay_options(&relay))
        .arg(format!("--codetracer={}", socket.display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut agent = Process::start(&mut command);
    agent.wait_for_stderr_text("consumer::agent: ready");
    wait_until("the socket is there", || socket.exists());
    let connect = || UnixStream::connect(&socket).unwrap();
    // One that sends nonsense, one that sends nothing, and one that stays.
    connect().write_all(&[0xff; 1000]).unwrap();
    drop(connect());
    let mut stays = connect();
    writeln!(stays, r#"{{"program":"stays","workdir":"/","args":[]}}"#).unwrap();
    let mut ends = connect();
    writeln!(ends, "{METADATA}\n[{{\"Path\":\"p\"}},").unwrap();
    ends.write_all(LINES.as_bytes()).unwrap();
    ends.shutdown(Shutdown::Write).unwrap();
    agent.wait_for_stderr_text("forwarded completely");
    stays.write_all(LINES.as_bytes()).unwrap();
    wait_until("the records arrive", || {
        stream_size(&relay.output) > 2 * LINES.len()
    });
    agent.signal(Signal::TERM);
    let ended = agent.wait();
    assert!(ended.status.success(), "{:#?}", ended.stderr);
    assert!(!socket.exists());
    let sessions = sessions(&relay.output);
    let of = |name: &str| {
        let mut all = sessions.iter();
        let session = all.find(|path| {
            let name = format!("{name}-");
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&name)
        });
        receive(session.unwrap())
    };
    let received = of("main.small");
    assert_eq!(received.metadata, [METADATA]);
    assert_eq!(received.records[1..], lines());
    let received = of("stays");
    assert_eq!(received.records, lines()[..received.records.len()]);
}

/// Returns the directories of sessions below that of the relay.
fn sessions(output: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    entries(output)
        .flat_map(|host| entries(&host).collect::<Vec<_>>())
        .collect()
}
