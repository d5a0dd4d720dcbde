//! What is left of a metadata file after a crash, and how it becomes readable again: Babeltrace
//! refuses a whole tree if the metadata of one trace in it ends within a packet or a declaration.

use std::ops::Range;

use ctf::{Metadata, MetadataError};

use crate::store::metadata::{PACKET_HEADER, PACKET_MAGIC};

/// First byte of metadata in JSON (CTF 2).
const RECORD_SEPARATOR: u8 = 0x1e;

/// The repair of a metadata file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MetadataPlan {
    /// Length to which the file is truncated, in bytes. None: it keeps its length.
    pub len: Option<u64>,
    /// Ranges of bytes that are overwritten by spaces, because they hold a declaration without its
    /// end.
    pub blanks: Vec<Range<usize>>,
    /// Whether nothing of the trace can be read: the file declares no stream.
    pub is_unusable: bool,
    /// The bytes of the file after the repair. None: they are unusable.
    pub readable: Option<Vec<u8>>,
}

impl MetadataPlan {
    /// Whether the file has to be changed.
    pub(super) fn changes(&self) -> bool {
        self.len.is_some() || !self.blanks.is_empty() || self.is_unusable
    }
}

/// Plans the repair of metadata whose end may be missing or zeros. With `is_continued`, the
/// producer sends the rest after what the file has: nothing is overwritten, and metadata in packets
/// is cut between two packets.
///
/// # Errors
/// If the metadata is invalid in another way than by a missing end.
pub(super) fn plan(bytes: &[u8], is_continued: bool) -> Result<MetadataPlan, MetadataError> {
    // The common case: the file is as it was written.
    let whole = Metadata::read(bytes);
    let kept = Kept::of(bytes);
    if whole.is_ok() && !kept.had_no_semicolon && !kept.ends_within_packet(bytes) {
        return Ok(unchanged(bytes));
    }
    let mut readable = bytes.get(..kept.len).unwrap_or_default().to_vec();
    let mut unfinished = kept.zeros_from..kept.text.len();
    blank(
        &mut readable,
        &kept.file_ranges(&unfinished),
        kept.packets.is_some(),
    );
    let mut error = Metadata::read(&readable).err();
    if let Some(MetadataError::Incomplete { at }) = &error {
        let begin = offset_of(&kept.text, at.line, at.column);
        unfinished.start = unfinished.start.min(begin);
    }
    let blanks = kept.file_ranges(&unfinished);
    blank(&mut readable, &blanks, kept.packets.is_some());
    let read = Metadata::read(&readable);
    // Without a stream, no packet can be read.
    let has_streams = read
        .as_ref()
        .is_ok_and(|metadata| metadata.trace().streams().next().is_some());
    error = read.err();
    // All of it is valid as far as it goes.
    let ends_early = Metadata::new().extend(bytes).is_ok();
    let is_torn = ends_early || kept.len < bytes.len() || !unfinished.is_empty();
    if let (Some(error), false) = (&error, is_torn) {
        return Err(error.clone());
    }
    let cut_at = |len: usize| (len < bytes.len()).then_some(len as u64);
    let is_unusable = !has_streams;
    let mut plan = MetadataPlan {
        len: cut_at(readable.len()),
        blanks: Vec::new(),
        // The producer of a resumable session sends the missing declarations again.
        is_unusable: is_unusable && !is_continued,
        readable: (!is_unusable).then_some(readable),
    };
    if is_continued {
        plan.len = cut_at(kept.continued_len());
    } else if kept.packets.is_some() && !is_unusable {
        plan.blanks = blanks;
    }
    Ok(plan)
}

fn unchanged(bytes: &[u8]) -> MetadataPlan {
    MetadataPlan {
        readable: Some(bytes.to_vec()),
        ..MetadataPlan::default()
    }
}

/// Removes the ranges from text, or overwrites them by spaces in packets, whose sizes stay as they
/// are.
fn blank(bytes: &mut Vec<u8>, ranges: &[Range<usize>], is_packetized: bool) {
    for range in ranges {
        if !is_packetized {
            bytes.truncate(range.start);
        } else if let Some(bytes) = bytes.get_mut(range.clone()) {
            bytes.fill(b' ');
        }
    }
}

/// The part of a metadata file that has arrived: whole packets, or text without the zeros at its
/// end.
#[derive(Debug)]
struct Kept {
    /// Length of that part of the file, in bytes.
    len: usize,
    /// The text in it, without packet headers and padding.
    text: Vec<u8>,
    /// Position in the text after which there are only zeros.
    zeros_from: usize,
    /// Whether the last declaration was whole but for its semicolon.
    had_no_semicolon: bool,
    /// Position in the file of the text of each packet. None: the metadata is not in packets.
    packets: Option<Vec<Range<usize>>>,
}

