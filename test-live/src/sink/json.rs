//! One JSON object a line, for programs.
//!
//! Members, in this order:
//!
//! | Member | Is | Present |
//! |---|---|---|
//! | `time` | nanoseconds since the clock's origin, usually 1970; or `null` | always |
//! | `cycles` | the stream's clock | always |
//! | `trace` | name of the trace | always |
//! | `stream` | name of the stream | always |
//! | `stream_class` | its number | always |
//! | `stream_id` | its number in its class | if known |
//! | `host`, `procname`, `vpid` | of the trace's environment | if it says |
//! | `event` | name of the event; or `null` | always |
//! | `loglevel` | 0 (worst) to 14 | if declared |
//! | `packet` | packet context, an object | if any of it is visible |
//! | `context` | the stream's event context | likewise |
//! | `event_context` | the event's own context | likewise |
//! | `fields` | payload | likewise |
//! | `debug_info` | of `ip`, `addr`, `call_site`: `bin`, `func`, `src` | with `--debug-info` |
//!
//! Fields: numbers are JSON numbers, whatever their size and base; enumerations and bit maps are
//! `{"value": 5, "labels": ["A", "B"]}`; floating point numbers that are not finite are the strings
//! `"inf"`, `"-inf"` and `"nan"`; in texts, what is no UTF-8 is U+FFFD; blobs are hexadecimal text;
//! absent optional fields are `null`; a variant is the value of the option that is taken.
//!
//! `args` of events that were sent in Trace Event Format (classes `tef:*`) is the object that was
//! sent, `null` if there was none, and text if it is no JSON.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use ::tef::json_args::has_json_args;
use ctf::decode::{Event, FieldError};
use ctf::model::EnvironmentValue;
use timeline::{Content, DownloadFormat};
use viewer::attach::StreamKey;
use viewer::interpret::debug_info::EventLocations;
use viewer::json_fields::{JsonFields, JsonPosition, Scopes};
use viewer::json_text::{integer, string};
use viewer::sink::{
    Ended, Finished, Loss, Needs, Next, OpenSink, Origin, RenderedRun, RenderedSink, Renderer,
    Sink, SinkError,
};

use super::buffer;
use super::row::{Open, SinkRow};

/// Writes one object a line; see the module for its members.
#[derive(Debug)]
pub struct Json<W> {
    out: W,
    buffer: Vec<u8>,
    lines: Lines,
}

/// Renders events as lines, and knows what the lines of a stream have in common.
#[derive(Debug, Default)]
struct Lines {
    /// The text that is the same for all events of a stream.
    streams: HashMap<StreamKey, Prefix>,
}

#[derive(Debug, Default)]
struct Prefix {
    /// Entries of the environment when it was written.
    environment: usize,
    text: Vec<u8>,
}

/// The parts of an event besides its fields.
struct Head<'a> {
    time: Option<i128>,
    cycles: u64,
    event: Option<&'a str>,
    log_level: Option<u8>,
}

/// Objects, one a line.
pub const ROW: SinkRow = SinkRow {
    name: "json",
    help: "One JSON object on each line",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, _| Ok(OpenSink::Rendered(Box::new(Json::new(out))))),
    download: Some(DownloadFormat {
        name: "json",
        file: "events.jsonl",
        media_type: "application/x-ndjson",
        content: Content::Events(|out| Box::new(Json::new(out))),
    }),
};

impl<W: Write> Json<W> {
    /// A sink that writes to `out`, which needs no buffer of its own.
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: buffer::with_capacity(),
            lines: Lines::default(),
        }
    }
}

