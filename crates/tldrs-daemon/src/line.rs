//! The kinds of lines: commands, and candidates for events.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A line without the blanks around it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without any content.
    Empty,
    /// A command to the daemon.
    Command(Command<'a>),
    /// Any other line: an event, if it is valid.
    Other(&'a [u8]),
}

/// A command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// `OPEN`: the following events belong to the trace of this id.
    Open(Cow<'a, str>),
    /// `DIE`: the daemon stops.
    Die,
    /// `DIE_WHEN_IDLE`: the daemon stops as soon as no trace is open.
    DieWhenIdle,
    /// `EMIT_TEF`: exports the trace as it is now to this path.
    EmitTef(&'a Path),
    /// `EMIT_TEF_AT_EXIT`: exports the trace to this path when its last client disconnects.
    EmitTefAtExit(&'a Path),
}

impl<'a> Line<'a> {
    /// Parses a line. Commands are case-sensitive, and followed by exactly one blank.
    pub(crate) fn read(line: &'a [u8]) -> Self {
        // The reference strips all that Unicode calls white space.
        let line = match std::str::from_utf8(line) {
            Ok(text) => text.trim().as_bytes(),
            Err(_) => line.trim_ascii(),
        };
        let rest = |word: &str| line.strip_prefix(word.as_bytes());
        let path = |rest: &'a [u8]| Path::new(OsStr::from_bytes(rest.trim_ascii()));
        Self::Command(if line.is_empty() {
            return Self::Empty;
        } else if let Some(id) = rest("OPEN ") {
            match String::from_utf8_lossy(id) {
                Cow::Borrowed(id) => Command::Open(id.trim().into()),
                Cow::Owned(id) => Command::Open(id.trim().to_owned().into()),
            }
        } else if line == b"DIE" {
            Command::Die
        } else if line == b"DIE_WHEN_IDLE" {
            Command::DieWhenIdle
        } else if let Some(rest) = rest("EMIT_TEF ") {
            Command::EmitTef(path(rest))
        } else if let Some(rest) = rest("EMIT_TEF_AT_EXIT ") {
            Command::EmitTefAtExit(path(rest))
        } else {
            return Self::Other(line);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_parsed_as_whole_words() {
        let open = |id: &'static str| Line::Command(Command::Open(id.into()));
        for (line, want) in [
            (&b"OPEN run-1"[..], open("run-1")),
            ("\t OPEN    spaced \u{a0}\r".as_bytes(), open("spaced")),
            (b"OPEN a b", open("a b")),
            (b"OPEN \xffx", open("\u{fffd}x")),
            (b"DIE", Line::Command(Command::Die)),
            (b" DIE_WHEN_IDLE ", Line::Command(Command::DieWhenIdle)),
            (
                b"EMIT_TEF /t.json",
                Line::Command(Command::EmitTef(Path::new("/t.json"))),
            ),
            (
                b"EMIT_TEF /\xff",
                Line::Command(Command::EmitTef(Path::new(OsStr::from_bytes(b"/\xff")))),
            ),
            (
                b"EMIT_TEF_AT_EXIT a b",
                Line::Command(Command::EmitTefAtExit(Path::new("a b"))),
            ),
            (b" \t\r", Line::Empty),
        ] {
            assert_eq!(Line::read(line), want, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn malformed_commands_are_not_commands() {
        for line in [
            "OPEN",
            "OPEN ",
            "OPEN\ttabbed",
            "open x",
            "DIE now",
            "EMIT_TEF",
            "EMIT_TEF_AT_EXIT",
            "EMIT_TEFX y",
            "CLOSE",
            "{}",
        ] {
            let trimmed = line.trim().as_bytes();
            assert_eq!(Line::read(line.as_bytes()), Line::Other(trimmed), "{line}");
        }
    }
}