impl Kept {
    fn of(bytes: &[u8]) -> Self {
        let mut kept = Self::with_semicolon(bytes);
        if kept.lacks_semicolon() {
            kept.had_no_semicolon = true;
            // As if the brace was missing as well: the whole declaration goes.
            let text = kept.text.get(..kept.zeros_from).unwrap_or_default();
            kept.zeros_from = text.trim_ascii_end().len().saturating_sub(1);
            if kept.packets.is_none() {
                kept.len = kept.zeros_from;
                kept.text.truncate(kept.len);
            }
        }
        kept
    }

    /// Whether the beginning of a packet follows the last one, which this project's reader passes
    /// over.
    fn ends_within_packet(&self, bytes: &[u8]) -> bool {
        self.packets.is_some() && self.len < bytes.len()
    }

    /// Whether the last declaration lacks its semicolon, which Babeltrace refuses and this
    /// project's reader may pass over.
    fn lacks_semicolon(&self) -> bool {
        let text = self.text.get(..self.zeros_from).unwrap_or_default();
        // Metadata in JSON (CTF 2) has no semicolons.
        !text.starts_with(&[RECORD_SEPARATOR]) && text.trim_ascii_end().ends_with(b"}")
    }

    fn with_semicolon(bytes: &[u8]) -> Self {
        let head = bytes.get(..4).unwrap_or(bytes);
        // A file that ends within the magic number of its first packet is one of packets too.
        let is_magic = |magic: &[u8; 4]| !head.is_empty() && magic.starts_with(head);
        if PACKET_MAGIC.iter().any(is_magic) {
            return Self::of_packets(bytes);
        }
        let len = len_without_zeros(bytes);
        Self {
            len,
            text: bytes.get(..len).unwrap_or_default().to_vec(),
            zeros_from: len,
            had_no_semicolon: false,
            packets: None,
        }
    }

    fn of_packets(bytes: &[u8]) -> Self {
        let mut packets = Vec::new();
        let (mut len, mut text) = (0, Vec::new());
        while let Some((content, size)) = bytes.get(len..).and_then(packet_sizes) {
            let range = len + PACKET_HEADER..len + content;
            text.extend(bytes.get(range.clone()).unwrap_or_default());
            packets.push(range);
            len += size;
        }
        Self {
            len,
            zeros_from: len_without_zeros(&text),
            had_no_semicolon: false,
            text,
            packets: Some(packets),
        }
    }

    /// The ranges of the file that hold a range of the text, the last one first: a repair that dies
    /// in between leaves the beginning of the unfinished declaration, by which the next one finds
    /// it.
    fn file_ranges(&self, text: &Range<usize>) -> Vec<Range<usize>> {
        let Some(packets) = &self.packets else {
            return vec![text.clone()]
                .into_iter()
                .filter(|range| !range.is_empty())
                .collect();
        };
        let mut ranges = Vec::new();
        let mut at = 0;
        for packet in packets {
            let skipped = text.start.saturating_sub(at).min(packet.len());
            at += packet.len();
            if skipped < packet.len() {
                ranges.push(packet.start + skipped..packet.end);
            }
        }
        ranges.reverse();
        ranges
    }

    /// The length from which the producer continues: the end of the last packet that does not end
    /// in zeros.
    fn continued_len(&self) -> usize {
        let Some(packets) = &self.packets else {
            return self.len;
        };
        let mut at = 0;
        let mut torn = packets.iter().filter(|packet| {
            at += packet.len();
            at > self.zeros_from
        });
        torn.next()
            .map_or(self.len, |packet| packet.start - PACKET_HEADER)
    }
}

/// Content and packet size in bytes of the metadata packet at the front. None: it is not whole.
fn packet_sizes(bytes: &[u8]) -> Option<(usize, usize)> {
    let header = bytes.get(..PACKET_HEADER)?;
    let field = |at: usize| header.get(at..)?.first_chunk::<4>().copied();
    let magic = field(0)?;
    let number = match PACKET_MAGIC.iter().position(|known| *known == magic)? {
        0 => u32::from_be_bytes,
        _ => u32::from_le_bytes,
    };
    // After the magic number, the UUID and a checksum.
    let content = usize::try_from(number(field(24)?) / 8).ok()?;
    let size = usize::try_from(number(field(28)?) / 8).ok()?;
    // At the end of the header, which may be zeros.
    let has_version = matches!(header.last_chunk(), Some([1, 8] | [2, 0]));
    let is_whole =
        has_version && PACKET_HEADER <= content && content <= size && size <= bytes.len();
    is_whole.then_some((content, size))
}

fn len_without_zeros(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|byte| *byte != 0);
    last.map_or(0, |last| last + 1)
}

