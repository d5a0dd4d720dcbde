//! Directories that are stopped at any step, copied while they are written, and begun again.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use codetracer::events::Item;
use codetracer::reader::RecordingReader;
use codetracer::record::Record;
use codetracer::rules::ReplayFilter;
use codetracer_trace_types::{TraceLowLevelEvent, TraceMetadata};
use rustix::fs::{CWD, mkfifoat};
use tempfile::TempDir;

use super::*;

/// A small recording of two functions. From the format's examples, MIT licence.
const DEMO: &str = include_str!("../../../../../crates/codetracer/tests/data/demo.json");
const EVERY_EVENT: &str =
    include_str!("../../../../../crates/codetracer/tests/data/every-event.jsonl");

/// The records of the demo, as elements.
fn demo() -> Vec<String> {
    let records: Vec<&serde_json::value::RawValue> = serde_json::from_str(DEMO).unwrap();
    let text = |record: &&serde_json::value::RawValue| record.get().to_owned();
    records.iter().map(text).collect()
}

fn recording() -> RecordingId {
    RecordingId {
        id: "1".into(),
        name: "host/demo".into(),
    }
}

fn program() -> RecordingMetadata {
    RecordingMetadata {
        workdir: "/demo".into(),
        program: "main.small".into(),
        args: vec!["--n".into(), "3".into()],
        ..RecordingMetadata::default()
    }
}

/// A directory that is written record by record.
struct Writer {
    directory: RecordingDirectory,
    filter: ReplayFilter,
}

impl Writer {
    fn open(path: &Path, form: OutputForm) -> Result<Self, DirectoryError> {
        let mut directory = loop {
            match RecordingDirectory::open(path, form, &recording()) {
                // A program that another test starts holds all locks of this process for a moment.
                Err(DirectoryError::InUse { .. }) => std::thread::yield_now(),
                opened => break opened?,
            }
        };
        directory.set_metadata(&program());
        let filter = ReplayFilter::new(form);
        Ok(Self { directory, filter })
    }

    fn push(&mut self, element: &str) {
        self.filter.push(&Record::parse(element).unwrap(), None);
    }

    fn publish(&mut self) -> Result<(), DirectoryError> {
        self.directory.add_paths(&self.filter.take_paths());
        let uncertain = self.filter.uncertain().to_vec();
        self.directory.publish(self.filter.certain(), &uncertain)
    }

    fn finish(&mut self) -> Result<(), DirectoryError> {
        self.filter.finish();
        self.directory.add_paths(&self.filter.take_paths());
        self.directory.finish(self.filter.certain())
    }
}

#[test]
fn a_recording_with_a_long_name_is_not_written_over_by_another_one() {
    let directory = TempDir::new().unwrap();
    let open = |name: &str| {
        let (id, name) = (name.to_owned(), name.to_owned());
        let id = RecordingId { id, name };
        loop {
            match RecordingDirectory::open(directory.path(), OutputForm::Json, &id) {
                Err(DirectoryError::InUse { .. }) => std::thread::yield_now(),
                opened => return opened.map(drop),
            }
        }
    };
    let long = "x".repeat(70_000);
    open(&long).unwrap();
    open(&long).unwrap();
    let refused = open("other").unwrap_err();
    assert!(matches!(refused, DirectoryError::OtherRecording { .. }));
}

/// The records in a directory, or `None` if it has no recording yet. Panics if it is not valid.
fn read(path: &Path) -> Option<Vec<String>> {
    let records = fs::read(path.join("trace.json")).ok()?;
    serde_json::from_slice::<Vec<TraceLowLevelEvent>>(&records).unwrap();
    let text = String::from_utf8(records).unwrap();
    check_other_parts(path);
    let body = text
        .strip_prefix("[\n")
        .unwrap_or("[")
        .strip_suffix("\n]\n");
    let body = body.unwrap_or_default();
    let lines = body.split(",\n").filter(|line| !line.is_empty());
    Some(lines.map(str::to_owned).collect())
}

fn check_other_parts(path: &Path) {
    let text = |name: &str| fs::read(path.join(name)).unwrap();
    serde_json::from_slice::<TraceMetadata>(&text("trace_metadata.json")).unwrap();
    serde_json::from_slice::<Vec<PathBuf>>(&text("trace_paths.json")).unwrap();
    assert!(path.join("files").is_dir());
}

/// The names in a directory that are not hidden.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

const ALL_NAMES: [&str; 4] = [
    "files",
    "trace.json",
    "trace_metadata.json",
    "trace_paths.json",
];

