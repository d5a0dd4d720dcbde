//! Looks for the first stream class in the metadata of a trace. LTTng sends metadata, in packets,
//! as it comes up: environment and clocks may arrive well before the stream classes, and beacons
//! between the two. Babeltrace 2 aborts on metadata without a stream class, and Babeltrace 1 on a
//! beacon of a stream whose class it does not know.
//!
//! This is a search for a word and not a parser, so that a producer cannot make the relay keep
//! anything. A comment or a text can mislead it: then streams are announced too early, or after a
//! timeout. Plain text is not searched: it comes from producers that have all of it when they
//! begin.

use crate::store::metadata::{PACKET_HEADER, PACKET_MAGIC};

/// Begins a stream class in TSDL, if a brace follows.
const KEYWORD: &[u8] = b"stream";
/// The rest of the fragment's type after the keyword in JSON (CTF 2): `"data-stream-class"`.
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

#[derive(Debug, Default, Clone, Copy)]
enum SearchState {
    /// No packet has been read.
    #[default]
    NoPacket,
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

impl StreamClassSearch {
    /// Begins a piece, which may be a packet or bare text.
    pub(super) fn begin_piece(&mut self) {
        self.position = 0;
        self.has_header = false;
    }

    /// Reads some bytes of the piece.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        if self.position == 0 {
            self.has_header = PACKET_MAGIC.iter().any(|magic| bytes.starts_with(magic));
        }
        if !self.has_header || matches!(self.state, SearchState::Found) {
            return;
        }
        let header = PACKET_HEADER.saturating_sub(self.position).min(bytes.len());
        self.position += header;
        for byte in bytes.iter().skip(header) {
            self.state = self.state.after(*byte);
        }
    }

    /// Whether there are packets, and no stream class has been read to its end.
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self.state, SearchState::NoPacket | SearchState::Found)
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
            Self::NoPacket | Self::Keyword(_) | Self::Brace | Self::JsonSuffix(_) => restarted,
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

    fn packet(magic: [u8; 4], text: &[u8]) -> Vec<u8> {
        let mut header = [b'}'; PACKET_HEADER];
        header[..4].copy_from_slice(&magic);
        [&header, text].concat()
    }

    /// The number of bytes of the last packet after which the search is no longer pending, not
    /// counting its header. Texts are those of packets.
    fn found_after(magic: [u8; 4], texts: &[&[u8]]) -> Option<usize> {
        let mut search = StreamClassSearch::default();
        for text in texts {
            search.begin_piece();
            let packet = packet(magic, text);
            let (head, rest) = packet.split_at(4);
            search.read(head);
            for (number, byte) in rest.iter().enumerate() {
                search.read(&[*byte]);
                let read = (4 + number + 1).checked_sub(PACKET_HEADER);
                if read.is_some_and(|read| read > 0) && !search.is_pending() {
                    return read;
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
        for (text, magic) in declared.into_iter().zip(PACKET_MAGIC.into_iter().cycle()) {
            let after = [text, b"; stream { };"].concat();
            assert_eq!(found_after(magic, &[&after]), Some(text.len()));
            assert_eq!(found_after(magic, &[&text[..text.len() - 1]]), None);
        }
    }

    #[test]
    fn metadata_without_a_stream_class_has_none() {
        let others: [&[u8]; 3] = [
            b"/* CTF 1.8 */ trace { major = 1; }; clock { name = monotonic; };",
            b"stream; stream = {}; struct { } stream;",
            b"\x1e{\"type\":\"trace-class\",\"roles\":[\"data-stream-class-id\",\"metadata-stream-uuid\"]}",
        ];
        for text in others {
            assert_eq!(found_after(PACKET_MAGIC[0], &[text]), None);
        }
    }

    #[test]
    fn a_keyword_may_be_cut_by_the_header_of_a_packet() {
        let text = b"env { }; stream { id = 0; };";
        let end = text.len() - 1;
        for cut in 1..end {
            let (first, second) = text.split_at(cut);
            let found = found_after(PACKET_MAGIC[1], &[first, second]);
            assert_eq!(found, Some(end - cut), "{cut}");
        }
    }

    #[test]
    fn plain_text_is_not_searched() {
        let mut search = StreamClassSearch::default();
        assert!(!search.is_pending());
        search.begin_piece();
        search.read(b"/* CTF 1.8 */ trace { };");
        assert!(!search.is_pending());
        search.begin_piece();
        search.read(&packet(PACKET_MAGIC[0], b"env { };"));
        assert!(search.is_pending());
    }
}
