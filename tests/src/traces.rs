//! Trace directories to read: synthetic ones that cover unusual contents, and one recorded by
//! LTTng.

use std::fs;
use std::path::{Path, PathBuf};

use ctf::model::{EnvironmentValue, LogLevel, Uuid};
use ctf::write::{
    Appended, Argument, ArgumentValue, DeclaredEventClass, Enumeration, EventDeclaration,
    EventRecord, FieldType, MetadataText, PacketSize, StreamWriter, TraceClock, TraceDeclaration,
    Value, Width, metadata_packets,
};
use wire::Timestamp;

use crate::lab::Lab;
use crate::lttng::SessionDaemon;
use crate::relay::Relay;
use crate::traced_app;

const UUID: Uuid = Uuid(*b"made-up-to-test!");

/// A synthetic trace while it is written: one stream class and one clock.
#[derive(Debug)]
pub struct TraceBuilder {
    directory: PathBuf,
    metadata: MetadataText,
    stream: ctf::write::DeclaredStreamClass,
    next_event: u32,
}

/// A stream of a synthetic trace, whose packets are kept in memory until [`TraceBuilder::finish`].
#[derive(Debug)]
pub struct StreamBuilder {
    writer: StreamWriter,
    file: PathBuf,
    data: Vec<u8>,
}

impl TraceBuilder {
    /// Begins a trace in a new directory.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        let environment = [
            ("hostname", EnvironmentValue::Text("host".into())),
            ("procname", EnvironmentValue::Text("prog".into())),
            ("vpid", EnvironmentValue::Integer(42)),
        ];
        let mut metadata = MetadataText::new(&TraceDeclaration {
            environment: environment
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            clock: TraceClock {
                uuid: None,
                offset_seconds: 1_767_225_600,
                offset_nanoseconds: 123_456_789,
            },
            ..TraceDeclaration::new(UUID, "made-up")
        });
        let stream = metadata.stream(0).unwrap();
        fs::create_dir_all(&directory).unwrap();
        Self {
            directory,
            metadata,
            stream,
            next_event: 0,
        }
    }

    /// Declares an event class with these fields.
    ///
    /// # Panics
    /// If the declaration is not valid CTF.
    pub fn event(&mut self, name: &str, fields: &[(&str, FieldType)]) -> DeclaredEventClass {
        let owned = |(name, of): &(&str, FieldType)| ((*name).to_owned(), of.clone());
        let declaration = EventDeclaration {
            log_level: Some(LogLevel(6)),
            emf_uri: Some("src/main.rs:7".into()),
            fields: fields.iter().map(owned).collect(),
            ..EventDeclaration::new(self.next_event, name)
        };
        self.next_event += 1;
        self.metadata.event(&self.stream, &declaration).unwrap()
    }

    /// Begins a stream; `id` is its instance id, its CPU and part of its file name.
    #[must_use]
    pub fn stream(&self, id: u32) -> StreamBuilder {
        let size = PacketSize::new(4096, 65_536);
        StreamBuilder {
            writer: StreamWriter::new(&self.stream, id.into(), id, size),
            file: self.directory.join(format!("events_{id}")),
            data: Vec::new(),
        }
    }

    /// Writes all files and returns the directory. The metadata is in packets, or plain text.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn finish(self, streams: Vec<StreamBuilder>, in_packets: bool) -> PathBuf {
        let text = self.metadata.as_str();
        let metadata = if in_packets {
            metadata_packets(UUID, text)
        } else {
            text.as_bytes().to_vec()
        };
        fs::write(self.directory.join("metadata"), metadata).unwrap();
        for stream in streams {
            fs::write(&stream.file, &stream.data).unwrap();
        }
        self.directory
    }
}

