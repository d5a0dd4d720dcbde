//! Whole traces in directories: what `TraceWriter` writes, `Trace` reads, and damaged directories.
#![cfg(test)]

use std::fs;
use std::path::Path;

use ctf::directory::{StreamHandle, StreamReader, WriteError};
use ctf::model::Uuid;
use ctf::owned::Structure;
use ctf::write::{
    Argument, ArgumentValue, Enumeration, EventRecord, FieldType, TraceDeclaration,
    Value as Written, Width,
};
use ctf::{Error, Event, Timestamp, Trace, TraceWriter, Value};
use proptest::prelude::*;

fn record<'a>(time: u64, thread: i32, values: &'a [Written<'a>]) -> EventRecord<'a> {
    EventRecord {
        time: Timestamp(time),
        process: 100,
        thread,
        values,
    }
}

/// The events of a directory that has no defect.
fn events(directory: &Path) -> Vec<Event> {
    let trace = Trace::open(directory).unwrap();
    assert_eq!(trace.warnings(), []);
    trace.events().map(Result::unwrap).collect()
}

fn number(event: &Event) -> u64 {
    event.field("number").unwrap().as_u64().unwrap()
}

/// Writes events with the numbers from 0, whose times are 10 ns apart, to the streams in turn.
fn write_numbers(directory: &Path, streams: usize, events: u64, text: &str) {
    let mut trace = TraceWriter::create(directory).unwrap();
    let number = FieldType::Unsigned(Width::Bits64);
    let class = trace.event_class("n", &[("number", number), ("text", FieldType::Text)]);
    let class = class.unwrap();
    let mut handles = vec![StreamHandle::FIRST];
    handles.extend((1..streams).map(|_| trace.add_stream()));
    for (number, stream) in (0..events).zip(handles.iter().cycle()) {
        let values = [number.into(), text.into()];
        trace
            .write_to(*stream, &class, &record(1000 + number * 10, 1, &values))
            .unwrap();
    }
    trace.finish().unwrap();
}

#[test]
fn every_field_type_is_read_as_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = TraceWriter::create(directory.path()).unwrap();
    let label = FieldType::Enumeration(Enumeration {
        width: Width::Bits8,
        labels: vec![("low".into(), 1)],
    });
    let class = trace.event_class(
        "all",
        &[
            ("unsigned", FieldType::Unsigned(Width::Bits64)),
            ("signed", FieldType::Signed(Width::Bits8)),
            ("hexadecimal", FieldType::Hexadecimal(Width::Bits32)),
            ("float", FieldType::Float),
            ("boolean", FieldType::Boolean),
            ("text", FieldType::Text),
            ("label", label.clone()),
            ("other", label),
            ("arguments", FieldType::Arguments),
            ("bytes", FieldType::Bytes),
        ],
    );
    let arguments = [Argument {
        key: "k",
        value: ArgumentValue::Signed(-7),
    }];
    let values = [
        u64::MAX.into(),
        (-128_i8).into(),
        0xdead_beef_u32.into(),
        (-1.5).into(),
        true.into(),
        "a \"b\" \u{e9}".into(),
        1_u8.into(),
        9_u8.into(),
        Written::Arguments(&arguments),
        b"\x00\xff"[..].into(),
    ];
    let event = EventRecord {
        thread: -1,
        ..record(5, 0, &values)
    };
    trace
        .write_to(StreamHandle::FIRST, &class.unwrap(), &event)
        .unwrap();
    trace.finish().unwrap();

    let [event] = events(directory.path()).try_into().unwrap();
    assert_eq!(
        (event.time, event.cycles, &*event.name),
        (Some(5), Timestamp(5), "all")
    );
    assert_eq!(event.field("vtid"), Some(&Value::Signed(-1)));
    assert_eq!(event.field("cpu_id"), Some(&Value::Unsigned(0)));
    assert_eq!(event.field("unsigned").unwrap().as_u64(), Some(u64::MAX));
    assert_eq!(event.field("boolean").unwrap().as_bool(), Some(true));
    assert_eq!(event.field("label").unwrap().as_str(), Some("low"));
    assert_eq!(event.field("nothing"), None);
    assert_eq!(
        event.to_string(),
        "all: { cpu_id = 0 }, { vpid = 100, vtid = -1 }, { unsigned = 18446744073709551615, signed = -128, \
         hexadecimal = 3735928559, float = -1.5, boolean = ( \"true\" : container = 1 ), \
         text = \"a \\\"b\\\" \u{e9}\", label = ( \"low\" : container = 1 ), \
         other = ( <unknown> : container = 9 ), _arguments_length = 1, arguments = [ [0] = { key = \"k\", \
         kind = ( \"sint\" : container = 2 ), value = -7 } ], _bytes_length = 2, bytes = [ [0] = 0, [1] = 255 ] }"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn events_of_all_streams_are_read_in_time_order(
        // The stream of each event, the time since the event before, and the length of its text.
        written in prop::collection::vec((0..4_usize, 0..3_u64, 0..30_000_usize), 0..40),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut trace = TraceWriter::create(directory.path()).unwrap();
        let fields = [("number", FieldType::Unsigned(Width::Bits16)), ("text", FieldType::Text)];
        let class = trace.event_class("e", &fields).unwrap();
        let mut streams = vec![StreamHandle::FIRST];
        streams.extend((1..4).map(|_| trace.add_stream()));
        let (mut time, mut want) = (0, Vec::new());
        for (number, (stream, step, length)) in written.iter().enumerate() {
            time += step;
            let text = "x".repeat(*length);
            let values = [u16::try_from(number).unwrap().into(), text.as_str().into()];
            trace.write_to(streams[*stream], &class, &record(time, 1, &values)).unwrap();
            // Streams come in order of their numbers at the same time.
            want.push((i64::try_from(time).unwrap(), *stream as u64, number as u64, text));
        }
        trace.finish().unwrap();
        want.sort_by_key(|(time, stream, number, _)| (*time, *stream, *number));
        let read = events(directory.path());
        let read = read.iter().map(|event| {
            let text = event.field("text").unwrap().as_str().unwrap().to_owned();
            (event.time.unwrap(), event.stream.id, number(event), text)
        });
        prop_assert_eq!(read.collect::<Vec<_>>(), want);
    }

    #[test]
    fn a_damaged_directory_gives_events_and_errors_but_no_panic(
        damage in prop::collection::vec((0..2_usize, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        write_numbers(directory.path(), 1, 200, "text");
        let files = ["metadata", "stream_0"].map(|name| directory.path().join(name));
        for (file, place, byte) in damage {
            let mut bytes = fs::read(&files[file]).unwrap();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            fs::write(&files[file], bytes).unwrap();
        }
        let bytes = fs::read(&files[1]).unwrap();
        fs::write(&files[1], &bytes[..cut.index(bytes.len())]).unwrap();
        if let Ok(trace) = Trace::open(directory.path()) {
            // An event takes at least a byte.
            prop_assert!(trace.events().count() <= bytes.len() + 2);
        }
    }
}

#[test]
fn all_traces_below_a_directory_are_read_as_one() {
    let root = tempfile::tempdir().unwrap();
    write_numbers(&root.path().join("a/one"), 2, 6, "");
    write_numbers(&root.path().join("two"), 1, 6, "");
    let read = events(root.path());
    let numbers: Vec<u64> = read.iter().map(number).collect();
    assert_eq!(numbers, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
    let mut traces: Vec<&str> = read.iter().map(|event| &*event.stream.trace).collect();
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces, ["a/one", "two"]);
}

#[test]
fn directories_with_the_same_uuid_are_pieces_of_one_trace() {
    let root = tempfile::tempdir().unwrap();
    let declaration = TraceDeclaration::new(Uuid([7; 16]), "test");
    for (number, piece) in ["a", "b"].iter().enumerate() {
        let mut trace = TraceWriter::create_with(root.path().join(piece), &declaration).unwrap();
        let class = trace.event_class("e", &[]).unwrap();
        trace.write(&class, Timestamp(number as u64), &[]).unwrap();
        trace.finish().unwrap();
    }
    let trace = Trace::open(root.path()).unwrap();
    assert_eq!(trace.directories().len(), 1);
    assert_eq!(trace.events().count(), 2);
}

#[test]
fn a_trace_is_not_written_over_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("notes");
    fs::write(&file, "mine").unwrap();
    let refused = TraceWriter::create(directory.path()).unwrap_err();
    assert!(matches!(refused, WriteError::NotEmpty { .. }), "{refused}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    // A file is no directory.
    let refused = TraceWriter::create(&file).unwrap_err();
    assert!(matches!(refused, WriteError::Write { .. }), "{refused}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_refused_event_is_not_in_the_trace() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = TraceWriter::create(directory.path()).unwrap();
    let class = trace
        .event_class("e", &[("n", FieldType::Unsigned(Width::Bits8))])
        .unwrap();
    let write = |trace: &mut TraceWriter, time, value: Written<'_>| {
        trace.write(&class, Timestamp(time), &[value])
    };
    write(&mut trace, 10, 1_u8.into()).unwrap();
    for (time, value) in [(9, 2_u16.into()), (11, 256_u16.into()), (11, "text".into())] {
        let refused = write(&mut trace, time, value).unwrap_err();
        assert!(matches!(refused, WriteError::Event(_)), "{refused}");
    }
    assert!(
        trace
            .event_class("twice", &[("a", FieldType::Text), ("a", FieldType::Text)])
            .is_err()
    );
    write(&mut trace, 10, 3_u8.into()).unwrap();
    trace.finish().unwrap();
    let read = events(directory.path());
    let read: Vec<_> = read
        .iter()
        .map(|event| event.field("n").unwrap().as_u64())
        .collect();
    assert_eq!(read, [Some(1), Some(3)]);
}

#[test]
fn a_trace_without_events_is_read_as_such() {
    let directory = tempfile::tempdir().unwrap();
    TraceWriter::create(directory.path())
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(events(directory.path()), []);
}

#[test]
fn what_was_flushed_can_be_read_while_the_trace_grows() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = TraceWriter::create(directory.path()).unwrap();
    for number in 0..3_u64 {
        let name = format!("class {number}");
        let class = trace.event_class(&name, &[("number", FieldType::Unsigned(Width::Bits8))]);
        trace
            .write(&class.unwrap(), Timestamp(number), &[number.into()])
            .unwrap();
        assert_eq!(events(directory.path()).len() as u64, number);
        trace.flush().unwrap();
        assert_eq!(events(directory.path()).len() as u64, number + 1);
    }
    // An event that was not flushed is written when the writer is dropped.
    let class = trace.event_class("last", &[]).unwrap();
    trace.write(&class, Timestamp(9), &[]).unwrap();
    drop(trace);
    let names: Vec<_> = events(directory.path())
        .iter()
        .map(|event| event.name.to_string())
        .collect();
    assert_eq!(names, ["class 0", "class 1", "class 2", "last"]);
}

#[test]
fn a_stream_that_was_cut_gives_an_error_behind_its_last_whole_packet() {
    let directory = tempfile::tempdir().unwrap();
    // The first stream has events 0, 2, 4, ..., in packets of 3 events.
    write_numbers(directory.path(), 2, 30, &"x".repeat(20_000));
    let path = directory.path().join("stream_0");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();

    let mut events = Trace::open(directory.path()).unwrap().events();
    let (mut numbers, mut errors) = (Vec::new(), Vec::new());
    for event in &mut events {
        match event {
            Ok(event) => numbers.push(number(&event)),
            Err(error) => errors.push((numbers.len(), error)),
        }
    }
    let lost = [24, 26, 28];
    let want: Vec<u64> = (0..30).filter(|number| !lost.contains(number)).collect();
    assert_eq!(numbers, want);
    let [(after, Error::Directory(error))] = errors.as_slice() else {
        panic!("{errors:?}");
    };
    assert_eq!(*after, 23, "behind event 22");
    assert!(error.to_string().contains("stream_0"), "{error}");
    assert!(events.next().is_none());
}

#[test]
fn the_packets_behind_a_damaged_one_are_read() {
    let directory = tempfile::tempdir().unwrap();
    write_numbers(directory.path(), 1, 9, &"x".repeat(20_000));
    let path = directory.path().join("stream_0");
    let mut bytes = fs::read(&path).unwrap();
    // The id of the first event of the second packet.
    let packet = bytes.len() / 3;
    bytes[packet + 84] = 77;
    fs::write(&path, bytes).unwrap();
    let events = Trace::open(directory.path()).unwrap().events();
    let read: Vec<_> = events
        .map(|event| event.as_ref().map(number).map_err(ToString::to_string))
        .collect();
    let (before, rest) = read.split_at(3);
    assert_eq!(before, [Ok(0), Ok(1), Ok(2)]);
    assert!(
        rest[0]
            .as_ref()
            .unwrap_err()
            .contains("packet at byte 61440"),
        "{rest:?}"
    );
    assert_eq!(rest[1..], [Ok(6), Ok(7), Ok(8)]);
}

#[test]
fn losses_between_packets_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = TraceWriter::create(directory.path()).unwrap();
    let class = trace.event_class("e", &[]).unwrap();
    for time in 0..3 {
        trace.write(&class, Timestamp(time), &[]).unwrap();
        if time == 1 {
            trace.discard(StreamHandle::FIRST, 5).unwrap();
        }
        trace.flush().unwrap();
    }
    trace.finish().unwrap();
    let mut events = Trace::open(directory.path()).unwrap().events();
    assert_eq!(events.by_ref().filter(Result::is_ok).count(), 3);
    assert_eq!((events.losses().events, events.losses().packets), (5, 0));
}

#[test]
fn a_directory_without_a_trace_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = Trace::open(directory.path()).unwrap_err();
    assert!(
        error.to_string().contains("no trace at or below"),
        "{error}"
    );
    assert!(Trace::open(directory.path().join("absent")).is_err());
}

