//! Integers of any width at any bit of a packet. Positions count bits from the packet's first bit.
//! The byte order of the field decides which bit of a byte is its first (CTF 1.8.3, section 4.1.5).

use byteorder::{BigEndian, ByteOrder as _, LittleEndian};

use crate::model::ByteOrder;

/// `position` moved up to a multiple of `alignment` bits, a power of two.
#[inline]
pub(crate) const fn align_up(position: u64, alignment: u32) -> u64 {
    // Cannot overflow: a position is at most 2^62 (`MAX_PACKET_BITS`) plus an alignment, which is a
    // `u32`.
    let mask = alignment as u64 - 1;
    (position + mask) & !mask
}

/// Reads an integer of `bits` bits (1 to 64) at `position`, in bits; `None` if the bytes end before
/// its end.
#[inline(always)]
pub(crate) fn read_bits(bytes: &[u8], position: u64, bits: u8, order: ByteOrder) -> Option<u64> {
    let first = usize::try_from(position / 8).ok()?;
    let skipped = u32::from(position.to_le_bytes()[0] & 7);
    let bits = u32::from(bits);
    // One load of eight bytes is enough unless the number begins within a byte and touches a ninth.
    if skipped + bits > 64 {
        return read_bits_bytewise(bytes, first, skipped, bits, order);
    }
    let Some(eight) = bytes.get(first..).and_then(<[u8]>::first_chunk::<8>) else {
        return read_bits_bytewise(bytes, first, skipped, bits, order);
    };
    // No shift is by 64, which would panic: `bits` is at least 1, and the sum of both is at most
    // 64.
    Some(match order {
        ByteOrder::Little => (u64::from_le_bytes(*eight) >> skipped) & (u64::MAX >> (64 - bits)),
        ByteOrder::Big => (u64::from_be_bytes(*eight) << skipped) >> (64 - bits),
    })
}

/// Reads where eight bytes cannot be taken at once: at the end of a packet, and for numbers that
/// touch nine bytes.
#[cold]
fn read_bits_bytewise(
    bytes: &[u8],
    first: usize,
    skipped: u32,
    bits: u32,
    order: ByteOrder,
) -> Option<u64> {
    let touched = usize::try_from((skipped + bits).div_ceil(8)).ok()?;
    // Checked, because on a 32-bit machine a position near the end of the address space overflows.
    let bytes = bytes.get(first..first.checked_add(touched)?)?;
    // A number of 64 bits that begins within a byte touches nine bytes, which only a `u128` holds.
    let number = match order {
        ByteOrder::Little => LittleEndian::read_uint128(bytes, touched) >> skipped,
        ByteOrder::Big => {
            let unused = u32::from(u8::try_from(touched).ok()?) * 8 - skipped - bits;
            BigEndian::read_uint128(bytes, touched) >> unused
        }
    };
    // The mask leaves at most 64 bits: the conversion does not fail.
    u64::try_from(number & (u128::from(u64::MAX) >> (64 - bits))).ok()
}

/// A number of `bits` bits (1 to 64) in two's complement.
#[inline]
pub(crate) const fn sign_extended(number: u64, bits: u8) -> i64 {
    let unused = 64 - bits as u32;
    (number << unused).cast_signed() >> unused
}

/// A number of `bits` bits (1 to 64) with its bits in the opposite order.
#[inline]
pub(crate) const fn reverse_bits(number: u64, bits: u8) -> u64 {
    number.reverse_bits() >> (64 - bits as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bit_fields_of_both_byte_orders_are_read_from_opposite_ends_of_the_bytes() {
        let bytes = [0x3F, 0x12, 0xCD, 0xAB];
        let read = |at, bits, order| read_bits(&bytes, at, bits, order).unwrap();
        assert_eq!(read(0, 5, ByteOrder::Little), 31);
        assert_eq!(read(5, 11, ByteOrder::Little), 0x091);
        assert_eq!(read(16, 16, ByteOrder::Little), 0xABCD);
        assert_eq!(read(0, 5, ByteOrder::Big), 7);
        assert_eq!(read(5, 11, ByteOrder::Big), 0x712);
        assert_eq!(read(16, 16, ByteOrder::Big), 0xCDAB);
        assert_eq!(read_bits(&bytes, 17, 16, ByteOrder::Big), None);
    }

    proptest! {
        #[test]
        fn a_bit_field_is_the_number_of_its_single_bits(
            bytes in proptest::collection::vec(any::<u8>(), 1..20),
            position in 0u64..160,
            bits in 1u8..=64,
        ) {
            let bit = |at: u64, order| {
                let byte = bytes[usize::try_from(at / 8).unwrap()];
                let place = at % 8;
                u64::from(match order {
                    ByteOrder::Little => byte >> place & 1,
                    ByteOrder::Big => byte >> (7 - place) & 1,
                })
            };
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let end = position + u64::from(bits);
                let want = (end <= bytes.len() as u64 * 8).then(|| {
                    (0..u64::from(bits)).fold(0, |number, place| match order {
                        ByteOrder::Little => number | bit(position + place, order) << place,
                        ByteOrder::Big => number << 1 | bit(position + place, order),
                    })
                });
                prop_assert_eq!(read_bits(&bytes, position, bits, order), want);
            }
        }
    }

    #[test]
    fn reversed_bits_are_those_of_the_number_alone() {
        assert_eq!(reverse_bits(0b1_1101_1010, 9), 0b0_1011_0111);
        assert_eq!(reverse_bits(1, 64), 1 << 63);
        assert_eq!(reverse_bits(1, 1), 1);
    }

    #[test]
    fn sign_extension_repeats_the_highest_bit() {
        assert_eq!(sign_extended(0b1_1111, 5), -1);
        assert_eq!(sign_extended(0b0_1111, 5), 15);
        assert_eq!(sign_extended(u64::MAX, 64), -1);
    }
}