impl StreamBuilder {
    /// Adds a packet that spans these cycles, with events and their times in cycles.
    ///
    /// # Panics
    /// If an event does not fit.
    pub fn packet(
        &mut self,
        span: (u64, u64),
        events: &[(u64, &DeclaredEventClass, &[Value<'_>])],
    ) {
        self.open(span.0, events);
        let packet = self.writer.close(Timestamp(span.1)).unwrap();
        self.data.extend(packet.bytes);
    }

    /// Leaves out a packet that spans these cycles, so that the packet sequence numbers have a gap.
    ///
    /// # Panics
    /// If the times go backwards.
    pub fn lose_packet(&mut self, span: (u64, u64)) {
        self.open(span.0, &[]);
        let _ = self.writer.close(Timestamp(span.1)).unwrap();
    }

    /// Adds the packets of another stream builder of the same number: its times and packet numbers
    /// begin again.
    pub fn append(&mut self, other: Self) {
        self.data.extend(other.data);
    }

    /// Adds to the discarded events that the next packet reports.
    pub fn discard(&mut self, events: u64) {
        self.writer.discard(events);
    }

    fn open(&mut self, begin: u64, events: &[(u64, &DeclaredEventClass, &[Value<'_>])]) {
        self.writer.open(Timestamp(begin)).unwrap();
        for (time, class, values) in events {
            let event = EventRecord {
                time: Timestamp(*time),
                process: 100,
                thread: 101,
                values,
            };
            assert_eq!(self.writer.append(class, &event), Ok(Appended::Written));
        }
    }
}

/// Returns a trace with every field type, and of integers the least and the greatest value.
#[must_use]
pub fn with_every_field_type(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("types"));
    let of_widths = |of: fn(Width) -> FieldType| {
        let widths = [Width::Bits8, Width::Bits16, Width::Bits32, Width::Bits64];
        let names = ["a", "b", "c", "d"];
        std::array::from_fn::<_, 4, _>(|place| (names[place], of(widths[place])))
    };
    let level = FieldType::Enumeration(Enumeration {
        width: Width::Bits16,
        labels: vec![("low".into(), 1), ("a \"high\" one".into(), 65_535)],
    });
    let unsigned = trace.event("my:unsigned", &of_widths(FieldType::Unsigned));
    let signed = trace.event("my:signed", &of_widths(FieldType::Signed));
    let hex = trace.event("my:hex", &of_widths(FieldType::Hexadecimal));
    let others = [
        ("real", FieldType::Float),
        ("flag", FieldType::Boolean),
        ("http.method", FieldType::Text),
        ("struct", level),
        ("arguments", FieldType::Arguments),
    ];
    let others = trace.event("others: \"quoted\" \u{e9}", &others);
    let empty = trace.event("empty", &[]);

    let low = [0; 4].map(Value::Unsigned);
    let high = [0xff, 0xffff, 0xffff_ffff, u64::MAX].map(Value::Unsigned);
    let negative = [i8::MIN.into(), i16::MIN.into(), i32::MIN.into(), i64::MIN].map(Value::Signed);
    let argument = |key, value| Argument { key, value };
    let arguments = [
        argument("n", ArgumentValue::Nil),
        argument("f", ArgumentValue::Flag(false)),
        argument("s", ArgumentValue::Signed(i64::MIN)),
        argument("u", ArgumentValue::Unsigned(u64::MAX)),
        argument("r", ArgumentValue::Real(0.1)),
        argument("t", ArgumentValue::Text("\t\"\\\n\u{7}")),
    ];
    let reals = [0.0, -1.5, 1e300, f64::INFINITY, 1.0 / 3.0];
    let mut stream = trace.stream(1);
    let numbers: &[(u64, &DeclaredEventClass, &[Value<'_>])] = &[
        (1000, &unsigned, &low),
        (1001, &unsigned, &high),
        (1001, &signed, &negative),
        (1003, &hex, &high),
    ];
    stream.packet((1000, 2000), numbers);
    for (number, real) in (0..).zip(reals) {
        let begin = 2000 + number * 100;
        let values = [
            Value::Float(real),
            Value::Boolean(number % 2 == 0),
            Value::Text("G\"E\u{e9}"),
            Value::Unsigned(number),
            Value::Arguments(&arguments[..number as usize + 1]),
        ];
        let events: &[(u64, &DeclaredEventClass, &[Value<'_>])] = &[(begin + 10, &others, &values)];
        stream.packet((begin, begin + 100), events);
    }
    // More than 32 bits of cycles after the event before.
    let late = 3000 + (1 << 32);
    stream.packet((late, late + 10), &[(late + 5, &empty, &[])]);
    trace.finish(vec![stream], true)
}

/// Returns a trace of four streams whose events have equal timestamps, which are also ends of
/// packets.
#[must_use]
pub fn with_equal_timestamps(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("same-time"));
    let fields = [("number", FieldType::Unsigned(Width::Bits32))];
    let tick = trace.event("tick", &fields);
    let mut streams: Vec<StreamBuilder> = (0..4).map(|id| trace.stream(id)).collect();
    for packet in 0..20 {
        for (id, stream) in (0..).zip(&mut streams) {
            // Some streams pause at times.
            if (packet + id) % 3 == 0 && packet % 5 != 0 {
                continue;
            }
            let begin = packet * 100;
            let number = [Value::Unsigned(packet)];
            let at: [_; 4] = [0, 50, 50, 100];
            let events = at.map(|offset| (begin + offset, &tick, &number[..]));
            stream.packet((begin, begin + 100), &events);
        }
    }
    trace.finish(streams, false)
}

/// Returns a trace of four streams: one without losses, one with discarded events, one with lost
/// packets, one with both.
#[must_use]
pub fn with_losses(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("losses"));
    let fields = [("number", FieldType::Signed(Width::Bits64))];
    let tick = trace.event("tick", &fields);
    let mut streams: Vec<StreamBuilder> = (0..4).map(|id| trace.stream(id)).collect();
    for packet in 0..8 {
        for (id, stream) in (0_u64..).zip(&mut streams) {
            let begin = packet * 100 + id;
            let span = (begin, begin + 100);
            if id & 1 != 0 && packet % 3 == 1 {
                stream.discard(packet + 1);
            }
            if id & 2 != 0 && packet % 4 == 2 {
                stream.lose_packet(span);
                continue;
            }
            let number = [Value::Signed(-2)];
            stream.packet(span, &[(begin + 40, &tick, &number)]);
        }
    }
    trace.finish(streams, true)
}

/// Returns a trace of three streams: a busy one, one with empty packets only, and one that begins
/// late.
#[must_use]
pub fn with_idle_streams(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("idle"));
    let tick = trace.event("tick", &[("text", FieldType::Text)]);
    let mut streams: Vec<StreamBuilder> = (0..3).map(|id| trace.stream(id)).collect();
    let text = [Value::Text("busy")];
    for packet in 0..30 {
        let begin = packet * 100;
        let events: Vec<_> = (0..10)
            .map(|at| (begin + at * 10, &tick, &text[..]))
            .collect();
        streams[0].packet((begin, begin + 100), &events);
        if packet % 10 == 9 {
            streams[1].packet((begin - 900, begin + 100), &[]);
        }
    }
    let text = [Value::Text("late")];
    streams[2].packet(
        (2_500, 2_600),
        &[(2_505, &tick, &text), (2_510, &tick, &text)],
    );
    trace.finish(streams, true)
}

/// Returns a trace of seven numbered events in two streams. The clock and the packet numbers of the
/// first begin again between its events 1 and 2.
#[must_use]
pub fn with_restarted_clock(lab: &Lab) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory("restarted"));
    let tick = trace.event("tick", &[("number", FieldType::Unsigned(Width::Bits32))]);
    let stream = |id, events: &[(u64, u64)]| {
        let mut stream = trace.stream(id);
        for (time, number) in events {
            let number = [Value::Unsigned(*number)];
            stream.packet((*time, time + 10), &[(*time, &tick, &number)]);
        }
        stream
    };
    let mut restarted = stream(0, &[(5000, 0), (6000, 1)]);
    restarted.append(stream(0, &[(100, 2), (200, 3)]));
    let other = stream(1, &[(50, 10), (5500, 11), (6500, 12)]);
    trace.finish(vec![restarted, other], true)
}

/// Returns a trace of numbered events, one in each packet, `interval` nanoseconds apart, in two
/// streams by turns.
#[must_use]
pub fn with_numbered_events(lab: &Lab, name: &str, events: u64, interval: u64) -> PathBuf {
    let mut trace = TraceBuilder::new(lab.directory(name));
    let fields = [
        ("number", FieldType::Unsigned(Width::Bits32)),
        ("text", FieldType::Text),
    ];
    let event = trace.event("numbered", &fields);
    let mut streams = [0, 1].map(|id| trace.stream(id));
    let text = "x".repeat(3000);
    for (number, place) in (0..events).zip([0, 1].into_iter().cycle()) {
        let begin = number * interval;
        let values = [Value::Unsigned(number), Value::Text(&text)];
        streams[place].packet((begin, begin + interval), &[(begin, &event, &values)]);
    }
    trace.finish(streams.into(), true)
}

/// Returns a trace that LTTng has recorded of two applications. `buffers` is the option of `lttng
/// enable-channel` that selects buffers per user or per process.
///
/// # Panics
/// If LTTng is not installed.
#[must_use]
pub fn recorded_by_lttng(lab: &Lab, buffers: &str, events: usize) -> PathBuf {
    let relay = Relay::start(lab);
    let daemon = SessionDaemon::start(lab);
    daemon.create_session("recording", &relay, None);
    daemon.enable_channel("recording", "busy", &[buffers, "--subbuf-size=4k"], true);
    daemon.enable_channel("recording", "more", &[buffers, "--subbuf-size=16k"], true);
    let context = ["--type=vpid", "--type=vtid", "--type=procname"];
    let mut add_context = vec!["add-context", "--userspace", "--session=recording"];
    add_context.extend(context);
    daemon.lttng(&add_context);
    daemon.lttng(&["start", "recording"]);
    let programs = ["one", "two"].map(|name| traced_app::start(lab, events, 100, name));
    for program in programs {
        program.wait().expect_success();
    }
    daemon.lttng(&["destroy", "recording"]);
    only_entry(&relay.output)
}

fn only_entry(directory: &Path) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let host = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none());
    host
}
