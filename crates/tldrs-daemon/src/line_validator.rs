//! Validates and repairs the lines of a client: takes bytes, returns commands, and events in the
//! form in which they are stored.

use memchr::{memchr, memchr_iter};
use serde::Serialize;
use tef::{Checked, Repairs};

use crate::limits::{MAX_REJECTED_BYTES_PER_READ, MAX_REJECTED_LINE_BYTES};
use crate::line::{Command, Line};

/// Complete lines that have not been validated yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines<'a> {
    rest: &'a [u8],
    /// The rest as text, if all of it is UTF-8.
    text: Option<&'a str>,
}

/// The next part of the lines: a command, or all events before one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinePart<'a> {
    /// A command to the daemon.
    Command(Command<'a>),
    /// Events in the form that is stored: one to a line, each with its line feed.
    Events {
        /// Complete lines, each with its line feed.
        text: &'a [u8],
        /// Number of lines in the text.
        lines: u64,
    },
    /// All lines before a command were refused.
    Refused,
}

/// The repairs that lines needed, and the lines that were refused, since findings were last taken.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Number of repairs of each kind.
    pub(crate) repairs: Repairs,
    /// Number of refused lines.
    pub(crate) refused: u64,
    /// Why the first of them was refused.
    pub(crate) reason: String,
    /// The beginning of that line.
    pub(crate) begin: String,
    /// Refused lines with the reasons, in the form in which they are stored; bounded, so some may
    /// be missing.
    pub(crate) rejected: Vec<u8>,
}

/// Validates lines, and repairs those that need it.
///
/// Text that needs no repair, which is nearly all, is never copied.
#[derive(Debug)]
pub(crate) struct LineValidator {
    max_line_bytes: usize,
    repaired: Vec<u8>,
    findings: Findings,
}

/// A refused line as it is stored.
#[derive(Debug, Serialize)]
struct Rejected<'a> {
    reason: &'a str,
    line: &'a str,
}

impl<'a> Lines<'a> {
    /// Lines of which the last one, too, ends in a line feed.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            text: std::str::from_utf8(bytes).ok(),
        }
    }

    /// Returns the first line without its line feed.
    fn first_line(&self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        self.rest.get(..end)
    }

    fn skip_bytes(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.text = self.text.and_then(|text| text.get(bytes..));
    }

    /// Skips the lines at the front that are stored as they are. Returns their bytes and number.
    fn skip_valid(&mut self, max_line_bytes: usize) -> (usize, u64) {
        let (mut bytes, mut lines) = (0, 0);
        if let Some(text) = self.text {
            for end in memchr_iter(b'\n', self.rest) {
                if !text
                    .get(bytes..end)
                    .is_some_and(|line| is_valid_as_is(line, max_line_bytes))
                {
                    break;
                }
                bytes = end + 1;
                lines += 1;
            }
        }
        self.skip_bytes(bytes);
        (bytes, lines)
    }
}

/// Whether a line is stored unchanged. The first and last byte are tested before the line is
/// parsed: lines with blanks around them, and commands, take the slow path.
fn is_valid_as_is(line: &str, max_line_bytes: usize) -> bool {
    line.starts_with('{')
        && line.ends_with('}')
        && line.len() <= max_line_bytes
        && matches!(tef::check_str(line), Checked::Valid(_))
}

impl Findings {
    fn add_refused(&mut self, line: &[u8], reason: &str) {
        self.refused += 1;
        let cut = line.get(..MAX_REJECTED_LINE_BYTES).unwrap_or(line);
        let line = &String::from_utf8_lossy(cut);
        if self.reason.is_empty() {
            reason.clone_into(&mut self.reason);
            self.begin = line.chars().take(80).collect();
        }
        if self.rejected.len() < MAX_REJECTED_BYTES_PER_READ
            && serde_json::to_writer(&mut self.rejected, &Rejected { reason, line }).is_ok()
        {
            self.rejected.push(b'\n');
        }
    }

    fn is_empty(&self) -> bool {
        self.refused == 0 && self.repairs.total() == 0
    }
}

impl LineValidator {
    /// Lines longer than `max_line_bytes` are refused.
    pub(crate) fn new(max_line_bytes: usize) -> Self {
        Self {
            max_line_bytes,
            repaired: Vec::new(),
            findings: Findings::default(),
        }
    }

