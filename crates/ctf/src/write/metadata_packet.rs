//! Writes metadata in packets, as relays and live viewers need it (CTF 1.8.3, section 7.1).

use bytes::BufMut;

use crate::model::Uuid;

/// Longest text in one metadata packet, in bytes. Readers take the header's sizes, in bits, to fit
/// 32 bits.
const MAX_TEXT_BYTES: usize = 256 << 10;

const HEADER_BYTES: usize = 37;

/// Puts metadata, or what is new of it, into packets: a header each, then text, without padding.
#[must_use]
pub fn metadata_packets(uuid: Uuid, text: &str) -> Vec<u8> {
    let mut packets = Vec::with_capacity(text.len() + HEADER_BYTES);
    for text in text.as_bytes().chunks(MAX_TEXT_BYTES) {
        // The text is at most `MAX_TEXT_BYTES` long: the conversion does not fail.
        let bits = u32::try_from((HEADER_BYTES + text.len()) * 8).unwrap_or(u32::MAX);
        packets.put_u32_le(0x75d1_1d57);
        packets.put_slice(&uuid.0);
        packets.put_u32_le(0); // checksum
        packets.put_u32_le(bits); // content
        packets.put_u32_le(bits); // packet
        packets.put_slice(&[0, 0, 0]); // compression, encryption, checksum scheme
        packets.put_slice(&[1, 8]); // version
        packets.put_slice(text);
    }
    packets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_metadata_packet_has_a_header_of_37_bytes() {
        let want = wire::hex::parse(
            "571dd175 07070707070707070707070707070707 00000000
             38010000 38010000 00 00 00 01 08 6162",
        );
        assert_eq!(metadata_packets(Uuid([7; 16]), "ab"), want.unwrap());
        assert!(metadata_packets(Uuid([7; 16]), "").is_empty());
    }

    #[test]
    fn long_metadata_text_is_written_as_several_packets() {
        let packets = metadata_packets(Uuid([7; 16]), &"x".repeat(MAX_TEXT_BYTES + 1));
        assert_eq!(packets.len(), MAX_TEXT_BYTES + 1 + 2 * HEADER_BYTES);
        assert_eq!(packets[packets.len() - 1], b'x');
    }
}
