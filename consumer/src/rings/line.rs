//! One event as one line of text, for people: as `test-live --sink log` shows it, without the host.

use ctf::write::Value;
use daemon::event_text::{
    EventSource, LineStyle, SourceId, push_indentation, push_printable, push_value,
};
use daemon::span_lines::SpanEvent;
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
/// Name of the field that is the id of the span around a span.
const SPAN_PARENT: &str = "parent";

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
}

/// An event of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpanParts {
    /// What the event says.
    pub event: SpanEvent,
    /// The target of the span; empty if it has none.
    pub target: String,
    /// The id of the span, if the event says it.
    pub id: Option<u64>,
    /// The id of the span around it, if it has one.
    pub parent: Option<u64>,
    /// The name of the span.
    pub name: String,
    /// The names and values of the other fields, as they are shown.
    pub fields: Vec<(String, String)>,
}

impl LineWriter {
    /// Writes the begin of the line of an event: time, program with process and thread, severity.
    #[must_use]
    pub(super) fn head(&self, context: &LineContext<'_>, class: &EventClass) -> String {
        let mut line = self.source(context);
        let severity = log_level(class.severity).0;
        self.style.push_severity(&mut line, severity);
        line
    }

    /// Writes that events are missing.
    #[must_use]
    pub(super) fn lost(&self, context: &LineContext<'_>, events: u64) -> String {
        let mut line = self.source(context);
        self.style
            .push_loss(&mut line, &format!("{events} events lost"));
        line
    }

    fn source(&self, context: &LineContext<'_>) -> String {
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

/// Appends the event of a line after its head: indentation, then `text`.
pub(super) fn push_event(line: &mut String, depth: usize, text: &str) {
    push_indentation(line, depth);
    line.push_str(text);
}

/// Writes the name, message and fields of an event that is none of a span.
#[must_use]
pub(super) fn event_text(class: &EventClass, fields: &[FieldContent<'_>]) -> String {
    let mut text = String::new();
    push_printable(&mut text, &event_name(class));
    if let Some(message) = field(class, fields, MESSAGE) {
        text.push_str(": ");
        push_printable(&mut text, &value_text(message));
    }
    for ((name, _), field) in class.fields.iter().zip(fields) {
        if name != MESSAGE {
            text.push(' ');
            push_value(&mut text, name);
            text.push('=');
            push_value(&mut text, &value_text(field));
        }
    }
    text
}

impl SpanParts {
    /// Takes the parts of an event of a span; `None` if it is another event.
    #[must_use]
    pub(super) fn of(class: &EventClass, fields: &[FieldContent<'_>]) -> Option<Self> {
        let class_name = event_name(class);
        let (event, target) = SpanEvent::of(&class_name)?;
        let is_edge = matches!(event, SpanEvent::Enter | SpanEvent::Exit);
        let id = id(class, fields, SPAN_ID);
        // Without an id, only the thread says which span is entered or left.
        if id.is_none() && !is_edge {
            return None;
        }
        let printable = |text: &str| {
            let mut value = String::new();
            push_value(&mut value, text);
            value
        };
        let own = [SPAN_ID, SPAN_NAME, SPAN_PARENT];
        let others = class.fields.iter().zip(fields);
        let others = others.filter(|((name, _), _)| !own.contains(&&**name));
        let name = field(class, fields, SPAN_NAME).map(value_text);
        Some(Self {
            event,
            target: target.to_owned(),
            id,
            parent: self::id(class, fields, SPAN_PARENT),
            name: name.unwrap_or_default(),
            fields: others
                .map(|((name, _), field)| (printable(name), printable(&value_text(field))))
                .collect(),
        })
    }

    /// Returns the text of a line about the span after its indentation.
    #[must_use]
    pub(super) fn line_text(&self, text: &str) -> String {
        let mut line = String::new();
        if !self.target.is_empty() {
            push_printable(&mut line, &self.target);
            line.push_str(": ");
        }
        line.push_str(text);
        line
    }
}

/// Returns the id in the field of this name, if there is one.
fn id(class: &EventClass, fields: &[FieldContent<'_>], name: &str) -> Option<u64> {
    match field(class, fields, name)?.value() {
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

fn value_text(field: &FieldContent<'_>) -> String {
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
    };

    fn line(has_colors: bool, message: &str) -> String {
        let (zone, style) = (TimeZone::UTC, LineStyle { has_colors });
        let fields = [
            FieldContent::Plain(Value::Text(message)),
            FieldContent::Plain(Value::Unsigned(3)),
            FieldContent::Text("a b".into()),
        ];
        let mut line = LineWriter { style, zone }.head(&CONTEXT, &class());
        push_event(&mut line, 1, &event_text(&class(), &fields));
        line
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
    fn an_event_of_a_span_has_its_id_name_and_fields_apart() {
        let class = |name: &str| EventClass {
            name: name.into(),
            fields: vec![
                ("span".into(), FieldType::U64),
                ("name".into(), FieldType::Str),
                ("parent".into(), FieldType::U64),
                ("a b".into(), FieldType::Str),
            ],
            ..class()
        };
        let fields = [
            FieldContent::Plain(Value::Unsigned(u64::MAX)),
            FieldContent::Plain(Value::Text("query")),
            FieldContent::Plain(Value::Unsigned(0)),
            FieldContent::Plain(Value::Text("c=d")),
        ];
        let parts = SpanParts::of(&class("span:new"), &fields).unwrap();
        let want = SpanParts {
            event: SpanEvent::New,
            target: "app::db".into(),
            id: Some(u64::MAX),
            parent: None,
            name: "query".into(),
            fields: vec![(r#""a b""#.into(), r#""c=d""#.into())],
        };
        assert_eq!(parts, want);
        assert_eq!(parts.line_text("-> query"), "app::db: -> query");
        assert_eq!(SpanParts::of(&class("query"), &fields), None);
        // Of no span, although its name is that of an event of one.
        let without_id = [FieldContent::Plain(Value::Unsigned(0)), fields[1].clone()];
        assert_eq!(SpanParts::of(&class("span:close"), &without_id), None);
        assert!(SpanParts::of(&class("span:exit"), &without_id).is_some());
    }
}
