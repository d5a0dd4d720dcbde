//! One event as one line of text, for people.

use std::fmt::Write;

use ctf::write::Value;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use trace_ring_core::Severity;
use trace_ring_core::format::EventClass;

use crate::frontend::ring::classes::FieldContent;

/// Name of the field that is shown without its name.
const MESSAGE: &str = "message";

/// Deepest indentation, in calls.
const MAX_DEPTH: usize = 32;

/// How lines look.
#[derive(Debug, Clone)]
pub(super) struct LineStyle {
    /// Whether severities, programs and threads are coloured.
    pub has_colors: bool,
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
}

impl LineStyle {
    /// Writes an event: time, severity, program with process and thread, indentation, target, message and fields.
    #[must_use]
    pub(super) fn event(
        &self,
        context: &LineContext<'_>,
        class: &EventClass,
        fields: &[FieldContent<'_>],
    ) -> String {
        let mut line = self.head(context);
        let (name, color) = severity(class.severity);
        self.colored(&mut line, color, &format!("{name:<5}"));
        line.push(' ');
        for _ in 0..context.depth.min(MAX_DEPTH) {
            line.push_str("    ");
        }
        if !class.target.is_empty() {
            let _ = write!(line, "{}: ", printable(&class.target));
        }
        let named = || class.fields.iter().map(|(name, _)| name).zip(fields);
        let message = named().find(|(name, _)| *name == MESSAGE);
        match message {
            Some((_, message)) => line.push_str(&text(message)),
            None => line.push_str(&printable(&class.name)),
        }
        for (name, field) in named().filter(|(name, _)| *name != MESSAGE) {
            let _ = write!(line, " {}={}", printable(name), quoted(field));
        }
        line
    }

    /// Writes that events are missing.
    #[must_use]
    pub(super) fn lost(&self, context: &LineContext<'_>, events: u64) -> String {
        let mut line = self.head(context);
        self.colored(&mut line, "1;31", &format!("{events} events lost"));
        line
    }

    fn head(&self, context: &LineContext<'_>) -> String {
        let time = Timestamp::from_nanosecond(context.time).unwrap_or_default();
        let time = time.to_zoned(self.zone.clone());
        let mut line = time.strftime("%H:%M:%S.%9f ").to_string();
        self.colored(&mut line, "35", &printable(context.program));
        line.push('[');
        self.colored(
            &mut line,
            "1;34",
            &format!("{}:{}", context.pid, context.tid),
        );
        line.push_str("] ");
        line
    }

    fn colored(&self, line: &mut String, color: &str, text: &str) {
        if self.has_colors && !color.is_empty() {
            let _ = write!(line, "\u{1b}[{color}m{text}\u{1b}[0m");
        } else {
            line.push_str(text);
        }
    }
}

/// The name of a severity, and its colour.
fn severity(severity: Severity) -> (&'static str, &'static str) {
    match severity {
        Severity::Error => ("ERROR", "1;31"),
        Severity::Warn => ("WARN", "1;33"),
        Severity::Info => ("INFO", "1;32"),
        Severity::Debug => ("DEBUG", "37"),
        Severity::Trace => ("TRACE", "90"),
    }
}

fn text(field: &FieldContent<'_>) -> String {
    match field.value() {
        Value::Unsigned(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Text(text) => printable(text),
        Value::Arguments(_) | Value::Bytes(_) => String::new(),
    }
}

/// A field behind its name: text that has blanks is quoted.
fn quoted(field: &FieldContent<'_>) -> String {
    let is_text = matches!(field.value(), Value::Text(_));
    let text = text(field);
    if is_text && (text.is_empty() || text.contains([' ', '"', '='])) {
        format!("{text:?}")
    } else {
        text
    }
}

/// A text in which nothing controls the terminal or ends the line.
#[must_use]
pub(super) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

#[cfg(test)]
mod tests {
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
    };

    fn line(has_colors: bool, message: &str) -> String {
        let zone = TimeZone::UTC;
        let fields = [
            FieldContent::Plain(Value::Text(message)),
            FieldContent::Plain(Value::Unsigned(3)),
            FieldContent::Text("a b".into()),
        ];
        LineStyle { has_colors, zone }.event(&CONTEXT, &class(), &fields)
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
}
