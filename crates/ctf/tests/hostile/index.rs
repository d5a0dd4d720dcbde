//! Malformed index files: they are refused, and no input causes a panic.

use ctf::index::{Beacon, Entry, IndexFormat, MAX_ENTRY_BYTES};
use proptest::prelude::*;
use wire::{Bits, Bytes, ClassId, PacketIndex, Timestamp};

use crate::must;

fn file(format: IndexFormat) -> Vec<u8> {
    let mut bytes = format.header_bytes();
    for number in 0..4 {
        let packet = PacketIndex {
            packet_size: Bits(4096 * 8),
            content_size: Bits(4000 * 8),
            begin: Timestamp(number),
            end: Timestamp(number + 1),
            events_discarded: 0,
            class: ClassId(0),
            instance: None,
            packet_seq: None,
        };
        let offset = Bytes(4096 * number);
        bytes.extend(format.encode(&Entry { offset, packet }, &mut [0; MAX_ENTRY_BYTES]));
    }
    bytes.extend(Beacon::new(Timestamp(9)).to_bytes());
    bytes
}

proptest! {
    #[test]
    fn a_mutated_index_is_refused_or_has_consistent_entries(
        format in prop::sample::select(vec![IndexFormat::V1_0, IndexFormat::V1_1]),
        changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        end: prop::sample::Index,
    ) {
        let mut bytes = file(format);
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        must::read_index(&bytes);
    }
}
