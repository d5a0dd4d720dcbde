//! One event as one line of text, for people: as `test-live --sink log` shows it, without the host.

use ctf::write::Value;
use daemon::event_text::{
    EventSource, LineStyle, SourceId, push_duration, push_indentation, push_printable, push_value,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use trace_ring_core::format::EventClass;

use crate::frontend::ring::classes::{FieldContent, event_name, log_level};

/// Name of the field that is shown without its name.
const MESSAGE: &str = "message";
/// Name of the field that is the name of a span.
const SPAN_NAME: &str = "name";
/// Name of the field that is the id of a span.
const SPAN_ID: &str = "span";

/// The form of the lines, which is that of all events.
#[derive(Debug, Clone)]
pub(super) struct LineWriter {
    /// Whether severities, programs and threads are coloured.
    pub style: LineStyle,
    /// The time zone of the times.
    pub zone: TimeZone,
}

/// What a line says besides the event itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineContext<'a> {
    /// Nanoseconds since the epoch.
    pub time: i128,
    /// Name of the program.
    pub program: &'a str,
    /// Id of the process.
    pub pid: u32,
    /// Id of the thread.
    pub tid: u32,
    /// Number of spans that the thread is in.
    pub depth: usize,
    /// Whether the thread enters or leaves a span.
    pub edge: Option<Edge>,
}

/// The begin or end of the time that a thread is in a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    /// The thread enters the span.
    Begin,
    /// The thread leaves the span, after so many nanoseconds if that is known.
    End(Option<u64>),
}

impl Edge {
    /// Whether an event is the begin or end of a span.
    pub(super) fn of(class: &EventClass) -> Option<Self> {
        match class.name.as_str() {
            "span:enter" => Some(Self::Begin),
            "span:exit" => Some(Self::End(None)),
            _ => None,
        }
    }
}

