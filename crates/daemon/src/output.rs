//! Text on standard output and standard error: the only place of the programs that prints.
//!
//! A reader may leave before it has read everything, as `head` and a pager do. That is no fault of
//! the program: it ends silently, with status 0. Writes to standard output fail with an error that
//! [`is_closed_output`] recognizes, also below other errors; `main` asks that before it reports
//! one. Messages on standard error never fail.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};

use serde::Serialize;
use thiserror::Error;

/// A failure of standard output, inside an [`io::Error`] of the same kind.
#[derive(Debug, Error)]
#[error("cannot write to standard output")]
struct OutputError(#[source] io::Error);

/// Standard output, locked. Lines are written when they are complete, the rest by `flush`.
#[derive(Debug)]
pub struct StandardOutput(StdoutLock<'static>);

/// Locks standard output until the value is dropped.
#[must_use]
pub fn stdout() -> StandardOutput {
    StandardOutput(io::stdout().lock())
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(output_error)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).map_err(output_error)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(output_error)
    }
}

fn output_error(error: io::Error) -> io::Error {
    // The kind stays, because callers look at it.
    io::Error::new(error.kind(), OutputError(error))
}

/// Prints a text on standard output.
///
/// # Errors
/// If it cannot be written. [`is_closed_output`] tells whether nobody reads it.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut out = stdout();
    write!(out, "{text}")?;
    out.flush()
}

/// Prints a line on standard output.
///
/// # Errors
/// As [`print()`].
pub fn print_line(line: impl Display) -> io::Result<()> {
    print(format_args!("{line}\n"))
}

/// Prints a value as one JSON document.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    let mut out = stdout();
    write_json(value, &mut out)?;
    out.flush()
}

/// Writes a value as one JSON document. What a terminal would act on is escaped.
///
/// # Errors
/// If it cannot be written.
pub fn write_json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    // JSON allows DEL and the controls up to U+009F, which are only in strings there.
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}' => write!(out, "\\u{:04x}", u32::from(character))?,
            _ => write!(out, "{character}")?,
        }
    }
    writeln!(out)
}

/// Whether text on an output may have colors: if it is a terminal, and `NO_COLOR` is not set. An
/// empty variable counts as none (no-color.org).
pub fn has_colors(output: &impl IsTerminal) -> bool {
    let is_forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    output.is_terminal() && !is_forbidden
}

/// Prints a line on standard error. Nobody can be told that this fails.
pub fn print_message(message: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Whether an error, or one of its sources, is that the reader of standard output has closed it.
#[must_use]
pub fn is_closed_output(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == ErrorKind::BrokenPipe
            && error
                .get_ref()
                .is_some_and(|inner| inner.is::<OutputError>())
        {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_text::describe_error;

    #[derive(Debug, Error)]
    #[error("cannot list")]
    struct Outer(#[source] io::Error);

    #[test]
    fn only_a_closed_standard_output_is_no_fault() {
        let broken = || io::Error::from(ErrorKind::BrokenPipe);
        let full = || io::Error::from(ErrorKind::StorageFull);
        assert!(is_closed_output(&output_error(broken())));
        assert!(is_closed_output(&Outer(output_error(broken()))));
        // The connection to a relay, for example.
        assert!(!is_closed_output(&Outer(broken())));
        assert!(!is_closed_output(&output_error(full())));
    }

    #[test]
    fn controls_that_a_terminal_would_act_on_are_escaped_in_json() {
        let mut out = Vec::new();
        write_json(&["\u{7f}\u{80}\u{9b}2J\u{9f}\u{a0}µÂé\u{1b}"], &mut out).unwrap();
        let want = r#""\u007f\u0080\u009b2J\u009f"#.to_owned() + "\u{a0}µÂé\\u001b\"";
        assert_eq!(String::from_utf8(out).unwrap(), format!("[\n  {want}\n]\n"));
    }

    #[test]
    fn failure_of_standard_output_keeps_its_kind_and_names_its_cause() {
        let error = output_error(io::Error::from(ErrorKind::StorageFull));
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        let text = describe_error(&error);
        assert_eq!(text, "cannot write to standard output: no storage space");
    }
}
