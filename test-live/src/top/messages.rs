//! What users are told beside the counts: on standard error, or on a screen in its status line.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use daemon::output::print_message;
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

use super::text::escape_name;

/// Largest number of messages, and of errors for the end, that are kept.
const MAX_MESSAGES: usize = 32;

/// The severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Notice,
    Warning,
    Error,
}

/// Messages for users. All clones have the same.
#[derive(Debug, Clone)]
pub(super) struct Messages {
    /// The messages for a screen. Absent if they are written to standard error at once.
    kept: Option<Arc<Mutex<KeptMessages>>>,
}

#[derive(Debug, Default)]
struct KeptMessages {
    last: Option<(Severity, String)>,
    errors: VecDeque<String>,
    forgotten_errors: usize,
}

impl Messages {
    /// Messages that are written to standard error.
    pub(super) fn to_stderr() -> Self {
        Self { kept: None }
    }

    /// Messages for a status line.
    pub(super) fn for_screen() -> Self {
        Self {
            kept: Some(Arc::default()),
        }
    }

    pub(super) fn add(&self, severity: Severity, text: &str) {
        // Messages quote names of traces and relays, which may have control characters.
        let text = escape_name(text);
        let Some(kept) = &self.kept else {
            return write_message(severity, &text);
        };
        let mut kept = kept.lock();
        if severity == Severity::Error {
            kept.errors.push_back(text.clone());
            if kept.errors.len() > MAX_MESSAGES {
                // It is only counted from here on: the screen has shown it.
                kept.errors.pop_front();
                kept.forgotten_errors += 1;
            }
        }
        kept.last = Some((severity, text));
    }

    /// The last message, for the status line.
    pub(super) fn last(&self) -> Option<(Severity, String)> {
        self.kept.as_ref()?.lock().last.clone()
    }

    /// Writes the errors that only the status line has shown to standard error, when the screen is
    /// closed.
    pub(super) fn write_errors(&self) {
        let Some(kept) = &self.kept else { return };
        let mut kept = kept.lock();
        if kept.forgotten_errors > 0 {
            let text = format!("{} earlier errors", kept.forgotten_errors);
            write_message(Severity::Error, &text);
        }
        for error in kept.errors.drain(..) {
            write_message(Severity::Error, &error);
        }
    }
}

fn write_message(severity: Severity, text: &str) {
    let severity = match severity {
        Severity::Notice => "",
        Severity::Warning => "warning: ",
        Severity::Error => "error: ",
    };
    print_message(format_args!("test-live: {severity}{text}"));
}

/// Takes the lines of the log.
impl MakeWriter<'_> for Messages {
    type Writer = LogLine;

    fn make_writer(&self) -> LogLine {
        LogLine {
            messages: self.clone(),
            line: Vec::new(),
        }
    }
}

/// A line of the log, which is a message when it is complete.
#[derive(Debug)]
pub(super) struct LogLine {
    messages: Messages,
    line: Vec<u8>,
}

impl Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        // The log writes a line in pieces: only now it is known to be whole.
        let text = String::from_utf8_lossy(&self.line);
        if !text.trim().is_empty() {
            self.messages.add(Severity::Notice, text.trim());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_message_is_kept_for_the_status_line_without_control_characters() {
        let messages = Messages::for_screen();
        assert_eq!(messages.last(), None);
        messages.add(Severity::Error, "one");
        let mut line = messages.make_writer();
        line.write_all(b"two \x1b[2J\n").unwrap();
        drop(line);
        let last = messages.last();
        assert_eq!(last, Some((Severity::Notice, "two \\u{1b}[2J".to_owned())));
        let kept = messages.kept.as_ref().unwrap().lock();
        assert_eq!(kept.errors, ["one"]);
    }
}