#[test]
fn every_prefix_of_a_recording_is_a_valid_directory() {
    for elements in [demo(), EVERY_EVENT.lines().map(str::to_owned).collect()] {
        let temporary = TempDir::new().unwrap();
        let path = temporary.path().join("recording");
        let mut writer = Writer::open(&path, OutputForm::Json).unwrap();
        assert_eq!(read(&path), None);
        writer.publish().unwrap();
        assert_eq!(read(&path).unwrap().len(), 0);
        let mut visible = 0;
        let is_kept = |at: usize| match elements.get(at..at + 2) {
            Some([_, next]) if next.contains("DropLastStep") => false,
            _ => !elements[at].contains("DropLastStep"),
        };
        let kept = (0..elements.len()).filter(|at| is_kept(*at));
        let kept: Vec<_> = kept.map(|at| elements[at].clone()).collect();
        for element in &elements {
            writer.push(element);
            writer.publish().unwrap();
            let records = read(&path).unwrap();
            assert!(records.len() >= visible);
            visible = records.len();
            assert_eq!(records, kept[..visible]);
        }
        writer.finish().unwrap();
        assert_eq!(read(&path).unwrap(), kept);
        assert_eq!(names(&path), ALL_NAMES);
    }
}

#[test]
fn a_file_that_a_reader_has_opened_never_changes() {
    let temporary = TempDir::new().unwrap();
    let mut writer = Writer::open(temporary.path(), OutputForm::Json).unwrap();
    let mut readers: Vec<(File, Vec<u8>)> = Vec::new();
    for (number, element) in demo().iter().cycle().take(200).enumerate() {
        writer.push(element);
        writer.publish().unwrap();
        if number % 3 == 0 {
            let path = temporary.path().join("trace.json");
            readers.push((File::open(&path).unwrap(), fs::read(&path).unwrap()));
        }
        if number % 40 == 0 {
            readers.clear();
        }
        for (file, content) in &readers {
            let mut now = vec![0; content.len() + 1];
            assert_eq!(file.read_at(&mut now, 0).unwrap(), content.len());
            assert_eq!(now[..content.len()], **content);
        }
    }
    read(temporary.path()).unwrap();
}

#[test]
fn a_copy_at_any_time_is_valid_while_the_directory_is_written() {
    let mut copies = 0;
    for _ in 0..1000 {
        copies += usize::from(is_copied_while_written());
        if copies == 50 {
            return;
        }
    }
    panic!("{copies} copies");
}

/// Copies a directory while it is written, and checks the copy. Returns false if `cp` left out a
/// file that has changed names between its `stat` and its `open`, which it says.
fn is_copied_while_written() -> bool {
    let temporary = TempDir::new().unwrap();
    let [path, copy] = ["recording", "copy"].map(|name| temporary.path().join(name));
    let mut writer = Writer::open(&path, OutputForm::Json).unwrap();
    writer.publish().unwrap();
    let mut command = std::process::Command::new("cp");
    command.env("LC_ALL", "C").arg("-r").arg(&path).arg(&copy);
    let mut cp = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut all = Vec::new();
    for element in demo().into_iter().cycle() {
        writer.push(&element);
        writer.publish().unwrap();
        all.push(element);
        if cp.try_wait().unwrap().is_some() {
            break;
        }
    }
    let messages = io::read_to_string(cp.stderr.take().unwrap()).unwrap();
    // Spare copies are none of the recording.
    let mut messages = messages.lines().filter(|line| !line.contains("/.trace"));
    if let Some(message) = messages.next() {
        assert!(message.contains("replaced while being copied"), "{message}");
        return false;
    }
    let copied = read(&copy).unwrap();
    let mut filter = ReplayFilter::new(OutputForm::Json);
    for element in all {
        filter.push(&Record::parse(&element).unwrap(), None);
    }
    filter.finish();
    let text = String::from_utf8(filter.certain().clone()).unwrap();
    let whole: Vec<_> = text.split(",\n").skip(1).collect();
    assert_eq!(copied, whole[..copied.len()]);
    true
}

/// Writes the demo with a publication after every third record, until the steps are used up.
fn write_demo(path: &Path, form: OutputForm) -> Result<(), DirectoryError> {
    let mut writer = Writer::open(path, form)?;
    for (number, element) in demo().iter().enumerate() {
        writer.push(element);
        if number % 3 == 0 {
            writer.publish()?;
        }
        if number == 10 {
            let chunk = chunk("/demo/main.small", b"content", 0, 7);
            writer.directory.write_chunk(&chunk).ok();
        }
    }
    writer.finish()
}