impl Lines {
    fn write_line(
        &mut self,
        head: &Head<'_>,
        environment: &[(Arc<str>, EnvironmentValue)],
        origin: Origin<'_>,
        out: &mut Vec<u8>,
        fields: impl FnOnce(&mut JsonFields<'_>) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        let begin = out.len();
        out.extend_from_slice(b"{\"time\":");
        match head.time {
            // The smaller type is formatted faster.
            Some(time) => match i64::try_from(time) {
                Ok(time) => integer(time, out),
                Err(_) => integer(time, out),
            },
            None => out.extend_from_slice(b"null"),
        }
        out.extend_from_slice(b",\"cycles\":");
        integer(head.cycles, out);
        let prefix = self.streams.entry(origin.stream.key).or_default();
        // Metadata that came since may have added entries to the environment.
        if prefix.text.is_empty() || prefix.environment != environment.len() {
            prefix.environment = environment.len();
            prefix.text.clear();
            write_prefix(origin, environment, &mut prefix.text);
        }
        out.extend_from_slice(&prefix.text);
        out.extend_from_slice(b",\"event\":");
        match head.event {
            Some(name) => string(name, out),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(level) = head.log_level {
            out.extend_from_slice(b",\"loglevel\":");
            integer(level, out);
        }
        let position = JsonPosition::new(Scopes::Named, false);
        if let Err(error) = fields(&mut JsonFields::new(out, position)) {
            // What an event has begun to write must not precede the next line.
            out.truncate(begin);
            return Err(error.into());
        }
        if let Some(locations) = origin.locations {
            write_locations(locations, out);
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}

fn write_locations(locations: &EventLocations, out: &mut Vec<u8>) {
    let mut before: &[u8] = b",\"debug_info\":{";
    for (field, location) in locations.known() {
        out.extend_from_slice(before);
        before = b",";
        string(field, out);
        let texts = [
            ("bin", &location.binary),
            ("func", &location.function),
            ("src", &location.source),
        ];
        for (place, (name, text)) in texts.into_iter().enumerate() {
            out.extend_from_slice(if place == 0 { b":{" } else { b"," });
            string(name, out);
            out.push(b':');
            string(text, out);
        }
        out.push(b'}');
    }
    if before == b"," {
        out.push(b'}');
    }
}

fn write_prefix(
    origin: Origin<'_>,
    environment: &[(Arc<str>, EnvironmentValue)],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b",\"trace\":");
    string(&origin.trace.name, out);
    out.extend_from_slice(b",\"stream\":");
    string(&origin.stream.name, out);
    out.extend_from_slice(b",\"stream_class\":");
    integer(origin.stream.class, out);
    if let Some(id) = origin.stream.id {
        out.extend_from_slice(b",\"stream_id\":");
        integer(id, out);
    }
    for (name, entry) in [
        ("host", "hostname"),
        ("procname", "procname"),
        ("vpid", "vpid"),
    ] {
        let mut entries = environment.iter();
        let Some((_, value)) = entries.find(|(known, _)| **known == *entry) else {
            continue;
        };
        out.push(b',');
        string(name, out);
        out.push(b':');
        match value {
            EnvironmentValue::Integer(value) => integer(*value, out),
            EnvironmentValue::Text(value) => string(value, out),
        }
    }
}

impl<W: Write> Sink for Json<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        self.lines.next_event(event, origin, &mut self.buffer)?;
        Ok(buffer::write_if_full(&mut self.buffer, &mut self.out)?)
    }

    /// Does nothing: each line is an event.
    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for stream in &ended.streams {
            self.lines.streams.remove(stream);
        }
        buffer::flush(&mut self.buffer, &mut self.out)?;
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        buffer::flush(&mut self.buffer, &mut self.out)?;
        Ok(Finished::default())
    }
}

impl<W: Write> RenderedSink for Json<W> {
    fn renderer(&self) -> Box<dyn Renderer> {
        Box::new(Lines::default())
    }

    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError> {
        // No line depends on the one before: the first part is empty.
        let (_, lines) = run.parts();
        Ok(buffer::append_or_write(
            &mut self.buffer,
            lines,
            &mut self.out,
        )?)
    }
}

impl Renderer for Lines {
    fn forget_streams(&mut self) {
        self.streams.clear();
    }