    /// Takes events, or one command, off the front. The findings must be taken after each part:
    /// they concern the lines before the next command.
    pub(crate) fn next_part<'a, 'b: 'a>(
        &'a mut self,
        lines: &mut Lines<'b>,
    ) -> Option<LinePart<'a>> {
        self.repaired.clear();
        let mut taken = 0;
        let mut begin = lines.rest;
        let mut run = 0;
        loop {
            let (bytes, plain) = lines.skip_valid(self.max_line_bytes);
            run += bytes;
            taken += plain;
            let Some(line) = lines.first_line() else {
                break;
            };
            let with_end = (line.len() + 1).min(lines.rest.len());
            match Line::read(line) {
                // The findings belong to the trace before the command, and must be taken first.
                Line::Command(_) if taken == 0 && !self.findings.is_empty() => {
                    return Some(LinePart::Refused);
                }
                Line::Command(command) if taken == 0 => {
                    lines.skip_bytes(with_end);
                    return Some(LinePart::Command(command));
                }
                Line::Command(_) => break,
                other => {
                    lines.skip_bytes(with_end);
                    self.repaired
                        .extend_from_slice(begin.get(..run).unwrap_or_default());
                    if let Line::Other(line) = other {
                        taken += u64::from(self.add_line(line));
                    }
                    begin = lines.rest;
                    run = 0;
                }
            }
        }
        let run = begin.get(..run).unwrap_or_default();
        let text = if self.repaired.is_empty() {
            run
        } else {
            self.repaired.extend_from_slice(run);
            &self.repaired
        };
        (taken > 0).then_some(LinePart::Events { text, lines: taken })
    }

    /// Refuses a line of which only the beginning has been kept.
    pub(crate) fn refuse_too_long(&mut self, beginning: &[u8]) {
        self.findings.add_refused(beginning, "too long");
    }

    /// Takes the findings since the last call, if there are any.
    pub(crate) fn take_findings(&mut self) -> Option<Findings> {
        (!self.findings.is_empty()).then(|| std::mem::take(&mut self.findings))
    }

    /// Releases memory above this number of bytes.
    pub(crate) fn shrink_memory(&mut self, bytes: usize) {
        self.repaired.clear();
        self.repaired.shrink_to(bytes);
    }

    /// Adds a line that needs repair, or refuses it. Returns whether it was added.
    fn add_line(&mut self, line: &[u8]) -> bool {
        if line.len() > self.max_line_bytes {
            self.findings.add_refused(line, "too long");
            return false;
        }
        match tef::check(line) {
            Checked::Valid(event) => self.repaired.extend_from_slice(event.as_bytes()),
            // It could be repaired, but the reference does not accept such a line either.
            Checked::Repaired(..) if !line.ends_with(b"}") => {
                self.findings.add_refused(line, "a comma after the object");
                return false;
            }
            Checked::Repaired(event, repairs) => {
                self.findings.repairs += repairs;
                self.repaired.extend_from_slice(event.as_bytes());
            }
            Checked::Rejected(reason) => {
                self.findings.add_refused(line, &reason.to_string());
                return false;
            }
        }
        self.repaired.push(b'\n');
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parts of the lines, and all findings.
    fn validate(bytes: &[u8]) -> (Vec<String>, Findings) {
        let mut validator = LineValidator::new(64);
        let mut lines = Lines::new(bytes);
        let mut parts = Vec::new();
        let mut found = Findings::default();
        while let Some(part) = validator.next_part(&mut lines) {
            parts.push(match part {
                LinePart::Refused => "refused".to_owned(),
                LinePart::Command(command) => format!("{command:?}"),
                LinePart::Events { text, lines } => {
                    let text = std::str::from_utf8(text).unwrap();
                    assert_eq!(text.matches('\n').count() as u64, lines);
                    text.to_owned()
                }
            });
            found.add(validator.take_findings().unwrap_or_default());
        }
        found.add(validator.take_findings().unwrap_or_default());
        (parts, found)
    }

    #[test]
    fn valid_events_are_not_copied() {
        let bytes = b"\n{\"a\":1}\n{}\n";
        let mut validator = LineValidator::new(64);
        let Some(LinePart::Events { text, lines: 2 }) = validator.next_part(&mut Lines::new(bytes))
        else {
            panic!("two events")
        };
        assert!(std::ptr::eq(text, bytes.get(1..).unwrap()));
    }

    #[test]
    fn commands_split_events_in_order() {
        let (parts, found) = validate(b"{}\nOPEN a\n\n{\"b\":2}\r\n{}\nDIE\n{}\n");
        assert_eq!(
            parts,
            ["{}\n", "Open(\"a\")", "{\"b\":2}\n{}\n", "Die", "{}\n"]
        );
        assert_eq!(found.refused, 0);
    }

    impl Findings {
        fn add(&mut self, more: Self) {
            self.repairs += more.repairs;
            self.refused += more.refused;
            self.rejected.extend(more.rejected);
        }
    }

    #[test]
    fn lines_refused_before_a_command_are_reported_before_it() {
        let (parts, found) = validate(b"OPEN a\nHELLO\nOPEN b\n{}\n");
        assert_eq!(parts, ["Open(\"a\")", "refused", "Open(\"b\")", "{}\n"]);
        assert_eq!(found.refused, 1);
    }

    #[test]
    fn refused_lines_are_kept_with_the_reason() {
        let (parts, found) =
            validate(b"{}\nHELLO\n{\"a\":nan}\n{\"a\":1}{}\n{\"x\":\"\xff\"}\n{},\n");
        assert_eq!(parts, ["{}\n{\"a\":\"nan\"}\n{\"x\":\"\u{fffd}\"}\n"]);
        assert_eq!((found.refused, found.repairs.total()), (3, 2));
        assert_eq!(
            String::from_utf8(found.rejected).unwrap(),
            "{\"reason\":\"no object at byte 0\",\"line\":\"HELLO\"}\n\
             {\"reason\":\"more than one object at byte 7\",\"line\":\"{\\\"a\\\":1}{}\"}\n\
             {\"reason\":\"a comma after the object\",\"line\":\"{},\"}\n"
        );
    }

    #[test]
    fn line_that_is_too_long_affects_no_other_line() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(64));
        let (parts, found) = validate(format!("{{}}\n{long}\n{{}}\n").as_bytes());
        assert_eq!(parts, ["{}\n{}\n"]);
        assert_eq!(found.refused, 1);
    }
}