fn chunk<'a>(path: &'a str, content: &'a [u8], offset: u64, size: u64) -> FileChunk<'a> {
    let is_last = offset + content.len() as u64 == size;
    let digest = ring::digest::digest(&ring::digest::SHA256, b"content");
    let digits: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    FileChunk {
        path: path.into(),
        size,
        offset,
        content: content.into(),
        sha256: if is_last { digits } else { String::new() }.into(),
    }
}

#[test]
fn a_directory_is_valid_after_a_stop_at_any_step_and_complete_after_the_next_run() {
    let demo = demo();
    let mut stopped = 0;
    for steps in 0.. {
        let temporary = TempDir::new().unwrap();
        let path = temporary.path().join("recording");
        steps::fail_at(steps);
        let written = write_demo(&path, OutputForm::Json);
        steps::fail_at(u64::MAX);
        let before = read(&path).unwrap_or_default();
        assert_eq!(before, demo[..before.len()], "{steps}");
        // Stopped again in the next run: what is visible never becomes less.
        for more in [7, 23, 61] {
            steps::fail_at(more);
            let _ = write_demo(&path, OutputForm::Json);
            steps::fail_at(u64::MAX);
            let after = read(&path).unwrap_or_default();
            assert!(after.len() >= before.len(), "{steps} {more}");
        }
        write_demo(&path, OutputForm::Json).unwrap();
        assert_eq!(read(&path).unwrap(), demo, "{steps}");
        assert_eq!(names(&path), ALL_NAMES);
        assert_eq!(
            fs::read(path.join("files/demo/main.small")).unwrap(),
            b"content"
        );
        match written {
            Ok(()) => break,
            Err(_) => stopped += 1,
        }
    }
    assert!(stopped > 30, "{stopped}");
}

#[test]
fn a_binary_file_has_the_same_records_at_any_time() {
    let demo = demo();
    for steps in (0..).step_by(3) {
        let temporary = TempDir::new().unwrap();
        let path = temporary.path().join("recording");
        steps::fail_at(steps);
        let written = write_demo(&path, OutputForm::Binary);
        steps::fail_at(u64::MAX);
        let before = read_binary(&path).unwrap_or_default();
        assert_eq!(before, demo[..before.len()], "{steps}");
        write_demo(&path, OutputForm::Binary).unwrap();
        assert_eq!(read_binary(&path).unwrap(), demo, "{steps}");
        if written.is_ok() {
            // The other form replaces it.
            assert_eq!(names(&path)[1], "trace.bin");
            write_demo(&path, OutputForm::Json).unwrap();
            assert_eq!(names(&path), ALL_NAMES);
            break;
        }
    }
}

/// The records of a binary file, read with its seek table.
fn read_binary(path: &Path) -> Option<Vec<String>> {
    let bytes = fs::read(path.join("trace.bin")).ok()?;
    check_other_parts(path);
    let (magic, bytes) = bytes.split_at(8);
    assert_eq!(magic, b"\xC0\xDE\x72\xAC\xE2\x01\0\0");
    let number = |at: usize| {
        let bytes = bytes[at..at + 4].try_into().unwrap();
        usize::try_from(u32::from_le_bytes(bytes)).unwrap()
    };
    let frames = number(bytes.len() - 9);
    let table = bytes.len() - 9 - 8 * frames;
    assert_eq!(bytes[table - 8..table - 4], [0x5E, 0x2A, 0x4D, 0x18]);
    assert_eq!(number(table - 4), 8 * frames + 9);
    let (mut at, mut cbor) = (0, Vec::new());
    for frame in 0..frames {
        let (compressed, length) = (number(table + 8 * frame), number(table + 8 * frame + 4));
        let part = zstd::bulk::decompress(&bytes[at..at + compressed], length).unwrap();
        assert_eq!(part.len(), length);
        at += compressed;
        cbor.extend(part);
    }
    assert_eq!(at, table - 8);
    let mut whole = magic.to_vec();
    whole.extend_from_slice(bytes);
    let mut reader = RecordingReader::new(1 << 20);
    reader.push(&whole).unwrap();
    reader.end();
    let mut records = Vec::new();
    let mut cbor_again = Vec::new();
    while let Some(item) = reader.next_item() {
        let Item::Record(record) = item.unwrap() else {
            panic!("not a record");
        };
        OutputForm::Binary.write(&record, &mut cbor_again);
        records.push(record.to_string());
    }
    assert_eq!(cbor_again, cbor);
    Some(records)
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let temporary = TempDir::new().unwrap();
    let path = temporary.path();
    let open = |recording: &RecordingId| {
        let opened = RecordingDirectory::open(path, OutputForm::Json, recording);
        opened.map_err(|error| error.to_string())
    };
    fs::write(path.join("x"), "").unwrap();
    assert!(open(&recording()).unwrap_err().contains("is not empty"));
    fs::remove_file(path.join("x")).unwrap();
    let first = open(&recording()).unwrap();
    assert!(open(&recording()).unwrap_err().contains("another process"));
    drop(first);
    let other = RecordingId {
        id: "2".into(),
        name: "host/other".into(),
    };
    let error = open(&other).unwrap_err();
    assert!(error.contains("the recording host/demo;"), "{error}");
    open(&recording()).unwrap();
}

