//! What a client has sent -> commands, and events as they are stored.

use memchr::{memchr, memchr_iter};
use serde::Serialize;
use tef::{Checked, Repairs};

use super::limits::{MAX_REJECTED_BYTES_PER_READ, MAX_REJECTED_LINE_BYTES};
use super::line::{Command, Line};

/// Complete lines that have not been looked at yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// The same, if all of it is UTF-8.
    text: Option<&'a str>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Something to be done.
    Command(Command<'a>),
    /// Events in the form that is stored: one to a line, each with its line feed.
    Events {
        /// Complete lines.
        text: &'a [u8],
        /// How many.
        lines: u64,
    },
    /// Nothing but lines that were refused, before a command.
    Refused,
}

/// What was wrong with lines.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// What was put right.
    pub(super) repairs: Repairs,
    /// Lines that were refused.
    pub(super) refused: u64,
    /// Why the first of them was.
    pub(super) reason: String,
    /// How it begins.
    pub(super) begin: String,
    /// The lines that were refused, with the reasons, in the form that is stored; not all, if they
    /// are many.
    pub(super) rejected: Vec<u8>,
}

/// Checks lines, and repairs those that need it.
///
/// Text that is stored as it came, and that is nearly all, is never copied.
#[derive(Debug)]
pub(super) struct Sieve {
    longest: usize,
    repaired: Vec<u8>,
    findings: Findings,
}

#[derive(Debug, Serialize)]
struct Rejected<'a> {
    reason: &'a str,
    line: &'a str,
}

impl<'a> Lines<'a> {
    /// Lines of which the last one, too, ends in a line feed.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            text: std::str::from_utf8(bytes).ok(),
        }
    }

    /// Without its line feed.
    fn first(&self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        self.rest.get(..end)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.text = self.text.and_then(|text| text.get(bytes..));
    }

    /// Passes over the lines at the front that are stored as they are. Gives their bytes and number.
    fn skip_plain(&mut self, longest: usize) -> (usize, u64) {
        let (mut bytes, mut lines) = (0, 0);
        if let Some(text) = self.text {
            for end in memchr_iter(b'\n', self.rest) {
                if !text
                    .get(bytes..end)
                    .is_some_and(|line| is_plain(line, longest))
                {
                    break;
                }
                bytes = end + 1;
                lines += 1;
            }
        }
        self.skip(bytes);
        (bytes, lines)
    }
}

fn is_plain(line: &str, longest: usize) -> bool {
    line.starts_with('{')
        && line.ends_with('}')
        && line.len() <= longest
        && matches!(tef::check_str(line), Checked::Valid(_))
}

