//! One line: its parts up to the name of the event, and how it ends.

use daemon::event_text::{EventSource, LineStyle, push_duration, push_indentation, push_printable};

use crate::sink::text::{ShownTime, Times};

/// Writes lines, one after the other, into a buffer.
#[derive(Debug)]
pub(super) struct LineWriter {
    pub(super) times: Times,
    /// The number of lines that were ended.
    pub(super) lines: u64,
    style: LineStyle,
    line: String,
    time: Vec<u8>,
}

impl LineWriter {
    pub(super) fn new(times: Times, has_colors: bool) -> Self {
        Self {
            times,
            lines: 0,
            style: LineStyle { has_colors },
            line: String::new(),
            time: Vec::new(),
        }
    }

    /// Begins a line: time if the event has a clock, where the event is from, severity, and the
    /// indentation for this number of spans.
    pub(super) fn begin(
        &mut self,
        time: Option<ShownTime>,
        source: EventSource<'_>,
        log_level: Option<u8>,
        depth: usize,
    ) {
        // The memory is kept for the next line.
        self.line.clear();
        if let Some(time) = time {
            self.time.clear();
            self.times.write_event_time(&mut self.time, time);
            // Times are ASCII: nothing is replaced.
            self.line.push_str(&String::from_utf8_lossy(&self.time));
            self.line.push(' ');
        }
        self.style.push_source(&mut self.line, source);
        if let Some(level) = log_level {
            self.style.push_severity(&mut self.line, level);
        }
        push_indentation(&mut self.line, depth);
    }

    /// Appends a text in which nothing controls the terminal.
    pub(super) fn push_printable(&mut self, text: &str) {
        push_printable(&mut self.line, text);
    }

    /// Appends phase and name of an event with phases; the name may be unknown.
    pub(super) fn push_phase(&mut self, phase: &str, name: &str) {
        push_printable(&mut self.line, phase);
        if !name.is_empty() {
            self.line.push(' ');
            push_printable(&mut self.line, name);
        }
    }

    /// Appends the target of a span, which may be empty, and its text, in which nothing controls
    /// the terminal.
    pub(super) fn push_span(&mut self, target: &str, text: &str) {
        if !target.is_empty() {
            push_printable(&mut self.line, target);
            self.line.push_str(": ");
        }
        self.line.push_str(text);
    }

    /// Appends a member that is shown in front of the others; a message without its name.
    pub(super) fn push_captured(&mut self, member: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        match member {
            "message" => self.line.push_str(": "),
            member => {
                self.line.push(' ');
                self.line.push_str(member);
                self.line.push('=');
            }
        }
        push_printable(&mut self.line, text);
    }

    /// Appends a duration in parentheses, if it is known.
    pub(super) fn push_duration(&mut self, nanoseconds: Option<u64>) {
        if let Some(nanoseconds) = nanoseconds {
            self.line.push_str(" (");
            push_duration(&mut self.line, nanoseconds);
            self.line.push(')');
        }
    }

    /// Appends a sentence about events that are missing.
    pub(super) fn push_loss(&mut self, sentence: &str) {
        self.style.push_loss(&mut self.line, sentence);
    }

    /// Appends fields, which have been escaped, and ends the line.
    pub(super) fn end(&mut self, fields: [&str; 2], out: &mut Vec<u8>) {
        out.extend_from_slice(self.line.as_bytes());
        for text in fields {
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b'\n');
        self.lines += 1;
    }
}