#[test]
fn a_recording_that_is_sent_again_continues_the_directory_and_another_one_does_not() {
    let temporary = TempDir::new().unwrap();
    let path = temporary.path().join("recording");
    let demo = demo();
    let write = |id: &str, records: &[String]| {
        let recording = RecordingId {
            id: id.into(),
            ..recording()
        };
        let mut directory = RecordingDirectory::open(&path, OutputForm::Json, &recording)?;
        directory.set_metadata(&program());
        let mut filter = ReplayFilter::new(OutputForm::Json);
        for element in records {
            filter.push(&Record::parse(element).unwrap(), None);
            directory.publish(filter.certain(), &[])?;
        }
        filter.finish();
        directory.finish(filter.certain())
    };
    write("1", &demo[..20]).unwrap();
    write("2", &demo).unwrap();
    assert_eq!(read(&path).unwrap(), demo);
    for other in [&demo[..30], &demo[1..], &[&demo[1..], &demo].concat()] {
        let refused = write("3", other).unwrap_err();
        assert!(refused.to_string().contains("host/demo"), "{refused}");
        assert_eq!(read(&path).unwrap(), demo);
    }
}

#[test]
fn a_fifo_or_link_in_the_place_of_a_file_of_the_output_is_an_error_at_once() {
    for name in [MARKER, "trace.json", ".trace.json.1", "trace_metadata.json"] {
        let temporary = TempDir::new().unwrap();
        let path = temporary.path().join("recording");
        Writer::open(&path, OutputForm::Json).unwrap();
        let place = path.join(name);
        let _ = fs::remove_file(&place);
        mkfifoat(CWD, &place, Mode::RUSR | Mode::WUSR).unwrap();
        let refused = Writer::open(&path, OutputForm::Json).err().unwrap();
        let reason = daemon::error_text::describe_error(&refused);
        assert!(reason.contains("not a regular file"), "{name}: {reason}");
        fs::remove_file(&place).unwrap();
        symlink("elsewhere", &place).unwrap();
        assert!(Writer::open(&path, OutputForm::Json).is_err(), "{name}");
        assert!(!path.join("elsewhere").exists());
    }
}

#[test]
fn source_files_stay_below_their_directory_and_are_complete_or_absent() {
    let temporary = TempDir::new().unwrap();
    let path = temporary.path().join("recording");
    let outside = temporary.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let mut writer = Writer::open(&path, OutputForm::Json).unwrap();
    symlink(&outside, path.join("files/link")).unwrap();
    symlink(outside.join("x"), path.join("files/file")).unwrap();
    let mut write = |chunk: FileChunk<'_>| writer.directory.write_chunk(&chunk);
    for (wrong, content) in [
        ("../x", b"content"),
        ("/a/../../x", b"content"),
        ("", b"content"),
        ("/", b"content"),
        ("a\0b", b"content"),
        ("link/x", b"content"),
        ("file", b"content"),
        ("/a/hash", b"CONTENT"),
        ("/files", b"conten\n"),
    ] {
        assert!(write(chunk(wrong, content, 0, 7)).is_err(), "{wrong:?}");
    }
    // In two parts; then a second time, and with another one that is cut off.
    write(chunk("//a/./b", b"con", 0, 7)).unwrap();
    assert!(!path.join("files/a/b").exists());
    write(chunk("//a/./b", b"tent", 3, 7)).unwrap();
    write(chunk("a/b", b"content", 0, 7)).unwrap();
    assert!(write(chunk("a/b/c", b"content", 0, 7)).is_err());
    write(chunk("a/c", b"con", 0, 7)).unwrap();
    assert!(write(chunk("a/d", b"tent", 3, 7)).is_err());
    assert!(write(chunk("a/c", b"tent", 3, 7)).is_err());
    // Another content in its place is replaced.
    fs::write(path.join("files/a/b"), "other").unwrap();
    write(chunk("a/b", b"content", 0, 7)).unwrap();
    let found = tree(&path.join("files"));
    assert_eq!(
        found,
        BTreeMap::from([("a/b".to_owned(), b"content".to_vec())])
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// The regular files below a directory.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let name = path
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}
