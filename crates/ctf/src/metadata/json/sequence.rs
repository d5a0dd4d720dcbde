//! Splits a JSON text sequence (RFC 7464) into fragments.

use super::limits::{MAX_FRAGMENT_BYTES, MAX_METADATA_BYTES};
use crate::error::MetadataError;
use crate::model::Position;

/// The byte before each fragment.
const RECORD_SEPARATOR: u8 = 0x1e;

/// Cuts text that arrives in pieces into fragments. A fragment is complete at the end of its
/// object, so that the last one of live metadata is not delayed until the next. If the next begins
/// earlier, the JSON parser reports what is missing.
#[derive(Debug)]
pub(super) struct Sequence {
    state: SequenceState,
    /// The text of the fragment that is not complete yet, without its separator.
    text: Vec<u8>,
    /// The position of that fragment.
    begin: Position,
    /// The position of the next byte.
    at: Position,
    /// The number of bytes so far.
    total: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequenceState {
    /// Before the first fragment, or after one that is complete.
    Between,
    /// In a fragment, with the number of open braces and brackets.
    Within { depth: usize },
    /// In a string in a fragment.
    String { depth: usize, escaped: bool },
}

/// The text of one fragment.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) text: Vec<u8>,
    /// The position of its first byte in the metadata.
    pub(super) at: Position,
}

impl Default for Sequence {
    fn default() -> Self {
        let start = Position { line: 1, column: 1 };
        Self {
            state: SequenceState::Between,
            text: Vec::new(),
            begin: start,
            at: start,
            total: 0,
        }
    }
}

impl Sequence {
    /// Takes bytes off the front of `piece` until a fragment is whole.
    ///
    /// # Errors
    /// If there is text between fragments, or if a fragment or the metadata is too long.
    pub(super) fn next(&mut self, piece: &mut &[u8]) -> Result<Option<Fragment>, MetadataError> {
        while let Some((&byte, rest)) = piece.split_first() {
            if byte == RECORD_SEPARATOR && self.state != SequenceState::Between {
                // Not taken yet: it begins the next fragment.
                return Ok(Some(self.take_fragment()));
            }
            *piece = rest;
            let at = self.count_byte(byte)?;
            let is_whole = match self.state {
                SequenceState::Between => {
                    self.between(byte, at)?;
                    false
                }
                SequenceState::Within { depth } => self.within(byte, depth),
                SequenceState::String { depth, escaped } => {
                    self.state = match byte {
                        b'"' if !escaped => SequenceState::Within { depth },
                        _ => SequenceState::String {
                            depth,
                            escaped: byte == b'\\' && !escaped,
                        },
                    };
                    self.text.push(byte);
                    false
                }
            };
            if is_whole {
                return Ok(Some(self.take_fragment()));
            }
        }
        Ok(None)
    }

    /// The position of the fragment that is not complete; `None` between fragments.
    pub(super) fn unfinished(&self) -> Option<Position> {
        (self.state != SequenceState::Between).then_some(self.begin)
    }

    fn between(&mut self, byte: u8, at: Position) -> Result<(), MetadataError> {
        match byte {
            RECORD_SEPARATOR => {
                self.state = SequenceState::Within { depth: 0 };
                self.begin = self.at;
                Ok(())
            }
            b' ' | b'\t' | b'\r' | b'\n' => Ok(()),
            _ => Err(MetadataError::text(at, "a fragment must begin here")),
        }
    }

    /// Whether the object is whole with this byte.
    fn within(&mut self, byte: u8, depth: usize) -> bool {
        self.text.push(byte);
        // Braces and brackets are counted together, because the JSON parser checks that they match.
        let depth = match byte {
            b'"' => {
                let escaped = false;
                self.state = SequenceState::String { depth, escaped };
                return false;
            }
            b'{' | b'[' => depth + 1,
            b'}' | b']' => {
                // One that closes nothing ends the fragment too, for the JSON parser to report.
                if depth <= 1 {
                    return true;
                }
                depth - 1
            }
            _ => depth,
        };
        self.state = SequenceState::Within { depth };
        false
    }