impl LineWriter {
    /// Writes an event: time, program with process and thread, severity, indentation, name, message
    /// and fields.
    #[must_use]
    pub(super) fn event(
        &self,
        context: &LineContext<'_>,
        class: &EventClass,
        fields: &[FieldContent<'_>],
    ) -> String {
        let mut line = self.head(context);
        self.style
            .push_severity(&mut line, log_level(class.severity).0);
        push_indentation(&mut line, context.depth);
        let omitted = if context.edge.is_some() {
            push_edge(&mut line, context.edge, class, fields);
            SPAN_NAME
        } else {
            push_printable(&mut line, &event_name(class));
            if let Some(message) = field(class, fields, MESSAGE) {
                line.push_str(": ");
                push_printable(&mut line, &text(message));
            }
            MESSAGE
        };
        for ((name, _), field) in class.fields.iter().zip(fields) {
            if name != omitted {
                line.push(' ');
                push_value(&mut line, name);
                line.push('=');
                push_value(&mut line, &text(field));
            }
        }
        line
    }

    /// Writes that events are missing.
    #[must_use]
    pub(super) fn lost(&self, context: &LineContext<'_>, events: u64) -> String {
        let mut line = self.head(context);
        self.style
            .push_loss(&mut line, &format!("{events} events lost"));
        line
    }

    fn head(&self, context: &LineContext<'_>) -> String {
        // A process may write any number as the time.
        let time = Timestamp::from_nanosecond(context.time).unwrap_or_default();
        let time = time.to_zoned(self.zone.clone());
        let mut line = time.strftime("%H:%M:%S.%9f ").to_string();
        let source = EventSource {
            host: "",
            program: context.program,
            pid: Some(SourceId::Number(context.pid.into())),
            tid: Some(SourceId::Number(context.tid.into())),
        };
        self.style.push_source(&mut line, source);
        line
    }
}

/// Appends target, phase and name of a span, and its duration.
fn push_edge(
    line: &mut String,
    edge: Option<Edge>,
    class: &EventClass,
    fields: &[FieldContent<'_>],
) {
    if !class.target.is_empty() {
        push_printable(line, &class.target);
        line.push_str(": ");
    }
    line.push_str(if edge == Some(Edge::Begin) {
        "B "
    } else {
        "E "
    });
    push_printable(line, &span_name(class, fields));
    if let Some(Edge::End(Some(nanoseconds))) = edge {
        line.push_str(" (");
        push_duration(line, nanoseconds);
        line.push(')');
    }
}

/// Returns the name of the span of an event.
pub(super) fn span_name(class: &EventClass, fields: &[FieldContent<'_>]) -> String {
    field(class, fields, SPAN_NAME)
        .map(text)
        .unwrap_or_default()
}

/// Returns the id of the span of an event, if it says one.
pub(super) fn span_id(class: &EventClass, fields: &[FieldContent<'_>]) -> Option<u64> {
    match field(class, fields, SPAN_ID)?.value() {
        Value::Unsigned(id) => Some(id).filter(|id| *id != 0),
        _ => None,
    }
}

/// Returns the field of this name.
fn field<'f, 'v>(
    class: &EventClass,
    fields: &'f [FieldContent<'v>],
    name: &str,
) -> Option<&'f FieldContent<'v>> {
    let mut named = class.fields.iter().zip(fields);
    let found = named.find(|((known, _), _)| known == name);
    found.map(|(_, field)| field)
}

fn text(field: &FieldContent<'_>) -> String {
    match field.value() {
        Value::Unsigned(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(flag) => flag.to_string(),
        Value::Text(text) => text.to_owned(),
        Value::Arguments(_) | Value::Bytes(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use trace_ring_core::Severity;
    use trace_ring_core::format::FieldType;

    use super::*;

    fn class() -> EventClass {
        EventClass {
            id: 1,
            severity: Severity::Warn,
            line: 7,
            target: "app::db".into(),
            file: "db.rs".into(),
            name: "event db.rs:7".into(),
            fields: vec![
                ("message".into(), FieldType::Str),
                ("n".into(), FieldType::U32),
                ("sql".into(), FieldType::Str),
            ],
        }
    }

    const CONTEXT: LineContext<'_> = LineContext {
        time: 1_500_000_000,
        program: "app",
        pid: 12,
        tid: 13,
        depth: 1,
        edge: None,
    };

    fn line(has_colors: bool, message: &str) -> String {
        let (zone, style) = (TimeZone::UTC, LineStyle { has_colors });
        let fields = [
            FieldContent::Plain(Value::Text(message)),
            FieldContent::Plain(Value::Unsigned(3)),
            FieldContent::Text("a b".into()),
        ];
        LineWriter { style, zone }.event(&CONTEXT, &class(), &fields)
    }

    #[test]
    fn line_has_time_thread_severity_indentation_message_and_fields() {
        assert_eq!(
            line(false, "slow"),
            r#"00:00:01.500000000 app[12:13] WARN      app::db: slow n=3 sql="a b""#
        );
    }

    #[test]
    fn control_characters_of_an_event_do_not_reach_the_terminal() {
        let line = line(false, "a\u{1b}[2J\nb\u{9b}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }

    #[test]
    fn severity_program_and_thread_have_colors_if_asked_for() {
        let line = line(true, "slow");
        for colored in ["\u{1b}[35mapp\u{1b}[0m", "\u{1b}[1;33mWARN \u{1b}[0m"] {
            assert!(line.contains(colored), "{line:?}");
        }
    }

    #[test]
    fn spans_are_begins_and_ends_with_their_duration() {
        let (zone, style) = (TimeZone::UTC, LineStyle::default());
        let writer = LineWriter { style, zone };
        let class = |name: &str| EventClass {
            name: name.into(),
            fields: vec![
                ("span".into(), FieldType::U64),
                ("name".into(), FieldType::Str),
            ],
            ..class()
        };
        let fields = [
            FieldContent::Plain(Value::Unsigned(9)),
            FieldContent::Plain(Value::Text("query")),
        ];
        let shown = |class: &EventClass, edge| {
            let context = LineContext {
                depth: 0,
                edge,
                ..CONTEXT
            };
            let line = writer.event(&context, class, &fields);
            line.split_once("WARN  ").unwrap().1.to_owned()
        };
        let (enter, exit, new) = (class("span:enter"), class("span:exit"), class("span:new"));
        let (begin, end) = (Edge::of(&enter), Edge::of(&exit));
        assert_eq!((begin, end), (Some(Edge::Begin), Some(Edge::End(None))));
        assert_eq!(shown(&enter, begin), "app::db: B query span=9");
        let took = Some(Edge::End(Some(1_500)));
        assert_eq!(shown(&exit, took), "app::db: E query (1.50 us) span=9");
        assert_eq!(
            shown(&new, Edge::of(&new)),
            "app::db:span:new span=9 name=query"
        );
    }
}
