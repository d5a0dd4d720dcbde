//! Events as lines of text for people: the parts that all programs show in the same way.
//!
//! A line is the time, host, program with process and thread, severity, indentation, name and
//! fields, in this order. Names and texts come from traced programs: nothing of them controls the
//! terminal or ends the line.

use std::fmt::{self, Write};

/// Deepest indentation, in spans.
const MAX_SHOWN_DEPTH: usize = 32;

/// How lines of text for people look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineStyle {
    /// Whether hosts, programs, threads, severities and losses are coloured.
    pub has_colors: bool,
}

/// The host, program and thread of an event, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventSource<'a> {
    /// Name of the host; empty if it is not known, or need not be said.
    pub host: &'a str,
    /// Name of the program; empty if it is not known.
    pub program: &'a str,
    /// Id of the process.
    pub pid: Option<SourceId<'a>>,
    /// Id of the thread.
    pub tid: Option<SourceId<'a>>,
}

/// The id of a process or thread, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceId<'a> {
    /// A number, as the system gives them.
    Number(i64),
    /// What a program calls itself or its thread.
    Text(&'a str),
}

impl fmt::Display for SourceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl LineStyle {
    /// Appends where an event is from, and a space.
    pub fn push_source(self, line: &mut String, source: EventSource<'_>) {
        if !source.host.is_empty() {
            self.push_colored(line, "36", source.host);
            line.push(' ');
        }
        let ids = match (source.pid, source.tid) {
            (Some(pid), Some(tid)) => format!("{pid}:{tid}"),
            (Some(pid), None) => pid.to_string(),
            (None, Some(tid)) => format!("?:{tid}"),
            (None, None) => String::new(),
        };
        if source.program.is_empty() && ids.is_empty() {
            return;
        }
        self.push_colored(line, "35", source.program);
        if !ids.is_empty() {
            line.push('[');
            self.push_colored(line, "1;34", &ids);
            line.push(']');
        }
        line.push(' ');
    }

    /// Appends a severity, 0 (the most severe) to 14 as log levels of LTTng are, in a column of its
    /// own.
    pub fn push_severity(self, line: &mut String, log_level: u8) {
        let (name, color) = match log_level {
            0 => ("EMERG", "1;31"),
            1 => ("ALERT", "1;31"),
            2 => ("CRIT", "1;31"),
            3 => ("ERROR", "1;31"),
            4 => ("WARN", "1;33"),
            5 => ("NOTE", "1;32"),
            6 => ("INFO", "1;32"),
            7..=13 => ("DEBUG", "37"),
            _ => ("TRACE", "90"),
        };
        self.push_colored(line, color, &format!("{name:<5}"));
        line.push(' ');
    }

    /// Appends a sentence about events that are missing.
    pub fn push_loss(self, line: &mut String, sentence: &str) {
        self.push_colored(line, "1;31", sentence);
    }

    fn push_colored(self, line: &mut String, color: &str, text: &str) {
        let is_colored = self.has_colors && !text.is_empty();
        if is_colored {
            let _ = write!(line, "\u{1b}[{color}m");
        }
        // Escaped between the colours as well, or the text of a program could end one and begin
        // another.
        push_printable(line, text);
        if is_colored {
            line.push_str("\u{1b}[0m");
        }
    }
}

/// Appends the indentation of an event of a thread that is in so many spans.
pub fn push_indentation(line: &mut String, depth: usize) {
    for _ in 0..depth.min(MAX_SHOWN_DEPTH) {
        line.push_str("    ");
    }
}

/// Appends a text in which nothing controls the terminal or ends the line.
pub fn push_printable(line: &mut String, text: &str) {
    let mut rest = text;
    while let Some((plain, special, after)) = split_at_control(rest) {
        line.push_str(plain);
        line.extend(special.escape_default());
        rest = after;
    }
    line.push_str(rest);
}

/// Returns a text in which nothing controls the terminal or ends the line.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    push_printable(&mut printable, text);
    printable
}

/// Appends the text of a field: in quotation marks if it is empty, or has spaces, `=`, quotation
/// marks or control characters, which are escaped.
pub fn push_value(line: &mut String, text: &str) {
    let is_quoted = |character: char| matches!(character, '=' | '"') || character.is_whitespace();
    if !text.is_empty() && !text.contains(|c: char| is_quoted(c) || is_control(c)) {
        return line.push_str(text);
    }
    line.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            _ if is_control(character) => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
    line.push('"');
}

