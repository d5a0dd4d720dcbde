//! Extracts the text of metadata from its packets (CTF 1.8.3, section 7.1; CTF2-PMETA-1.0), without
//! parsing the text.
//!
//! Metadata that is not in packets passes through unchanged. The first four bytes show which of
//! both it is. The byte order of the packets says nothing about that of the trace.

use byteorder::{BigEndian, ByteOrder as _, LittleEndian};

use super::warning::{Deviation, Warnings};
use crate::error::MetadataError;
use crate::model::{ByteOrder, Uuid};

/// Largest metadata of a trace in bytes, packet headers included. The largest seen in use have a
/// few MiB.
const MAX_METADATA_BYTES: u64 = 64 << 20;

// The number 0x75D11D57 shows the byte order of the packets (CTF 1.8.3, section 7.1).
const MAGIC: [u8; 4] = [0x75, 0xD1, 0x1D, 0x57];
const MAGIC_LITTLE: [u8; 4] = [0x57, 0x1D, 0xD1, 0x75];
/// The header of CTF 1.8, which LTTng writes for CTF 2 as well.
const HEADER: usize = 37;
/// The shortest header of CTF2-PMETA-1.0: that of CTF 1.8, three reserved bytes, and the size of
/// the header in bits.
const LONG_HEADER: usize = 44;

/// Turns the bytes of a metadata stream, in pieces cut anywhere, into its text.
#[derive(Debug, Clone)]
pub(crate) struct Unpacker {
    state: UnpackerState,
    /// The offset of the current packet in the metadata, in bytes.
    packet: u64,
    /// The number of bytes read so far.
    taken: u64,
    order: Option<ByteOrder>,
    uuid: Option<Uuid>,
}

#[derive(Debug, Clone)]
enum UnpackerState {
    /// Too few bytes to tell whether there are packets.
    Undecided(Vec<u8>),
    Plain,
    Header(Vec<u8>),
    /// Within a packet, after its header. Holds the remaining bytes of text and of padding.
    Content {
        text: u64,
        padding: u64,
    },
}

impl Unpacker {
    pub(crate) fn new() -> Self {
        Self {
            state: UnpackerState::Undecided(Vec::new()),
            packet: 0,
            taken: 0,
            order: None,
            uuid: None,
        }
    }