    fn take_fragment(&mut self) -> Fragment {
        self.state = SequenceState::Between;
        Fragment {
            text: std::mem::take(&mut self.text),
            at: self.begin,
        }
    }

    /// Counts a byte, and returns its position.
    fn count_byte(&mut self, byte: u8) -> Result<Position, MetadataError> {
        let at = self.at;
        self.total += 1;
        if self.total > MAX_METADATA_BYTES {
            return Err(MetadataError::text(
                at,
                format!("metadata of more than {MAX_METADATA_BYTES} bytes"),
            ));
        }
        if self.text.len() >= MAX_FRAGMENT_BYTES {
            return Err(MetadataError::text(
                self.begin,
                format!("a fragment of more than {MAX_FRAGMENT_BYTES} bytes"),
            ));
        }
        self.at = position_after(at, byte);
        Ok(at)
    }
}

impl Fragment {
    /// The position in the metadata of the byte that a JSON parser found at this line and column
    /// (in bytes) of the fragment, both from 1.
    pub(super) fn position(&self, line: usize, column: usize) -> Position {
        let mut at = self.at;
        let before = self
            .text
            .split_inclusive(|&byte| byte == b'\n')
            .take(line)
            .enumerate()
            .flat_map(|(number, text)| {
                let is_last = number + 1 == line;
                let length = if is_last {
                    column.saturating_sub(1)
                } else {
                    text.len()
                };
                text.iter().take(length)
            });
        for &byte in before {
            at = position_after(at, byte);
        }
        at
    }
}

/// Returns the position after a byte. Of the bytes of a character only the first counts.
fn position_after(at: Position, byte: u8) -> Position {
    match byte {
        b'\n' => Position {
            line: at.line + 1,
            column: 1,
        },
        0x80..=0xbf | RECORD_SEPARATOR => at,
        _ => Position {
            line: at.line,
            column: at.column + 1,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(pieces: &[&[u8]]) -> Vec<(String, Position)> {
        let mut sequence = Sequence::default();
        let mut found = Vec::new();
        for mut piece in pieces.iter().copied() {
            while let Some(fragment) = sequence.next(&mut piece).unwrap() {
                found.push((String::from_utf8(fragment.text).unwrap(), fragment.at));
            }
        }
        found
    }

    #[test]
    fn a_json_fragment_is_complete_at_the_end_of_its_object() {
        let text = b"\x1e{\"a\":[{\"}\\\"]\":1}]}\n\x1e \xc3\xa4{}\x1e{}";
        let want = [
            (
                "{\"a\":[{\"}\\\"]\":1}]}".to_owned(),
                Position { line: 1, column: 1 },
            ),
            (" \u{e4}{}".to_owned(), Position { line: 2, column: 1 }),
            ("{}".to_owned(), Position { line: 2, column: 5 }),
        ];
        assert_eq!(fragments(&[text]), want);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(fragments(&bytes), want);
    }

    #[test]
    fn a_json_object_cut_by_the_next_record_separator_is_a_fragment() {
        let found = fragments(&[b"\x1e{\"a\x1e{}"]);
        assert_eq!(found[0].0, "{\"a");
        assert_eq!(found[1].0, "{}");
    }

    #[test]
    fn a_json_fragment_beyond_the_size_limit_is_refused() {
        let mut sequence = Sequence::default();
        assert!(sequence.next(&mut &b"\x1e{\""[..]).unwrap().is_none());
        let error = sequence.next(&mut &vec![b'x'; MAX_FRAGMENT_BYTES][..]);
        let at = Position { line: 1, column: 1 };
        let what = "a fragment of more than 4194304 bytes";
        assert_eq!(error.unwrap_err(), MetadataError::text(at, what));
    }

    #[test]
    fn only_white_space_is_accepted_between_json_fragments() {
        let mut sequence = Sequence::default();
        let error = sequence.next(&mut &b"\n {}"[..]).unwrap_err();
        let at = Position { line: 2, column: 2 };
        assert_eq!(error, MetadataError::text(at, "a fragment must begin here"));
    }
}
