//! Patterns with wildcards: `*` stands for any text, `?` for any one character.

use std::borrow::Cow;
use std::fmt;

use daemon::event_text::printable;

/// A text that is compared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A text without wildcards.
    Plain(Vec<u8>),
    /// A pattern with wildcards.
    Glob(Vec<Piece>),
}

/// One step of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// One byte, which must be equal.
    Byte(u8),
    /// Any one character, of one to four bytes.
    One,
    /// Any text, also none.
    Any,
}

impl Pattern {
    /// The pattern of pieces in a row.
    pub(crate) fn new(pieces: Vec<Piece>) -> Self {
        let byte = |piece: &Piece| match piece {
            Piece::Byte(byte) => Some(*byte),
            Piece::One | Piece::Any => None,
        };
        match pieces.iter().map(byte).collect() {
            Some(bytes) => Self::Plain(bytes),
            None => Self::Glob(pieces),
        }
    }

    /// Returns the bytes with which each text that fits begins.
    pub(crate) fn literal_begin(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(bytes) => bytes.into(),
            Self::Glob(pieces) => {
                let byte = |piece: &Piece| match piece {
                    Piece::Byte(byte) => Some(*byte),
                    Piece::One | Piece::Any => None,
                };
                pieces.iter().map_while(byte).collect()
            }
        }
    }

    /// The text that is compared, with its wildcards.
    pub(crate) fn text(&self) -> String {
        let byte = |piece| match piece {
            Piece::Byte(byte) => byte,
            Piece::One => b'?',
            Piece::Any => b'*',
        };
        let bytes: Vec<u8> = self.pieces().map(byte).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn pieces(&self) -> impl Iterator<Item = Piece> {
        let (bytes, pieces): (&[u8], &[Piece]) = match self {
            Self::Plain(bytes) => (bytes, &[]),
            Self::Glob(pieces) => (&[], pieces),
        };
        bytes
            .iter()
            .map(|byte| Piece::Byte(*byte))
            .chain(pieces.iter().copied())
    }

    /// Whether all of `text` is what the pattern says.
    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Plain(bytes) => bytes == text,
            Self::Glob(pieces) => matches(pieces, text),
        }
    }
}

impl fmt::Display for Pattern {
    /// Writes the text as it is written in a filter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        for piece in self.pieces() {
            match piece {
                Piece::Any => text.push(b'*'),
                Piece::One => text.push(b'?'),
                Piece::Byte(b'\n') => text.extend(b"\\n"),
                Piece::Byte(b'\t') => text.extend(b"\\t"),
                Piece::Byte(byte @ (b'"' | b'\\' | b'*' | b'?')) => text.extend([b'\\', byte]),
                Piece::Byte(byte) => text.push(byte),
            }
        }
        write!(f, "\"{}\"", printable(&String::from_utf8_lossy(&text)))
    }
}

/// Whether all of `text` fits. This takes at most the product of both lengths: only the last `*` is
/// ever tried again, because what an earlier one took can only be less than what suffices.
fn matches(pieces: &[Piece], text: &[u8]) -> bool {
    let (mut pieces, mut text) = (pieces, text);
    let mut again: Option<(&[Piece], &[u8])> = None;
    loop {
        let stepped = match pieces.split_first() {
            Some((Piece::Any, rest)) => {
                // Any text is at first none, and a character longer each time that the rest does
                // not fit.
                again = Some((rest, text));
                pieces = rest;
                continue;
            }
            Some((Piece::Byte(byte), rest)) => match text.split_first() {
                Some((first, behind)) if first == byte => Some((rest, behind)),
                _ => None,
            },
            Some((Piece::One, rest)) => after_character(text).map(|behind| (rest, behind)),
            None if text.is_empty() => return true,
            None => None,
        };
        (pieces, text) = match (stepped, again) {
            (Some(stepped), _) => stepped,
            (None, Some((after_any, from))) => {
                let Some((_, from)) = from.split_first() else {
                    return false;
                };
                again = Some((after_any, from));
                (after_any, from)
            }
            (None, None) => return false,
        };
    }
}

/// Returns the text after the first character; a byte that is no UTF-8 counts as one.
fn after_character(text: &[u8]) -> Option<&[u8]> {
    let (_, mut rest) = text.split_first()?;
    while let Some((0x80..=0xBF, behind)) = rest.split_first() {
        rest = behind;
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        let piece = |byte| match byte {
            b'*' => Piece::Any,
            b'?' => Piece::One,
            byte => Piece::Byte(byte),
        };
        Pattern::new(text.bytes().map(piece).collect())
    }

    #[test]
    fn glob_wildcards_match_texts_and_single_characters() {
        for (glob, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("sched_*", "sched_switch", true),
            ("sched_*", "xsched_switch", false),
            ("*_exit", "a_exit_exit", true),
            ("a*b*c", "a-b-b-c-c", true),
            ("a*b*c", "a-b-b-c-d", false),
            ("?", "é", true),
            ("??", "é", false),
            ("a?c", "ac", false),
            ("a**", "a", true),
            ("plain", "plain", true),
            ("plain", "plainer", false),
        ] {
            assert_eq!(
                pattern(glob).matches(text.as_bytes()),
                want,
                "{glob} {text}"
            );
        }
    }

    #[test]
    fn globs_with_many_wildcards_match_in_polynomial_time() {
        let glob = pattern(&"*a".repeat(200));
        assert!(!glob.matches("a".repeat(199).as_bytes()));
        assert!(!glob.matches(format!("{}b", "a".repeat(10_000)).as_bytes()));
    }
}