    /// Appends the text in `bytes` to `text`.
    ///
    /// # Errors
    ///
    /// If a packet is malformed, or if there is more metadata than [`MAX_METADATA_BYTES`].
    pub(crate) fn extend(
        &mut self,
        mut bytes: &[u8],
        text: &mut Vec<u8>,
    ) -> Result<(), MetadataError> {
        while !bytes.is_empty() {
            let used = self.unpack_some(bytes, text)?;
            // `unpack_some` never takes more than it was given: the default is not taken.
            let (now, rest) = bytes.split_at_checked(used).unwrap_or((bytes, &[]));
            self.taken += length(now);
            if self.taken > MAX_METADATA_BYTES {
                return Err(self.error(format!("more than {MAX_METADATA_BYTES} bytes of metadata")));
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Ends the metadata. Too few bytes for a header after the last packet are passed over, as by
    /// babeltrace2 2.0.4.
    ///
    /// # Errors
    ///
    /// If it ends within a packet; babeltrace2 2.0.4 loops forever then.
    pub(crate) fn finish(&self, warnings: &mut Warnings) -> Result<(), MetadataError> {
        let ends_within = match &self.state {
            UnpackerState::Undecided(head) => !head.is_empty(),
            UnpackerState::Plain => false,
            // Before the first packet is complete, too few bytes are a cut file and no rest of one.
            UnpackerState::Header(header) if self.uuid.is_none() || header.len() >= HEADER => {
                !header.is_empty()
            }
            UnpackerState::Header(header) => {
                if !header.is_empty() {
                    let (at, count) = (self.packet, header.len());
                    warnings.add_placed(Deviation::TrailingBytes, || {
                        format!("metadata, byte {at}: too few bytes for another packet: {count}")
                    });
                }
                false
            }
            UnpackerState::Content { .. } => true,
        };
        if ends_within {
            return Err(self.error("the metadata ends within it".into()));
        }
        Ok(())
    }

    /// The UUID of the packets; `None` before the first header and for plain text.
    pub(crate) const fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// Whether the text is in packets. False until that is known.
    pub(crate) const fn is_packetised(&self) -> bool {
        matches!(
            self.state,
            UnpackerState::Header(_) | UnpackerState::Content { .. }
        )
    }

    /// Takes some of `bytes`, at least one, and returns their number.
    fn unpack_some(&mut self, bytes: &[u8], text: &mut Vec<u8>) -> Result<usize, MetadataError> {
        match &mut self.state {
            UnpackerState::Plain => {
                // Not copied if it is too much: `extend` refuses it after this call.
                if self.taken.saturating_add(length(bytes)) <= MAX_METADATA_BYTES {
                    text.extend_from_slice(bytes);
                }
                Ok(bytes.len())
            }
            UnpackerState::Undecided(head) => {
                head.extend(bytes.first());
                if MAGIC == **head || MAGIC_LITTLE == **head {
                    self.state = UnpackerState::Header(std::mem::take(head));
                } else if !MAGIC.starts_with(head) && !MAGIC_LITTLE.starts_with(head) {
                    text.append(head);
                    self.state = UnpackerState::Plain;
                }
                Ok(1)
            }
            UnpackerState::Header(header) => {
                let missing = header_size(header).saturating_sub(header.len());
                let now = bytes.get(..missing).unwrap_or(bytes);
                if header.is_empty() {
                    self.packet = self.taken;
                }
                header.extend_from_slice(now);
                if header.len() >= header_size(header) {
                    let header = std::mem::take(header);
                    self.state = self.parse_header(&header)?;
                    // Without the header of CTF2-PMETA-1.0 one byte of the text has been read to
                    // tell.
                    if let ([first], UnpackerState::Content { text: left, .. }) =
                        (header.get(HEADER..).unwrap_or_default(), &mut self.state)
                    {
                        // `header_size` asks for this byte only if the content is longer: no
                        // underflow.
                        text.push(*first);
                        *left -= 1;
                        self.end_packet();
                    }
                }
                Ok(now.len())
            }
            UnpackerState::Content { text: left, .. } if *left > 0 => {
                let now = prefix(bytes, *left);
                text.extend_from_slice(now);
                *left -= length(now);
                self.end_packet();
                Ok(now.len())
            }
            UnpackerState::Content { padding, .. } => {
                let now = prefix(bytes, *padding);
                *padding -= length(now);
                self.end_packet();
                Ok(now.len())
            }
        }
    }

    fn parse_header(&mut self, header: &[u8]) -> Result<UnpackerState, MetadataError> {
        let mut at = Fields(header);
        let magic = at.bytes();
        let order = match magic {
            MAGIC => ByteOrder::Big,
            MAGIC_LITTLE => ByteOrder::Little,
            _ => return Err(self.error(format!("begins with {magic:02x?}, not with the magic"))),
        };
        if *self.order.get_or_insert(order) != order {
            return Err(self.error("its byte order is not that of the first packet".into()));
        }
        let uuid = Uuid(at.bytes());
        let first = *self.uuid.get_or_insert(uuid);
        if first != uuid {
            return Err(self.error(format!("its UUID is {uuid}, that of the first is {first}")));
        }
        // The checksum, which is not checked: the scheme below must be "none".
        at.bytes::<4>();
        let content = at.size(order);
        let packet = at.size(order);
        let [compression, encryption, checksum, major, minor] = at.bytes();
        for (what, scheme) in [
            ("compression", compression),
            ("encryption", encryption),
            ("checksum", checksum),
        ] {
            if scheme != 0 {
                return Err(self.error(format!("{what} scheme {scheme} is not known")));
            }
        }
        // LTTng 2.15 writes 1.8 for CTF 2 as well, so that the version does not select the parser.
        if !matches!((major, minor), (1, 8) | (2, 0)) {
            return Err(self.error(format!("version {major}.{minor} is neither 1.8 nor 2.0")));
        }
        if content % 8 != 0 || packet % 8 != 0 {
            return Err(self.error(format!("{content} of {packet} bits are not whole bytes")));
        }
        let (content, packet) = (content / 8, packet / 8);
        let mut size = HEADER as u64;
        if header.len() >= LONG_HEADER {
            at.bytes::<3>();
            let bits = at.size(order);
            size = bits / 8;
            if bits % 8 != 0 || size < LONG_HEADER as u64 || size > content {
                return Err(self.error(format!("a header of {bits} bits in {content} bytes")));
            }
        }
        let Some(text) = content.checked_sub(size) else {
            return Err(self.error(format!("{content} bytes cannot hold its header")));
        };
        let Some(padding) = packet.checked_sub(content) else {
            return Err(self.error(format!("{content} bytes of content in {packet} bytes")));
        };
        Ok(next_state(text, padding))
    }

    /// Goes to the next packet if nothing is left of this one.
    fn end_packet(&mut self) {
        if let UnpackerState::Content { text, padding } = self.state {
            self.state = next_state(text, padding);
        }
    }

    const fn error(&self, what: String) -> MetadataError {
        MetadataError::Packet {
            at: self.packet,
            what,
        }
    }
}

const fn next_state(text: u64, padding: u64) -> UnpackerState {
    if text == 0 && padding == 0 {
        UnpackerState::Header(Vec::new())
    } else {
        UnpackerState::Content { text, padding }
    }
}

/// The number of bytes that a header has, as far as the bytes of it that are known tell.
fn header_size(header: &[u8]) -> usize {
    let Some(known) = header.first_chunk::<HEADER>() else {
        return HEADER;
    };
    let mut at = Fields(known);
    let order = match at.bytes() {
        MAGIC_LITTLE => ByteOrder::Little,
        _ => ByteOrder::Big,
    };
    at.bytes::<20>();
    let content = at.size(order);
    let is_2 = known.ends_with(&[2, 0]);
    // A text of CTF 2 has no zero.
    match header.get(HEADER) {
        _ if !is_2 || content < (LONG_HEADER as u64) * 8 => HEADER,
        None => HEADER + 1,
        Some(0) => {
            let Some(size) = header.get(LONG_HEADER - 4..LONG_HEADER) else {
                return LONG_HEADER;
            };
            // `clamp` panics if its bounds are reversed, which the first arm has excluded.
            let size = (Fields(size).size(order) / 8).clamp(LONG_HEADER as u64, content / 8);
            usize::try_from(size).unwrap_or(usize::MAX)
        }
        Some(_) => HEADER + 1,
    }
}

/// The fields of a packet header, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        // Both callers have checked the length of the header; zeros would be refused as a magic.
        let Some((field, rest)) = self.0.split_first_chunk() else {
            return [0; N];
        };
        self.0 = rest;
        *field
    }

    fn size(&mut self, order: ByteOrder) -> u64 {
        let bytes = self.bytes::<4>();
        u64::from(match order {
            ByteOrder::Little => LittleEndian::read_u32(&bytes),
            ByteOrder::Big => BigEndian::read_u32(&bytes),
        })
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn prefix(bytes: &[u8], limit: u64) -> &[u8] {
    usize::try_from(limit)
        .ok()
        .and_then(|limit| bytes.get(..limit))
        .unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(order: ByteOrder, text: &[u8], padding: usize) -> Vec<u8> {
        let bits = |bytes: usize| {
            let bits = u32::try_from(bytes * 8).unwrap();
            match order {
                ByteOrder::Little => bits.to_le_bytes(),
                ByteOrder::Big => bits.to_be_bytes(),
            }
        };
        let mut packet = match order {
            ByteOrder::Little => MAGIC_LITTLE,
            ByteOrder::Big => MAGIC,
        }
        .to_vec();
        packet.extend([7; 16]);
        packet.extend([0; 4]);
        packet.extend(bits(HEADER + text.len()));
        packet.extend(bits(HEADER + text.len() + padding));
        packet.extend([0, 0, 0, 1, 8]);
        packet.extend(text);
        packet.resize(packet.len() + padding, 0);
        packet
    }

    fn unpacked(pieces: &[&[u8]]) -> Result<(Vec<u8>, Unpacker), MetadataError> {
        let mut unpacker = Unpacker::new();
        let mut text = Vec::new();
        for piece in pieces {
            unpacker.extend(piece, &mut text)?;
        }
        unpacker.finish(&mut Warnings::default())?;
        Ok((text, unpacker))
    }

    #[test]
    fn metadata_text_cut_between_packets_is_joined_in_both_byte_orders_and_any_chunks() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bytes = packet(order, b"/* CTF 1.8 */ tra", 0);
            bytes.extend(packet(order, b"", 0));
            bytes.extend(packet(order, b"ce", 11));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            for pieces in [vec![&bytes[..]], single] {
                let (text, unpacker) = unpacked(&pieces).unwrap();
                assert_eq!(text, b"/* CTF 1.8 */ trace");
                assert_eq!(unpacker.uuid(), Some(Uuid([7; 16])));
                assert!(unpacker.is_packetised());
            }
        }
    }

    #[test]
    fn metadata_without_packets_is_unpacked_unchanged() {
        for plain in [&b""[..], b"/", b"/* CTF 1.8 */", b"\x1e{}", b"\x75\xd1x"] {
            let single: Vec<&[u8]> = plain.chunks(1).collect();
            for pieces in [vec![plain], single] {
                let (text, unpacker) = unpacked(&pieces).unwrap();
                assert_eq!(text, plain);
                assert_eq!(unpacker.uuid(), None);
                assert!(!unpacker.is_packetised());
            }
        }
    }

    #[test]
    fn every_truncated_metadata_packet_is_refused() {
        let bytes = packet(ByteOrder::Little, b"text", 3);
        for cut in 1..bytes.len() {
            unpacked(&[&bytes[..cut]]).unwrap_err();
        }
    }

    #[test]
    fn bytes_after_the_last_metadata_packet_are_passed_over_with_a_warning() {
        let good = packet(ByteOrder::Little, b"text", 3);
        for count in 1..HEADER {
            let mut bytes = good.clone();
            bytes.resize(good.len() + count, b'\n');
            let (mut unpacker, mut text) = (Unpacker::new(), Vec::new());
            unpacker.extend(&bytes, &mut text).unwrap();
            let mut warnings = Warnings::default();
            unpacker.finish(&mut warnings).unwrap();
            assert_eq!(text, b"text");
            let [warning] = &warnings.take_all()[..] else {
                panic!("{count}");
            };
            assert_eq!(warning.deviation(), Some(Deviation::TrailingBytes));
        }
    }

    /// A packet of CTF2-PMETA-1.0, with this number of bytes more in its header.
    fn long_packet(order: ByteOrder, text: &[u8], more: usize) -> Vec<u8> {
        let header = vec![0; LONG_HEADER - HEADER + more];
        let mut packet = packet(order, &[&header[..], text].concat(), 2);
        packet[20..24].copy_from_slice(&[1, 2, 3, 4]);
        packet[35..37].copy_from_slice(&[2, 0]);
        let bits = u32::try_from((LONG_HEADER + more) * 8).unwrap();
        packet[40..44].copy_from_slice(&match order {
            ByteOrder::Little => bits.to_le_bytes(),
            ByteOrder::Big => bits.to_be_bytes(),
        });
        packet
    }

    #[test]
    fn metadata_packets_of_ctf_2_have_the_header_that_they_say() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            // Those of LTTng have the header of CTF 1.8, also if they are long enough for the
            // other.
            let mut bytes = packet(order, b"\x1e{\"lttng\":1}", 3);
            bytes[35..37].copy_from_slice(&[2, 0]);
            let mut short = packet(order, b"", 9);
            short[35..37].copy_from_slice(&[2, 0]);
            bytes.extend(short);
            bytes.extend(long_packet(order, b"{\"pmeta\"", 0));
            bytes.extend(long_packet(order, b"", 0));
            bytes.extend(long_packet(order, b":2}", 12));
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            for pieces in [vec![&bytes[..]], single] {
                let (text, _) = unpacked(&pieces).unwrap();
                assert_eq!(text, b"\x1e{\"lttng\":1}{\"pmeta\":2}");
            }
            for cut in 1..LONG_HEADER {
                let bytes = long_packet(order, b"{}", 0);
                unpacked(&[&bytes[..cut]]).unwrap_err();
            }
        }
    }

    #[test]
    fn a_metadata_packet_of_ctf_2_with_a_header_of_an_impossible_size_is_refused() {
        for size in [
            [0, 0, 0, 0],
            [0, 0, 1, 0x58],
            [0, 0, 1, 0x61],
            [0xFF; 4],
            [0, 0, 1, 0x80],
        ] {
            let mut bytes = long_packet(ByteOrder::Big, b"{}", 0);
            bytes[40..44].copy_from_slice(&size);
            let error = unpacked(&[&bytes]).unwrap_err().to_string();
            assert!(error.contains("bits in 46 bytes"), "{size:?}: {error}");
        }
    }

    #[test]
    fn each_malformed_metadata_packet_is_refused_with_its_own_error() {
        let good = packet(ByteOrder::Big, b"text", 3);
        for (place, byte, want) in [
            (0, 0x76, "not with the magic"),
            (4, 8, "its UUID is"),
            (26, 0, "36 bytes cannot hold its header"),
            (27, 1, "are not whole bytes"),
            (30, 0, "41 bytes of content in"),
            (32, 1, "compression scheme 1"),
            (33, 1, "encryption scheme 1"),
            (34, 1, "checksum scheme 1"),
            (35, 3, "version 3.8"),
            (36, 7, "version 1.7"),
        ] {
            let mut bad = good.clone();
            bad[place] = byte;
            if place == 26 {
                bad[26..28].copy_from_slice(&[1, 32]);
            }
            let MetadataError::Packet { at, what } = unpacked(&[&good, &bad]).unwrap_err() else {
                panic!("byte {place}");
            };
            assert_eq!(at, 44, "byte {place}");
            assert!(what.contains(want), "byte {place}: {what}");
        }
    }

    #[test]
    fn metadata_packets_of_two_byte_orders_are_refused() {
        let little = packet(ByteOrder::Little, b"a", 0);
        let big = packet(ByteOrder::Big, b"b", 0);
        unpacked(&[&little, &big]).unwrap_err();
    }

    #[test]
    fn metadata_beyond_the_limit_is_refused_before_it_is_kept() {
        let mut unpacker = Unpacker::new();
        let mut text = Vec::new();
        let piece = vec![b' '; 1 << 20];
        for _ in 0..64 {
            unpacker.extend(&piece, &mut text).unwrap();
        }
        unpacker.extend(b" ", &mut text).unwrap_err();
        assert_eq!(text.len(), 64 << 20);
    }
}