    fn next_event(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), SinkError> {
        let class = event.class();
        let head = Head {
            time: event.exact_time(),
            cycles: event.cycles(),
            event: class.name(),
            log_level: class.log_level().map(|level| level.0),
        };
        let environment = event.trace().environment();
        let has_json_args = has_json_args(class.name());
        self.write_line(&head, environment, origin, out, |fields| {
            if has_json_args {
                // What was sent as JSON becomes JSON again, not a text that contains it.
                fields.expect_json_args();
            }
            event.visit(fields)
        })
    }
}

#[cfg(test)]
mod tests {
    use ctf::decode::Visitor;
    use ctf::model::Scope;

    use super::*;
    use viewer::test_support::{TestOrigin, plain};

    const HEAD: Head<'_> = Head {
        time: Some(-5),
        cycles: 7,
        event: Some("a\"b"),
        log_level: Some(6),
    };

    fn write_line(
        json: &mut Json<Vec<u8>>,
        head: &Head<'_>,
        environment: &[(Arc<str>, EnvironmentValue)],
        place: &TestOrigin,
        fields: impl FnOnce(&mut JsonFields<'_>) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        let (lines, out) = (&mut json.lines, &mut json.buffer);
        lines.write_line(head, environment, place.origin(), out, fields)
    }

    fn lines(json: &mut Json<Vec<u8>>) -> Vec<serde_json::Value> {
        json.flush(&Ended::default()).unwrap();
        let lines = json.out.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn the_json_sink_writes_an_event_as_one_line_with_all_its_scopes() {
        let place = TestOrigin::new("host/session", "ust/chan_0");
        let environment = [
            ("hostname".into(), EnvironmentValue::Text("h\u{1}".into())),
            ("vpid".into(), EnvironmentValue::Integer(12)),
        ];
        let mut json = Json::new(Vec::new());
        let visit = |fields: &mut JsonFields<'_>| {
            for scope in [Scope::PacketContext, Scope::CommonContext, Scope::Payload] {
                fields.begin_scope(scope);
                fields.begin_structure();
                fields.member("x");
                fields.unsigned(1, plain());
                fields.end_structure();
                fields.end_scope();
            }
            Ok(())
        };
        write_line(&mut json, &HEAD, &environment, &place, visit).unwrap();
        let silent = Head {
            time: None,
            event: None,
            log_level: None,
            ..HEAD
        };
        write_line(&mut json, &silent, &environment, &place, |_| Ok(())).unwrap();
        assert_eq!(
            lines(&mut json),
            [
                serde_json::json!({
                    "time": -5, "cycles": 7, "trace": "host/session", "stream": "ust/chan_0",
                    "stream_class": 3, "stream_id": 4, "host": "h\u{1}", "vpid": 12,
                    "event": "a\"b", "loglevel": 6,
                    "packet": {"x": 1}, "context": {"x": 1}, "fields": {"x": 1},
                }),
                serde_json::json!({
                    "time": null, "cycles": 7, "trace": "host/session", "stream": "ust/chan_0",
                    "stream_class": 3, "stream_id": 4, "host": "h\u{1}", "vpid": 12,
                    "event": null,
                }),
            ]
        );
    }

    #[test]
    fn the_json_sink_forgets_ended_streams() {
        let mut json = Json::new(Vec::new());
        for _ in 0..10 {
            let place = TestOrigin::new("t", "s");
            write_line(&mut json, &HEAD, &[], &place, |_| Ok(())).unwrap();
            assert_eq!(json.lines.streams.len(), 1);
            json.flush(&place.ended()).unwrap();
        }
        assert!(json.lines.streams.is_empty());
    }

    #[test]
    fn the_json_sink_writes_no_part_of_an_event_that_cannot_be_decoded() {
        let place = TestOrigin::new("t", "s");
        let mut json = Json::new(Vec::new());
        let failed = write_line(&mut json, &HEAD, &[], &place, |fields| {
            fields.begin_scope(Scope::Payload);
            Err(FieldError::EmptyEvent)
        });
        assert!(failed.is_err());
        assert!(lines(&mut json).is_empty());
    }
}