/// Appends a duration in nanoseconds with its unit, to three digits or more: `1.23 ms`.
pub fn push_duration(line: &mut String, nanoseconds: u64) {
    let (unit, name) = match nanoseconds {
        0..1_000 => return line.push_str(&format!("{nanoseconds} ns")),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let (whole, hundredths) = (nanoseconds / unit, nanoseconds % unit / (unit / 100));
    let _ = write!(line, "{whole}.{hundredths:02} {name}");
}

/// Splits a text at its first control character: the text before it, the character, and the text
/// after it.
fn split_at_control(text: &str) -> Option<(&str, char, &str)> {
    let (at, special) = text
        .char_indices()
        .find(|(_, character)| is_control(*character))?;
    let after = at + special.len_utf8();
    Some((text.get(..at)?, special, text.get(after..)?))
}

/// Whether a terminal would act on a character, or show those after it in another order.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200E}' | '\u{200F}' | '\u{2028}' | '\u{2029}')
        || matches!(character, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut String)) -> String {
        let mut line = String::new();
        push(&mut line);
        line
    }

    #[test]
    fn the_source_of_an_event_is_shown_as_far_as_it_is_known() {
        let source = |host, program, pid, tid| {
            let source = EventSource {
                host,
                program,
                pid,
                tid,
            };
            text(|line| LineStyle::default().push_source(line, source))
        };
        let number = |number| Some(SourceId::Number(number));
        let named = |name| Some(SourceId::Text(name));
        assert_eq!(source("h", "app", number(1), number(2)), "h app[1:2] ");
        assert_eq!(source("", "app", number(1), None), "app[1] ");
        assert_eq!(source("h", "", None, number(2)), "h [?:2] ");
        assert_eq!(source("", "", named("a"), named("b\n")), "[a:b\\n] ");
        assert_eq!(source("h", "app", None, None), "h app ");
        assert_eq!(source("", "", None, None), "");
    }

    #[test]
    fn severities_have_colors_only_if_the_style_says_so() {
        let severity =
            |has_colors, level| text(|line| LineStyle { has_colors }.push_severity(line, level));
        assert_eq!(severity(false, 4), "WARN  ");
        assert_eq!(severity(true, 3), "\u{1b}[1;31mERROR\u{1b}[0m ");
        assert_eq!(severity(false, 13), "DEBUG ");
        assert_eq!(severity(false, 200), "TRACE ");
    }

    #[test]
    fn texts_are_quoted_only_where_they_would_be_misread() {
        for (value, want) in [
            ("plain/é", "plain/é"),
            (r"c:\dir", r"c:\dir"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a=b", r#""a=b""#),
            (r#"say "hi" \"#, r#""say \"hi\" \\""#),
            ("a\u{1b}[2J", r#""a\u{1b}[2J""#),
            ("a\nb", r#""a\nb""#),
        ] {
            assert_eq!(text(|line| push_value(line, value)), want);
        }
    }

    #[test]
    fn no_text_reaches_the_terminal_with_a_control_character() {
        let hostile = "a\u{1b}[2J\r\n\u{7f}\u{9b}31m\u{202e}é";
        let escaped = r"a\u{1b}[2J\r\n\u{7f}\u{9b}31m\u{202e}é";
        assert_eq!(printable(hostile), escaped);
        assert_eq!(
            text(|line| push_value(line, hostile)),
            format!("\"{escaped}\"")
        );
        let style = LineStyle::default();
        let lost = text(|line| style.push_loss(line, hostile));
        assert_eq!(lost, escaped);
    }

    #[test]
    fn durations_have_a_unit_of_their_size() {
        for (nanoseconds, want) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (1_234_567, "1.23 ms"),
            (999_999_999, "999.99 ms"),
            (83_000_000_000, "83.00 s"),
        ] {
            assert_eq!(text(|line| push_duration(line, nanoseconds)), want);
        }
    }

    #[test]
    fn indentation_ends_at_a_maximum() {
        assert_eq!(text(|line| push_indentation(line, 2)), " ".repeat(8));
        let deepest = text(|line| push_indentation(line, usize::MAX));
        assert_eq!(deepest.len(), 4 * MAX_SHOWN_DEPTH);
    }
}
