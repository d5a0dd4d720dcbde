//! Looks for the first stream class in the metadata of a trace. LTTng sends metadata as it comes up: environment and
//! clocks may arrive well before the stream classes, and beacons between the two. Babeltrace 2 aborts on metadata without
//! a stream class, and Babeltrace 1 on a beacon of a stream whose class it does not know.
//!
//! This is a search for a word and not a parser, so that a producer cannot make the relay keep anything. A comment or a text
//! can mislead it: then streams are announced too early, or after a timeout.

use crate::store::metadata::{PACKET_HEADER, PACKET_MAGIC};

/// Begins a stream class in TSDL, if a brace follows.
const KEYWORD: &[u8] = b"stream";
/// What follows the keyword in JSON: `"data-stream-class"` is the type of the fragment (CTF 2).
const JSON_SUFFIX: &[u8] = b"-class\"";

/// A search that continues from piece to piece.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StreamClassSearch {
    state: SearchState,
    /// Bytes of the piece so far, at most those of a packet header.
    position: usize,
    /// Whether the piece begins with a packet header.
    has_header: bool,
}

#[derive(Debug, Clone, Copy)]
enum SearchState {
    /// This many bytes of the keyword have been read.
    Keyword(usize),
    /// The keyword has been read, and maybe spaces.
    Brace,
    /// The keyword and this many bytes of the suffix have been read.
    JsonSuffix(usize),
    /// Within a stream class, with the number of open braces.
    Class(usize),
    Found,
}

impl Default for SearchState {
    fn default() -> Self {
        Self::Keyword(0)
    }
}

impl StreamClassSearch {
    /// Begins a piece, which may be a packet or bare text.
    pub(super) fn begin_piece(&mut self) {
        self.position = 0;
        self.has_header = false;
    }

    /// Reads some bytes of the piece.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.has_found() {
            return;
        }
        if self.position == 0 {
            self.has_header = PACKET_MAGIC.iter().any(|magic| bytes.starts_with(magic));
        }
        for byte in bytes {
            let in_header = self.has_header && self.position < PACKET_HEADER;
            self.position = (self.position + 1).min(PACKET_HEADER);
            if !in_header {
                self.state = self.state.after(*byte);
            }
        }
    }

    /// Whether a stream class has been read to its end.
    pub(super) fn has_found(&self) -> bool {
        matches!(self.state, SearchState::Found)
    }
}

impl SearchState {
    fn after(self, byte: u8) -> Self {
        // The first byte of the keyword occurs in it only once.
        let restarted = Self::Keyword(usize::from(KEYWORD.first() == Some(&byte)));
        match self {
            Self::Keyword(read) if KEYWORD.get(read) == Some(&byte) => {
                if read + 1 == KEYWORD.len() {
                    Self::Brace
                } else {
                    Self::Keyword(read + 1)
                }
            }
            Self::Brace if byte.is_ascii_whitespace() => self,
            Self::Brace if byte == b'{' => Self::Class(1),
            Self::Brace if JSON_SUFFIX.first() == Some(&byte) => Self::JsonSuffix(1),
            Self::JsonSuffix(read) if JSON_SUFFIX.get(read) == Some(&byte) => {
                if read + 1 == JSON_SUFFIX.len() {
                    // The brace of the fragment is open.
                    Self::Class(1)
                } else {
                    Self::JsonSuffix(read + 1)
                }
            }
            Self::Keyword(_) | Self::Brace | Self::JsonSuffix(_) => restarted,
            Self::Class(open) => match byte {
                b'{' => Self::Class(open + 1),
                b'}' if open == 1 => Self::Found,
                b'}' => Self::Class(open - 1),
                _ => self,
            },
            Self::Found => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of bytes after which the stream class is found.
    fn found_after(pieces: &[&[u8]]) -> Option<usize> {
        let mut search = StreamClassSearch::default();
        let mut read = 0;
        for piece in pieces {
            search.begin_piece();
            let (magic, rest) = piece.split_at(piece.len().min(4));
            for part in [magic].into_iter().chain(rest.chunks(1)) {
                search.read(part);
                read += part.len();
                if search.has_found() {
                    return Some(read);
                }
            }
        }
        None
    }

    #[test]
    fn a_stream_class_is_found_at_its_closing_brace() {
        let declared: [&[u8]; 4] = [
            b"trace { }; stream.packet.context := x; stream {\n\tid = 0; x := struct { }; }",
            b"stream{}",
            b"my_stream; sstream\t { { {} } }",
            b"\x1e{\"type\":\"data-stream-class\",\"id\":0,\"x\":{\"roles\":[]}}",
        ];
        for text in declared {
            let after = [text, b"; stream { };"].concat();
            assert_eq!(found_after(&[&after]), Some(text.len()));
            assert_eq!(found_after(&[&text[..text.len() - 1]]), None);
        }
    }

    #[test]
    fn metadata_without_a_stream_class_has_none() {
        let others: [&[u8]; 4] = [
            b"/* CTF 1.8 */ trace { major = 1; }; clock { name = monotonic; };",
            b"stream; stream = {}; struct { } stream;",
            b"\x1e{\"type\":\"trace-class\",\"roles\":[\"data-stream-class-id\",\"metadata-stream-uuid\"]}",
            b"",
        ];
        for text in others {
            assert_eq!(found_after(&[text]), None);
        }
    }

    #[test]
    fn a_keyword_may_be_cut_by_the_header_of_a_packet() {
        for magic in PACKET_MAGIC {
            let mut header = [b'}'; PACKET_HEADER];
            header[..4].copy_from_slice(&magic);
            let text = b"env { }; stream { id = 0; };";
            for cut in 0..text.len() - 1 {
                let packets = [&text[..cut], &text[cut..]].map(|text| [&header, text].concat());
                let found = found_after(&[&packets[0], &packets[1]]);
                assert_eq!(found, Some(2 * PACKET_HEADER + text.len() - 1), "{cut}");
            }
        }
    }
}
