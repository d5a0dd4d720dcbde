//! An output directory of `--sink codetracer` that an earlier process has left, as sections: its
//! marker `.test-live`, its metadata, its paths and its records. The first byte says what the
//! marker is. A recording that is written has what it has in a new directory; if the directory has
//! another one, nothing of that changes.
#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use codetracer::events::{EventEncoder, Item};
use codetracer::metadata::RecordingMetadata;
use codetracer::record::Record;
use ctf::model::{EnvironmentValue, Uuid};
use ctf::write::{Appended, MetadataText, PacketSize, StreamWriter, TraceDeclaration};
use fuzz::sections;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tempfile::TempDir;
use test_live::cli::Arguments;
use test_live::run::run;
use viewer::run::{Outcome, Stop};
use wire::Timestamp;

const MARKER: &str = ".test-live";
/// The files of a recording in the order of the sections, the marker first.
const FILES: [&str; 4] = [
    MARKER,
    "trace_metadata.json",
    "trace_paths.json",
    "trace.json",
];
/// The content of the file to which a symbolic link leads.
const PRECIOUS: &[u8] = b"{\"id\":\"x\",\"name\":\"host/recording\"}";

/// Files by their names.
type Files = BTreeMap<&'static str, Vec<u8>>;

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(fuzz::output);
static TRACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = DIRECTORY.path().join("trace");
    write_trace(&directory);
    directory
});
/// The files of the recording in a new directory.
static EXPECTED: LazyLock<Files> = LazyLock::new(|| {
    let output = DIRECTORY.path().join("expected");
    assert!(write_recording(&output));
    read_files(&output)
});

fuzz_target!(|input: &[u8]| {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let parent = fuzz::output();
    let (output, precious) = (parent.path().join("output"), parent.path().join("precious"));
    fs::create_dir(&output).expect("a directory");
    fs::write(&precious, PRECIOUS).expect("a file");
    let mut sections = sections(input);
    for name in FILES {
        let content = sections.next().unwrap_or_default();
        let path = output.join(name);
        // One of the cases is a link: what it leads to must not be written.
        let is_made = match (name == MARKER, flags & 7) {
            (true, 1) => Ok(()),
            (true, 2) => std::os::unix::fs::symlink("../precious", path),
            (true, 3) => fs::create_dir(path),
            (false, _) if content.is_empty() => Ok(()),
            _ => fs::write(path, content),
        };
        is_made.expect("a file");
    }
    let before = read_files(&output);
    let found = marker(&before);
    let is_written = write_recording(&output);
    let after = read_files(&output);
    assert_eq!(fs::read(&precious).expect("a file"), PRECIOUS);
    let (own_id, own_name) = marker(&EXPECTED).expect("a marker");
    match is_written {
        true => {
            let is_other = found.is_some_and(|(id, name)| id != own_id && name != own_name);
            assert!(!is_other, "another recording is written over");
            let (id, _) = marker(&after).expect("a marker");
            assert_eq!(id, own_id);
            let of_recording = |files: &Files| {
                let files = files.iter().filter(|(name, _)| **name != MARKER);
                files
                    .map(|(_, content)| content.clone())
                    .collect::<Vec<_>>()
            };
            assert_eq!(of_recording(&after), of_recording(&EXPECTED));
        }
        false => assert_eq!(after, before),
    }
    // A second run finds what the first has left.
    assert_eq!(write_recording(&output), is_written, "again");
    assert_eq!(read_files(&output), after, "again");
});

/// Writes the recording to a directory. Returns whether that is possible.
fn write_recording(output: &Path) -> bool {
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let words = [
        "test-live",
        "--quiet",
        "--no-follow",
        "--sink=codetracer",
        "-o",
        &text(output),
        &text(&TRACE),
    ];
    let outcome = run(&Arguments::from_words(words), &Stop::default());
    matches!(outcome, Ok(Outcome::Whole))
}

/// The id and the name in a marker, if it is one.
fn marker(files: &Files) -> Option<(String, String)> {
    let marker: Value = serde_json::from_slice(files.get(MARKER)?).ok()?;
    let text = |name: &str| Some(marker.get(name)?.as_str()?.to_owned());
    Some((text("id")?, text("name")?))
}

/// The files of a recording in a directory.
fn read_files(output: &Path) -> Files {
    let file = |name| Some((name, fs::read(output.join(name)).ok()?));
    FILES.into_iter().filter_map(file).collect()
}

/// Writes a small recording as a trace.
fn write_trace(directory: &Path) {
    let mut declaration = TraceDeclaration::new(Uuid([1; 16]), "test");
    declaration.environment = [("hostname", "host"), ("trace_name", "recording")]
        .map(|(name, value)| (name.to_owned(), EnvironmentValue::Text(value.into())))
        .to_vec();
    let mut metadata = MetadataText::new(&declaration);
    let (stream, mut encoder) = EventEncoder::declare(&mut metadata, 0).expect("classes");
    let mut writer = StreamWriter::new(&stream, 0, 0, PacketSize::new(1 << 16, 1 << 16));
    writer.set_context(&encoder.packet_context());
    writer.open(Timestamp(1)).expect("a packet");
    let program = r#"{"workdir":"/demo","program":"main.small","args":["3"]}"#;
    let program = Item::Metadata(RecordingMetadata::parse(program).expect("metadata"));
    let records = [
        r#"{"Path":"/demo/main.small"}"#,
        r#"{"Function":{"path_id":0,"line":1,"name":"main"}}"#,
        r#"{"Call":{"function_id":0,"args":[]}}"#,
        r#"{"Step":{"path_id":0,"line":1}}"#,
        r#"{"Step":{"path_id":0,"line":2}}"#,
    ];
    let records = records.map(|record| Item::Record(Record::parse(record).expect("a record")));
    let mut text = String::new();
    for item in [program].into_iter().chain(records) {
        let encoded = encoder.encode(&item, &mut text);
        let appended = writer.append(encoded.class(), &encoded.at(Timestamp(1)));
        assert_eq!(appended.expect("open"), Appended::Written);
        if let Item::Record(record) = &item {
            encoder.count_record(record);
        }
    }
    let packet = writer.close(Timestamp(1)).expect("a packet").bytes.to_vec();
    fs::create_dir(directory).expect("a directory");
    fs::write(directory.join("metadata"), metadata.as_str()).expect("a file");
    fs::write(directory.join("stream"), packet).expect("a file");
}
