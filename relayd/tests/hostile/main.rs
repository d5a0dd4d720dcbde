//! Hostile bytes on a data connection: invariants of decoding and reordering that hold for any
//! input.

mod must;

use proptest::prelude::*;

proptest! {
    #[test]
    fn data_decoder_returns_the_same_packets_however_the_bytes_are_split(
        cut: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        must::receive(cut, &bytes);
    }

    #[test]
    fn reorder_passes_packets_in_order_or_loses_them_within_its_window(
        cut: u8,
        packets in prop::collection::vec((0..3u8, 0..40u8, 0..60u8), 0..60),
    ) {
        let mut bytes = Vec::new();
        for (stream, seq, size) in packets {
            must::put(stream, u64::from(seq), &vec![seq; usize::from(size)], &mut bytes);
        }
        must::receive(cut, &bytes);
    }
}

#[test]
fn reorder_accepts_the_largest_sequence_numbers() {
    let mut bytes = Vec::new();
    for seq in [0, u64::MAX - 1, u64::MAX, 1, 0] {
        must::put(0, seq, b"some", &mut bytes);
    }
    must::receive(5, &bytes);
}
