//! A recording whose events have times that a test chooses, so that every run has the same.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use ctf::directory::StreamHandle;
use ctf::model::{EnvironmentValue, LogLevel, Uuid};
use ctf::write::{
    DeclaredEventClass, EventDeclaration, EventRecord, FieldType, TraceDeclaration, Value, Width,
};
use ctf::{Timestamp, TraceWriter};

/// 2026-11-20 10:00:00 in UTC, in nanoseconds since 1970.
pub(super) const TEN_O_CLOCK: u64 = 1_795_168_800 * 1_000_000_000;
pub(super) const MICROSECOND: u64 = 1000;
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Where an event is recorded: its CPU, process and thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) cpu: usize,
    pub(super) process: i32,
    pub(super) thread: i32,
}

/// The events of one trace, in any order until they are written.
#[derive(Debug)]
pub(super) struct Recording {
    host: &'static str,
    environment: Vec<(&'static str, &'static str)>,
    events: Vec<RecordedEvent>,
    lost: Range<u64>,
}

#[derive(Debug)]
struct RecordedEvent {
    time: u64,
    place: Place,
    name: &'static str,
    fields: Vec<(&'static str, Value<'static>)>,
}

impl Recording {
    /// Begins the recording of a host.
    pub(super) fn new(host: &'static str, environment: &[(&'static str, &'static str)]) -> Self {
        Self {
            host,
            environment: [&[("hostname", host)], environment].concat(),
            events: Vec::new(),
            lost: 0..0,
        }
    }

    pub(super) fn emit(
        &mut self,
        time: u64,
        place: Place,
        name: &'static str,
        fields: &[(&'static str, Value<'static>)],
    ) {
        let fields = fields.to_vec();
        self.events.push(RecordedEvent {
            time,
            place,
            name,
            fields,
        });
    }

    /// Counts the events of these times as discarded by the tracer.
    pub(super) fn lose(&mut self, times: Range<u64>) {
        self.lost = times;
    }

    /// Writes the trace: a stream for each CPU.
    pub(super) fn write(mut self, directory: &Path) {
        let entry = |(name, text): &(&str, &str)| {
            let text = EnvironmentValue::Text((*text).into());
            ((*name).to_owned(), text)
        };
        let declaration = TraceDeclaration {
            environment: self.environment.iter().map(entry).collect(),
            ..TraceDeclaration::new(uuid_of(self.host), "tests")
        };
        let mut trace = TraceWriter::create_with(directory, &declaration).unwrap();
        self.events.sort_by_key(|event| event.time);
        let mut streams = vec![StreamHandle::FIRST];
        let mut classes = HashMap::new();
        let mut second = 0;
        for event in &self.events {
            while streams.len() <= event.place.cpu {
                streams.push(trace.add_stream());
            }
            let stream = streams[event.place.cpu];
            if event.time / SECOND > second {
                // As the live timer of LTTng: a loss is known to a second.
                trace.flush().unwrap();
                second = event.time / SECOND;
            }
            if self.lost.contains(&event.time) {
                trace.discard(stream, 1).unwrap();
                continue;
            }
            let id = classes.len() as u32 + 1;
            let class = classes
                .entry(event.name)
                .or_insert_with(|| declare(&mut trace, id, event));
            let values: Vec<_> = event.fields.iter().map(|(_, value)| *value).collect();
            let record = EventRecord {
                time: Timestamp(event.time),
                process: event.place.process,
                thread: event.place.thread,
                values: &values,
            };
            trace.write_to(stream, class, &record).unwrap();
        }
        trace.finish().unwrap();
    }
}

/// Declares the class of an event, whose fields have the types of its values.
fn declare(trace: &mut TraceWriter, id: u32, event: &RecordedEvent) -> DeclaredEventClass {
    let of = |value: &Value<'_>| match value {
        Value::Unsigned(_) => FieldType::Unsigned(Width::Bits64),
        Value::Signed(_) => FieldType::Signed(Width::Bits64),
        Value::Text(_) => FieldType::Text,
        other => panic!("{other:?} has no type here"),
    };
    let fields = event.fields.iter();
    let level = match event.name {
        "shop:payment_refused" => 3,
        "shop:slow_request" => 4,
        _ => 6,
    };
    let declaration = EventDeclaration {
        log_level: Some(LogLevel(level)),
        fields: fields
            .map(|(name, value)| ((*name).to_owned(), of(value)))
            .collect(),
        ..EventDeclaration::new(id, event.name)
    };
    trace.declare(&declaration).unwrap()
}

/// The identity of the trace of a host: readers take traces of equal identity for one.
fn uuid_of(host: &str) -> Uuid {
    let mut uuid = [0; 16];
    uuid[..host.len()].copy_from_slice(host.as_bytes());
    Uuid(uuid)
}