#[test]
fn the_trace_of_the_readme_is_written_to_the_same_bytes_as_ever() {
    let directory = tempfile::tempdir().unwrap();
    let declaration = TraceDeclaration::new(Uuid(*b"requests of 2026"), "ctf");
    let mut trace = TraceWriter::create_with(directory.path(), &declaration).unwrap();
    let status = FieldType::Unsigned(Width::Bits16);
    let done = trace.event_class(
        "http:done",
        &[("path", FieldType::Text), ("status", status)],
    );
    let done = done.unwrap();
    let second = trace.add_stream();
    let requests = [
        ("/", 200_u16),
        ("/favicon.ico", 404),
        ("/about", 200),
        ("/", 304),
    ];
    for (number, (path, status)) in (0..).zip(requests) {
        let stream = [StreamHandle::FIRST, second][number % 2];
        let time = 1_767_225_600_000_000_000 + number as u64 * 1_500_000;
        trace
            .write_to(
                stream,
                &done,
                &record(time, 101, &[path.into(), status.into()]),
            )
            .unwrap();
    }
    trace.finish().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/requests");
    for name in [
        "metadata",
        "stream_0",
        "stream_1",
        "index/stream_0.idx",
        "index/stream_1.idx",
    ] {
        let [written, kept] = [directory.path(), &fixture].map(|root| fs::read(root.join(name)));
        assert_eq!(written.unwrap(), kept.unwrap(), "{name}");
    }
    assert_eq!(events(&fixture).len(), 4);
}

