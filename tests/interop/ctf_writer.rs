//! Traces of the `ctf` writer, read by Babeltrace without a warning: every field type, new
//! declarations, and losses.

use std::fs;
use std::path::Path;

use ctf::index::{Entry, IndexFormat, MAX_ENTRY_BYTES};
use ctf::model::{EnvironmentValue, LogLevel, Uuid};
use ctf::write::{
    Appended, Argument, ArgumentValue, DeclaredEventClass, DeclaredStreamClass, Enumeration,
    EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter, TraceClock,
    TraceDeclaration, Value, Width, metadata_packets,
};
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use wire::{Bytes, Timestamp};

const UUID: Uuid = Uuid(*b"0123456789abcdef");

fn metadata() -> MetadataText {
    let text = |text: &str| EnvironmentValue::Text(text.into());
    let environment = [
        ("trace_name", text("a \"name\"\n\u{e9}")),
        ("hostname", text("host")),
        ("procname", text("prog")),
        ("vpid", EnvironmentValue::Integer(-42)),
    ];
    MetadataText::new(&TraceDeclaration {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        clock: TraceClock {
            uuid: Some(Uuid([7; 16])),
            offset_seconds: 1_767_225_600,
            offset_nanoseconds: 123_456_789,
        },
        ..TraceDeclaration::new(UUID, "our-producer")
    })
}

fn fields(fields: &[(&str, FieldType)]) -> Vec<(String, FieldType)> {
    let owned = |(name, of): &(&str, FieldType)| ((*name).to_owned(), of.clone());
    fields.iter().map(owned).collect()
}

/// The tracefile and the index file of a stream.
struct Files {
    data: Vec<u8>,
    index: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        Self {
            data: Vec::new(),
            index: IndexFormat::V1_1.header_bytes(),
        }
    }

    fn close(&mut self, writer: &mut StreamWriter, end: u64) {
        let packet = writer.close(Timestamp(end)).unwrap();
        let entry = Entry {
            offset: Bytes(self.data.len() as u64),
            packet: packet.index,
        };
        self.data.extend(packet.bytes);
        let mut bytes = [0; MAX_ENTRY_BYTES];
        self.index
            .extend(IndexFormat::V1_1.encode(&entry, &mut bytes));
    }

    fn write(&self, directory: &Path, name: &str) {
        let index = directory.join("index");
        fs::create_dir_all(&index).unwrap();
        fs::write(directory.join(name), &self.data).unwrap();
        fs::write(index.join(format!("{name}.idx")), &self.index).unwrap();
        let read = ctf::index::read(&self.index).unwrap();
        assert!(read.covers_file(Bytes(self.data.len() as u64)));
    }
}