/// Offset in bytes of a line and column, both counted from 1, columns in characters.
fn offset_of(text: &[u8], line: u32, column: u32) -> usize {
    let mut here = (1_u32, 1_u32);
    for (at, byte) in text.iter().enumerate() {
        if here >= (line, column) {
            return at;
        }
        if *byte == b'\n' {
            here = (here.0 + 1, 1);
        } else if byte & 0xc0 != 0x80 {
            here.1 += 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use ctf::model::Uuid;
    use ctf::write::metadata_packets;

    use super::*;

    const TRACE: &str = "/* CTF 1.8 */\ntrace { major = 1; minor = 8; byte_order = le; };\n\
        stream { id = 0; event.header := struct { integer { size = 8; } id; }; };\n";
    const EVENT: &str = "event { id = 1; name = \"\u{e4}ne\"; stream_id = 0; };\n";

    fn names(readable: &[u8]) -> Vec<u64> {
        let metadata = Metadata::read(readable).unwrap();
        let stream = metadata.trace().stream(0);
        let has_event = |id: &u64| stream.is_some_and(|stream| stream.event(*id).is_some());
        (0..9).filter(has_event).collect()
    }

    #[test]
    fn text_that_ends_anywhere_is_cut_behind_its_last_whole_declaration() {
        let whole = format!("{TRACE}{EVENT}");
        for len in 0..=whole.len() {
            for zeros in [0, 1, 4096] {
                let mut bytes = whole.as_bytes()[..len].to_vec();
                bytes.resize(len + zeros, 0);
                let plan = plan(&bytes, false).unwrap();
                let Some(readable) = &plan.readable else {
                    assert!(plan.is_unusable && len < TRACE.len(), "{len}");
                    continue;
                };
                assert_eq!(
                    plan.len.unwrap_or(bytes.len() as u64),
                    readable.len() as u64
                );
                assert!(whole.as_bytes().starts_with(readable));
                let has_event = len + 1 >= whole.len();
                assert_eq!(names(readable), [1].repeat(usize::from(has_event)), "{len}");
            }
        }
    }

    #[test]
    fn metadata_in_packets_that_ends_anywhere_keeps_its_whole_declarations() {
        let uuid = Uuid([7; 16]);
        let first = metadata_packets(uuid, &format!("{TRACE}{EVENT}event {{ id = 2; "));
        let second = metadata_packets(uuid, "name = two; stream_id = 0; };");
        let whole = [first.clone(), second].concat();
        for len in first.len()..=whole.len() {
            for is_zeros in [false, true] {
                let mut bytes = whole[..len].to_vec();
                if is_zeros {
                    bytes.resize(whole.len(), 0);
                }
                let plan = plan(&bytes, false).unwrap();
                let readable = plan.readable.unwrap();
                let ids: &[u64] = if names(&readable).len() == 2 {
                    &[1, 2]
                } else {
                    &[1]
                };
                assert_eq!(names(&readable), ids);
                assert!(len > first.len() + PACKET_HEADER || ids == [1], "{len}");
                // What is written makes the same file.
                bytes.truncate(
                    plan.len
                        .map_or(bytes.len(), |len| usize::try_from(len).unwrap()),
                );
                blank(&mut bytes, &plan.blanks, true);
                assert_eq!(bytes, readable, "{len}");
                assert!(!super::plan(&bytes, false).unwrap().changes(), "{len}");
            }
        }
    }

    #[test]
    fn metadata_that_is_continued_is_cut_between_packets_and_nothing_is_overwritten() {
        let uuid = Uuid([7; 16]);
        let first = metadata_packets(uuid, &format!("{TRACE}event {{ id = 1; "));
        let second = metadata_packets(uuid, "name = one; stream_id = 0; };");
        let whole = [first.clone(), second].concat();
        let torn = &whole[..whole.len() - 1];
        let plan = plan(torn, true).unwrap();
        assert_eq!((plan.len, plan.blanks), (Some(first.len() as u64), vec![]));
        assert!(!plan.is_unusable && plan.readable.is_some());
        let plan = super::plan(&whole[..2], true).unwrap();
        assert_eq!((plan.len, plan.is_unusable), (Some(0), false));
    }

    #[test]
    fn metadata_that_is_invalid_before_its_end_is_refused() {
        let invalid = format!("{TRACE}event {{ id = = 1; }};\n{EVENT}");
        assert!(plan(invalid.as_bytes(), false).is_err());
        let mut flipped = metadata_packets(Uuid([7; 16]), &format!("{TRACE}{EVENT}"));
        flipped[PACKET_HEADER + 20] ^= 0x80;
        assert!(plan(&flipped, false).is_err());
    }

    #[test]
    fn empty_metadata_is_unusable_unless_it_is_continued() {
        assert!(plan(b"", false).unwrap().is_unusable);
        assert!(!plan(b"", true).unwrap().changes());
    }
}