#[test]
fn an_event_with_too_many_values_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { integer { size = 8; } id; }; };
        event { id = 1; name = bits; fields := struct { integer { size = 32; } n; integer { size = 1; } a[n]; }; };
        event { id = 2; name = small; fields := struct { integer { size = 8; } n; }; };";
    fs::write(directory.path().join("metadata"), metadata).unwrap();
    let bits: u32 = 1 << 20;
    let mut packet = vec![1];
    packet.extend(bits.to_le_bytes());
    packet.extend(vec![0; bits as usize / 8]);
    packet.extend([2, 7]);
    fs::write(directory.path().join("stream"), packet).unwrap();
    let read: Vec<_> = Trace::open(directory.path()).unwrap().events().collect();
    assert!(
        matches!(read[0], Err(Error::TooManyValues { offset: 0, .. })),
        "{:?}",
        read[0]
    );
    let small = read[1].as_ref().unwrap();
    assert_eq!(
        (&*small.name, small.time, &*small.packet_context),
        ("small", None, &Structure::default())
    );
    assert_eq!(read.len(), 2);
}

#[test]
fn packets_that_are_read_ahead_are_those_of_the_files() {
    let lab = tempfile::tempdir().unwrap();
    let directory = lab.path().join("t");
    let mut trace = TraceWriter::create(&directory).unwrap();
    let class = trace
        .event_class("n", &[("text", FieldType::Text)])
        .unwrap();
    for number in 0..60_u64 {
        // Packets of one page and, some of them, of several.
        let text = "x".repeat(if number % 17 == 16 { 20_000 } else { 10 });
        let values = [text.as_str().into()];
        trace
            .write_to(StreamHandle::FIRST, &class, &record(number, 1, &values))
            .unwrap();
        trace.flush().unwrap();
    }
    trace.finish().unwrap();
    let traces = ctf::directory::open(&[directory]).unwrap().traces;
    let stream = &traces[0].streams[0];
    let read = |max| {
        let mut reader = StreamReader::new(stream);
        reader.read_ahead(max);
        let (mut packets, mut bytes) = (Vec::new(), Vec::new());
        let is_whole = loop {
            match reader.next(&mut bytes) {
                Ok(true) => packets.push(bytes.clone()),
                Ok(false) => break true,
                Err(_) => break false,
            }
        };
        (packets, is_whole)
    };
    let (packets, is_whole) = read(0);
    assert!(is_whole && packets.len() == 60);
    for max in [1, 8192, 10_000, 65_536, 1 << 20] {
        assert_eq!(read(max), (packets.clone(), true), "{max}");
    }
    let bytes = fs::read(&stream.files[0]).unwrap();
    fs::write(&stream.files[0], &bytes[..bytes.len() - 5000]).unwrap();
    for max in [0, 8192, 65_536] {
        assert_eq!(read(max), (packets[..58].to_vec(), false), "{max}");
    }
}

#[test]
fn a_packet_whose_context_has_a_long_text_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let metadata = "/* CTF 1.8 */
        typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
        trace { major = 1; minor = 8; byte_order = le; };
        stream {
            packet.context := struct { uint64_t packet_size; uint64_t content_size; string note; };
            event.header := struct { uint64_t id; };
        };
        event { name = \"e\"; id = 0; fields := struct { uint64_t number; }; };";
    fs::write(directory.path().join("metadata"), metadata).unwrap();
    let mut stream = Vec::new();
    // More than is read at first to find packets, and less.
    for (number, note) in [(0_u64, 1000_usize), (1, 10), (2, 5000)] {
        let bits = 8 * (16 + note as u64 + 1 + 16);
        stream.extend([bits.to_le_bytes(), bits.to_le_bytes()].concat());
        stream.extend(vec![b'n'; note]);
        stream.push(0);
        stream.extend([0_u64.to_le_bytes(), number.to_le_bytes()].concat());
    }
    fs::write(directory.path().join("stream"), stream).unwrap();
    let numbers: Vec<_> = events(directory.path()).iter().map(number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}