impl Findings {
    fn refuse(&mut self, line: &[u8], reason: &str) {
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

impl Sieve {
    /// Lines longer than `longest` are refused.
    pub(super) fn new(longest: usize) -> Self {
        Self {
            longest,
            repaired: Vec::new(),
            findings: Findings::default(),
        }
    }

    /// Takes events, or one command, off the front. What was found must be asked for each time: it
    /// concerns what stands before the next command.
    pub(super) fn next<'a, 'b: 'a>(&'a mut self, lines: &mut Lines<'b>) -> Option<Part<'a>> {
        self.repaired.clear();
        let mut taken = 0;
        let mut begin = lines.rest;
        let mut run = 0;
        loop {
            let (bytes, plain) = lines.skip_plain(self.longest);
            run += bytes;
            taken += plain;
            let Some(line) = lines.first() else { break };
            let with_end = (line.len() + 1).min(lines.rest.len());
            match Line::read(line) {
                Line::Command(_) if taken == 0 && !self.findings.is_empty() => {
                    return Some(Part::Refused);
                }
                Line::Command(command) if taken == 0 => {
                    lines.skip(with_end);
                    return Some(Part::Command(command));
                }
                Line::Command(_) => break,
                other => {
                    lines.skip(with_end);
                    self.repaired
                        .extend_from_slice(begin.get(..run).unwrap_or_default());
                    if let Line::Other(line) = other {
                        taken += u64::from(self.take(line));
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
        (taken > 0).then_some(Part::Events { text, lines: taken })
    }

    /// Refuses a line of which only the beginning has been kept.
    pub(super) fn refuse_too_long(&mut self, beginning: &[u8]) {
        self.findings.refuse(beginning, "too long");
    }

    /// What was wrong since this was last asked.
    pub(super) fn findings(&mut self) -> Option<Findings> {
        (!self.findings.is_empty()).then(|| std::mem::take(&mut self.findings))
    }

    /// Keeps no more memory than so much.
    pub(super) fn shrink(&mut self, bytes: usize) {
        self.repaired.clear();
        self.repaired.shrink_to(bytes);
    }

    /// Takes a line that is not plain. Gives whether it is an event after all.
    fn take(&mut self, line: &[u8]) -> bool {
        if line.len() > self.longest {
            self.findings.refuse(line, "too long");
            return false;
        }
        match tef::check(line) {
            Checked::Valid(event) => self.repaired.extend_from_slice(event.as_bytes()),
            // It could be put right, but what ends so has never been an event here.
            Checked::Repaired(..) if !line.ends_with(b"}") => {
                self.findings.refuse(line, "a comma after the object");
                return false;
            }
            Checked::Repaired(event, repairs) => {
                self.findings.repairs += repairs;
                self.repaired.extend_from_slice(event.as_bytes());
            }
            Checked::Rejected(reason) => {
                self.findings.refuse(line, &reason.to_string());
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

    /// Everything that comes out, and what was found.
    fn sift(bytes: &[u8]) -> (Vec<String>, Findings) {
        let mut sieve = Sieve::new(64);
        let mut lines = Lines::new(bytes);
        let mut parts = Vec::new();
        let mut found = Findings::default();
        while let Some(part) = sieve.next(&mut lines) {
            parts.push(match part {
                Part::Refused => "refused".to_owned(),
                Part::Command(command) => format!("{command:?}"),
                Part::Events { text, lines } => {
                    let text = std::str::from_utf8(text).unwrap();
                    assert_eq!(text.matches('\n').count() as u64, lines);
                    text.to_owned()
                }
            });
            found.add(sieve.findings().unwrap_or_default());
        }
        found.add(sieve.findings().unwrap_or_default());
        (parts, found)
    }

    #[test]
    fn plain_events_are_not_copied() {
        let bytes = b"\n{\"a\":1}\n{}\n";
        let mut sieve = Sieve::new(64);
        let Some(Part::Events { text, lines: 2 }) = sieve.next(&mut Lines::new(bytes)) else {
            panic!("two events")
        };
        assert!(std::ptr::eq(text, bytes.get(1..).unwrap()));
    }

    #[test]
    fn commands_stand_between_events_in_their_order() {
        let (parts, found) = sift(b"{}\nOPEN a\n\n{\"b\":2}\r\n{}\nDIE\n{}\n");
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
    fn what_was_refused_before_a_command_is_told_before_it() {
        let (parts, found) = sift(b"OPEN a\nHELLO\nOPEN b\n{}\n");
        assert_eq!(parts, ["Open(\"a\")", "refused", "Open(\"b\")", "{}\n"]);
        assert_eq!(found.refused, 1);
    }

    #[test]
    fn what_cannot_be_repaired_is_kept_with_the_reason() {
        let (parts, found) = sift(b"{}\nHELLO\n{\"a\":nan}\n{\"a\":1}{}\n{\"x\":\"\xff\"}\n{},\n");
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
    fn a_line_that_is_too_long_harms_no_other() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(64));
        let (parts, found) = sift(format!("{{}}\n{long}\n{{}}\n").as_bytes());
        assert_eq!(parts, ["{}\n{}\n"]);
        assert_eq!(found.refused, 1);
    }
}
