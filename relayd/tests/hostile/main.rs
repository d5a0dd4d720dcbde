//! Hostile bytes on a data connection: what must hold of anything.

mod must;

use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_taken_apart_alike_however_they_are_cut(
        cut: u8,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        must::receive(cut, &bytes);
    }

    #[test]
    fn packets_in_any_order_pass_in_order_or_are_lost_and_nothing_piles_up(
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
fn the_last_numbers_there_are_do_no_harm() {
    let mut bytes = Vec::new();
    for seq in [0, u64::MAX - 1, u64::MAX, 1, 0] {
        must::put(0, seq, b"some", &mut bytes);
    }
    must::receive(5, &bytes);
}
