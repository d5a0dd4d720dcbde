//! What every sink of `test-live` guarantees. A new sink is tested by its row in the list of sinks;
//! `closed_output` tests that it ends silently when its reader is gone.

use std::fs;
use std::path::{Path, PathBuf};

use ::test_live::sink::SINKS;
use ::test_live::sink::row::{Open, SinkRow};
use codetracer::events::{EventEncoder, Item};
use codetracer::record::Record;
use ctf::directory::StreamHandle;
use ctf::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
use ctf::model::Uuid;
use ctf::write::{
    Appended, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter, TraceDeclaration,
    Value,
};
use ctf::{Bytes, Timestamp, TraceWriter};
use rustix::process::Signal;
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::{binaries, test_live, wait_until};

/// The number of events of an input, in two streams.
const EVENTS: usize = 2000;
/// The events that were lost before the second half.
const LOST: u64 = 7;
/// The end of the recording, in nanoseconds: later than that of all events.
const END: u64 = 1_000_000_000;
/// The name of an event that terminals, paths and formats may misinterpret.
const HOSTILE: &str = "../../\u{1b}[2J\u{9b}\"'\\`%s%n<script>{}\n,";

/// Returns the text of an event, by which it is found in any output.
fn marker(number: usize) -> String {
    format!("marker<{number:05}>")
}

/// Writes a trace with numbered events, and a recording of CodeTracer beside it: each sink finds
/// something to show.
fn write_input(directory: &Path, name: &str, events: usize) {
    let mut trace = TraceWriter::create(directory.join("app")).unwrap();
    let streams = [StreamHandle::FIRST, trace.add_stream()];
    let class = trace
        .event_class(name, &[("text", FieldType::Text)])
        .unwrap();
    for number in 0..events {
        let stream = streams[number / 3 % 2];
        if number == events / 2 {
            // Before the packet that counts them there is one that has lost none.
            trace.flush().unwrap();
            trace.discard(stream, LOST).unwrap();
        }
        let event = EventRecord {
            time: Timestamp(1_000_000 + 1000 * number as u64),
            process: 7,
            thread: 8,
            values: &[Value::Text(&marker(number))],
        };
        trace.write_to(stream, &class, &event).unwrap();
    }
    trace.finish().unwrap();
    write_recording(&directory.join("recording"));
}

/// Writes a recording of one function.
fn write_recording(directory: &Path) {
    let mut metadata =
        MetadataText::new(&TraceDeclaration::new(Uuid(*b"one recording of"), "test"));
    let (stream, mut encoder) = EventEncoder::declare(&mut metadata, 0).unwrap();
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 20, 1 << 20));
    let lines = include_str!("../../crates/codetracer/tests/data/every-event.jsonl");
    let lines: Vec<_> = lines.lines().take(8).collect();
    let (mut packets, mut index) = (Vec::new(), IndexFormat::V1_1.header_bytes());
    for (lines, end) in lines.chunks(4).zip([1, END]) {
        writer.set_context(&encoder.packet_context());
        writer.open(Timestamp(1)).unwrap();
        for line in lines {
            let record = Record::parse(line).unwrap();
            let mut text = String::new();
            let item = Item::Record(record.clone());
            let encoded = encoder.encode(&item, &mut text);
            let appended = writer.append(encoded.class(), &encoded.at(Timestamp(1)));
            assert_eq!(appended.unwrap(), Appended::Written);
            encoder.count_record(&record);
        }
        let packet = writer.close(Timestamp(end)).unwrap();
        let entry = Entry {
            offset: Bytes(packets.len() as u64),
            packet: packet.index,
        };
        let mut buffer = [0; MAX_ENTRY_BYTES];
        index.extend(IndexFormat::V1_1.encode(&entry, &mut buffer));
        packets.extend(packet.bytes);
    }
    fs::create_dir_all(directory.join("index")).unwrap();
    fs::write(directory.join("index/stream.idx"), index).unwrap();
    fs::write(directory.join("metadata"), metadata.as_str()).unwrap();
    fs::write(directory.join("stream"), packets).unwrap();
}

/// Returns the arguments that let a sink write `input` to `output`.
fn words<'a>(sink: &'a SinkRow, input: &'a Path, output: &'a Path) -> [&'a str; 5] {
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    ["--sink", sink.name, "--output", output, input]
}

/// Lets a sink write an input. Returns how it ended, and its output.
fn run(lab: &Lab, sink: &SinkRow, input: &Path, options: &[&str]) -> (CompletedProcess, PathBuf) {
    let output = lab.path().join(format!("{}-{}", sink.name, options.len()));
    let words = words(sink, input, &output);
    let ended = test_live::start(lab, &[&words, options].concat()).wait();
    (ended, output)
}

/// Returns the content of a file, or of all files of a directory, in the order of their paths.
fn contents(path: &Path) -> Vec<Vec<u8>> {
    if path.is_file() {
        return vec![fs::read(path).unwrap()];
    }
    let mut paths: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().flat_map(|path| contents(path)).collect()
}

/// Returns the numbers of the markers in an output, in the order of their first appearance.
fn markers(content: &[u8]) -> Vec<usize> {
    let text = String::from_utf8_lossy(content);
    let parts = text.split("marker<").skip(1);
    let mut numbers: Vec<usize> = parts.map(|part| part[..5].parse().unwrap()).collect();
    numbers.dedup();
    numbers
}