fn append(writer: &mut StreamWriter, class: &DeclaredEventClass, time: u64, values: &[Value<'_>]) {
    let event = EventRecord {
        time: Timestamp(time),
        process: 100,
        thread: -101,
        values,
    };
    assert_eq!(writer.append(class, &event), Ok(Appended::Written));
}

fn writer(stream: &DeclaredStreamClass, instance: u64, cpu: u32) -> StreamWriter {
    StreamWriter::new(stream, instance, cpu, PacketSize::new(4096, 65_536))
}

/// Returns the lines that Babeltrace prints for a directory, without a message.
fn read_lines(directory: &Path) -> Vec<String> {
    let ended = Babeltrace::Two.read(directory);
    assert_eq!(ended.stderr, [""; 0]);
    ended.expect_success()
}

/// The expected lines of [`babeltrace_prints_every_field_type_as_it_was_written`].
const EVERY_FIELD_TYPE: [&str; 8] = [
    "[00:00:00.123457789] host:prog:(-42) my:unsigned: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { a = 0, b = 0, c = 0, d = 0 }",
    "[00:00:00.123457790] host:prog:(-42) my:unsigned: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { a = 255, b = 65535, c = 4294967295, d = 18446744073709551615 }",
    "[00:00:00.123457791] host:prog:(-42) my:signed: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { a = -128, b = -32768, c = -2147483648, d = -9223372036854775808 }",
    "[00:00:00.123457792] host:prog:(-42) my:hex: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { a = 0xFF, b = 0xFFFF, c = 0xFFFFFFFF, d = 0xFFFFFFFFFFFFFFFF }",
    "[00:00:00.123458790] host:prog:(-42) others: \"quoted\" \u{e9}: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { real = -1.5, event = ( \"true\" : container = 1 ), http_method = \"G\\\"E\u{e9}\", struct = ( \"a \\\"high\\\" one\" : container = 65535 ) }",
    "[00:00:00.123458791] host:prog:(-42) args: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { _args_length = 6, args = [ [0] = { key = \"n\", kind = ( \"nil\" : container = 0 ), value = { 0 } }, [1] = { key = \"f\", kind = ( \"flag\" : container = 1 ), value = { ( \"false\" : container = 0 ) } }, [2] = { key = \"s\", kind = ( \"sint\" : container = 2 ), value = { -9223372036854775808 } }, [3] = { key = \"u\", kind = ( \"uint\" : container = 3 ), value = { 18446744073709551615 } }, [4] = { key = \"r\", kind = ( \"real\" : container = 4 ), value = { 0.25 } }, [5] = { key = \"t\", kind = ( \"text\" : container = 5 ), value = { \"\" } } ] }",
    "[00:00:00.123458792] host:prog:(-42) args: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { _args_length = 0, args = [ ] }",
    "[00:00:04.418426088] host:prog:(-42) empty: { cpu_id = 1 }, { vpid = 100, vtid = -101 }, { }",
];

#[test]
fn babeltrace_prints_every_field_type_as_it_was_written() {
    let mut metadata = metadata();
    let stream = metadata.stream(0).unwrap();
    let numbers = |of: fn(Width) -> FieldType| {
        fields(&[
            ("a", of(Width::Bits8)),
            ("b", of(Width::Bits16)),
            ("c", of(Width::Bits32)),
            ("d", of(Width::Bits64)),
        ])
    };
    let mut declare = |id, name: &str, fields| {
        let declaration = EventDeclaration {
            fields,
            log_level: Some(LogLevel(6)),
            emf_uri: Some("src/\"main\".rs:7".into()),
            ..EventDeclaration::new(id, name)
        };
        metadata.event(&stream, &declaration).unwrap()
    };
    let unsigned = declare(1, "my:unsigned", numbers(FieldType::Unsigned));
    let signed = declare(2, "my:signed", numbers(FieldType::Signed));
    let hex = declare(65_534, "my:hex", numbers(FieldType::Hexadecimal));
    let level = FieldType::Enumeration(Enumeration {
        width: Width::Bits16,
        labels: vec![("low".into(), 1), ("a \"high\" one".into(), 65_535)],
    });
    let others = [
        ("real", FieldType::Float),
        ("event", FieldType::Boolean),
        ("http.method", FieldType::Text),
        ("struct", level),
    ];
    let others = declare(65_535, "others: \"quoted\" \u{e9}", fields(&others));
    let arguments = declare(70_000, "args", fields(&[("args", FieldType::Arguments)]));
    let empty = declare(5, "empty", vec![]);

    let mut writer = writer(&stream, 3, 1);
    let mut files = Files::new();
    writer.open(Timestamp(1000)).unwrap();
    let [low, high] = [[0; 4], [0xff, 0xffff, 0xffff_ffff, u64::MAX]];
    append(&mut writer, &unsigned, 1000, &low.map(Value::Unsigned));
    append(&mut writer, &unsigned, 1001, &high.map(Value::Unsigned));
    let low = [i8::MIN.into(), i16::MIN.into(), i32::MIN.into(), i64::MIN];
    append(&mut writer, &signed, 1002, &low.map(Value::Signed));
    append(&mut writer, &hex, 1003, &high.map(Value::Unsigned));
    files.close(&mut writer, 2000);
    writer.open(Timestamp(2000)).unwrap();
    let values = [
        Value::Float(-1.5),
        Value::Boolean(true),
        Value::Text("G\"E\u{e9}"),
        Value::Unsigned(65_535),
    ];
    append(&mut writer, &others, 2001, &values);
    let argument = |key, value| Argument { key, value };
    let values = [
        argument("n", ArgumentValue::Nil),
        argument("f", ArgumentValue::Flag(false)),
        argument("s", ArgumentValue::Signed(i64::MIN)),
        argument("u", ArgumentValue::Unsigned(u64::MAX)),
        argument("r", ArgumentValue::Real(0.25)),
        argument("t", ArgumentValue::Text("")),
    ];
    append(&mut writer, &arguments, 2002, &[Value::Arguments(&values)]);
    append(&mut writer, &arguments, 2003, &[Value::Arguments(&[])]);
    // More than 32 bits of cycles after the event before.
    append(&mut writer, &empty, 2003 + (1 << 32), &[]);
    files.close(&mut writer, 3000 + (1 << 32));

    let lab = Lab::new();
    // As plain text, and in packets as a relay gets them.
    let plain = metadata.as_str().as_bytes().to_vec();
    let packets = metadata_packets(UUID, metadata.as_str());
    for (name, metadata) in [("plain", plain), ("packets", packets)] {
        let directory = lab.directory(name);
        fs::write(directory.join("metadata"), metadata).unwrap();
        files.write(&directory, "events_1");
        assert_eq!(read_lines(&directory), EVERY_FIELD_TYPE, "{name}");
    }
}

#[test]
fn streams_and_event_classes_can_be_declared_between_packets() {
    let (mut metadata, lab) = (metadata(), Lab::new());
    let directory = lab.directory("trace");
    let mut streams = Vec::new();
    let mut text = Vec::new();
    for id in 0..2 {
        let stream = metadata.stream(id).unwrap();
        let mut files = Files::new();
        let mut writer = writer(&stream, 0, id);
        for number in 0..3_u32 {
            let name = format!("event:{number}");
            let of = fields(&[("text", FieldType::Text)]);
            let declaration = EventDeclaration {
                fields: of,
                ..EventDeclaration::new(number, &name)
            };
            let class = metadata.event(&stream, &declaration).unwrap();
            text.extend(metadata_packets(UUID, metadata.take_new()));
            let begin = u64::from(number) * 100 + u64::from(id);
            writer.open(Timestamp(begin)).unwrap();
            // Longer than the usual packet size.
            let long = "x".repeat(5000);
            append(&mut writer, &class, begin + 50, &[Value::Text(&long)]);
            files.close(&mut writer, begin + 100);
        }
        // A packet without events.
        writer.open(Timestamp(1000)).unwrap();
        files.close(&mut writer, 2000);
        streams.push(files);
    }
    fs::write(directory.join("metadata"), text).unwrap();
    for (id, files) in streams.iter().enumerate() {
        files.write(&directory, &format!("events_{id}"));
    }
    let seen: Vec<(String, String)> = read_lines(&directory)
        .iter()
        .map(|line| {
            let (_, line) = line.split_once("event:").unwrap();
            let (event, rest) = line.split_once(": { cpu_id = ").unwrap();
            let (cpu, rest) = rest.split_once(' ').unwrap();
            assert!(rest.contains(&format!("\"{}\"", "x".repeat(5000))));
            (event.to_owned(), cpu.to_owned())
        })
        .collect();
    let want = [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
        ("2", "0"),
        ("2", "1"),
    ];
    assert_eq!(
        seen,
        want.map(|(event, cpu)| (event.to_owned(), cpu.to_owned()))
    );
}

#[test]
fn babeltrace_reports_discarded_events_and_packets() {
    let (mut metadata, lab) = (metadata(), Lab::new());
    let directory = lab.directory("trace");
    let stream = metadata.stream(0).unwrap();
    let class = metadata
        .event(&stream, &EventDeclaration::new(0, "e"))
        .unwrap();
    let (mut writer, mut files) = (writer(&stream, 0, 0), Files::new());
    for number in 0..3 {
        writer.open(Timestamp(number * 10)).unwrap();
        append(&mut writer, &class, number * 10, &[]);
        if number == 1 {
            writer.discard(5);
        }
        files.close(&mut writer, number * 10 + 10);
    }
    // A packet that is not written, as if it was lost.
    writer.open(Timestamp(30)).unwrap();
    let _ = writer.close(Timestamp(40)).unwrap();
    writer.open(Timestamp(40)).unwrap();
    files.close(&mut writer, 50);
    fs::write(directory.join("metadata"), metadata.as_str()).unwrap();
    files.write(&directory, "events");
    let ended = Babeltrace::Two.read(&directory);
    let warnings = ended.stderr.join("\n");
    assert!(
        warnings.contains("Tracer discarded 5 events between"),
        "{warnings}"
    );
    assert!(
        warnings.contains("Tracer discarded 1 packet between"),
        "{warnings}"
    );
    assert_eq!(
        ended
            .stderr
            .iter()
            .filter(|line| line.contains("WARNING"))
            .count(),
        2
    );
    assert_eq!(ended.expect_success().len(), 3);
}