#[test]
fn every_sink_shows_all_events_in_order_also_after_losses() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input, "app:step", EVENTS);
    for sink in SINKS {
        let (ended, output) = run(&lab, sink, &input, &[]);
        let printed = ended.stderr.join("\n");
        assert_eq!(ended.status.code(), Some(0), "{}: {printed}", sink.name);
        assert!(
            printed.contains("discarded 7 events"),
            "{}: {printed}",
            sink.name
        );
        let shown: Vec<_> = contents(&output).iter().map(|file| markers(file)).collect();
        // The tables are compressed: `export` reads them.
        if sink.name == "parquet" {
            continue;
        }
        for file in &shown {
            assert!(file.is_sorted(), "{}: {file:?}", sink.name);
        }
        // A sink that counts events, or shows only some, has none of these.
        let all = shown.concat().len();
        assert!(
            all == EVENTS || all == 0,
            "{}: {all} of {EVENTS}",
            sink.name
        );

        let (ended, _) = run(&lab, sink, &input, &["--strict"]);
        assert_eq!(ended.status.code(), Some(1), "{}: --strict", sink.name);
    }
}

#[test]
fn every_sink_reports_a_full_disk() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input, "app:step", EVENTS);
    let small = lab.directory("small");
    let disk =
        SmallDisk::mount(&small, 256).expect("this test mounts a file system: run it as root");
    for sink in SINKS {
        let (_, whole) = run(&lab, sink, &input, &["--quiet"]);
        let has_output = contents(&whole).iter().any(|file| !file.is_empty());
        disk.fill(0);
        let output = small.join(sink.name);
        let ended = test_live::start(&lab, &words(sink, &input, &output)).wait();
        let printed = ended.stderr.join("\n");
        disk.free_space();
        let status = if has_output { 1 } else { 0 };
        assert_eq!(
            ended.status.code(),
            Some(status),
            "{}: {printed}",
            sink.name
        );
        let is_named = printed.contains("No space left on device");
        assert_eq!(is_named, has_output, "{}: {printed}", sink.name);
    }
}

#[test]
fn every_sink_completes_its_output_when_it_is_interrupted() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input, "app:step", EVENTS);
    for sink in SINKS {
        let (ended, whole) = run(&lab, sink, &input, &[]);
        assert_eq!(ended.status.code(), Some(0), "{}", sink.name);
        let output = lab.path().join(format!("{}-interrupted", sink.name));
        let mut command = lab.command(binaries::test_live());
        let words = words(sink, &input, &output);
        let viewer = Process::start(command.args(words).args(["--follow", "-v"]));
        wait_until("half of the input has been shown", || {
            let mut lines = viewer.stderr().into_iter();
            let is_begun = match sink.open {
                Open::Stream(_) => true,
                Open::Directory(_) => output.exists() && !contents(&output).is_empty(),
            };
            is_begun && lines.any(|line| line.contains("discarded"))
        });
        viewer.signal(Signal::INT);
        let ended = viewer.wait();
        let printed = ended.stderr.join("\n");
        assert_eq!(ended.status.code(), Some(0), "{}: {printed}", sink.name);
        let (shown, whole) = (contents(&output), contents(&whole));
        assert!(!shown.is_empty(), "{}", sink.name);
        if matches!(sink.open, Open::Stream(_)) {
            let ends = [&shown, &whole].map(|files| files[0].last().copied());
            assert_eq!(ends[0], ends[1], "{}", sink.name);
        }
        let count = |files: &[Vec<u8>]| files.iter().map(|file| markers(file).len()).sum::<usize>();
        let (shown, whole) = (count(&shown), count(&whole));
        assert!(shown >= whole / 2, "{}: {shown} of {whole}", sink.name);
    }
}

#[test]
fn every_sink_says_how_it_ends_without_events() {
    let lab = Lab::new();
    let input = lab.directory("input");
    TraceWriter::create(input.join("empty"))
        .unwrap()
        .finish()
        .unwrap();
    for sink in SINKS {
        let (ended, _) = run(&lab, sink, &input, &[]);
        let printed = ended.stderr.join("\n");
        match ended.status.code() {
            Some(0) => assert!(!printed.contains("error"), "{}: {printed}", sink.name),
            Some(1) => assert!(
                printed.contains("test-live: error: "),
                "{}: {printed}",
                sink.name
            ),
            other => panic!("{}: {other:?}: {printed}", sink.name),
        }
    }
}

#[test]
fn every_sink_keeps_hostile_names_within_its_output() {
    let lab = Lab::new();
    let input = lab.directory("input");
    write_input(&input, HOSTILE, 10);
    for sink in SINKS {
        let before = names(lab.path());
        let (ended, output) = run(&lab, sink, &input, &[]);
        let printed = ended.stderr.join("\n");
        assert_eq!(ended.status.code(), Some(0), "{}: {printed}", sink.name);
        let mut after = names(lab.path());
        after.retain(|name| !before.contains(name));
        let own = output.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(after, [own], "{}", sink.name);
        // Text is to the byte what babeltrace2 writes, which passes names on as they are. The
        // formats of Perfetto and Parquet are binary.
        if sink.needs.events && !["text", "perfetto", "parquet"].contains(&sink.name) {
            let raw = contents(&output).concat();
            assert!(
                !raw.contains(&0x1b),
                "{}: {}",
                sink.name,
                String::from_utf8_lossy(&raw)
            );
        }
    }
}

/// Returns the names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
