//! Reads an event header that is short.

use super::run::{Cursor, DecodeState, store_slot};
use crate::bits::align_up;
use crate::clock;
use crate::model::ByteOrder;
use crate::short_header::ShortHeader;

/// The values of a short header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderValues {
    pub(crate) id: u64,
    /// The low bits of the time, as many as the header has.
    pub(crate) time: u64,
    /// The position after the header, in bits.
    pub(crate) end: u64,
}

impl ShortHeader {
    /// Reads the header at the position of the cursor, which is not moved. `None` if this header is
    /// not short or ends too close to the end of the bytes.
    #[inline]
    pub(crate) fn read(&self, cursor: &Cursor<'_>) -> Option<HeaderValues> {
        let at = align_up(cursor.position + cursor.shift, self.alignment) - cursor.shift;
        let first = usize::try_from(at / 8).ok()?;
        // One load is enough: the header begins with a byte and has at most 64 bits
        // (`ShortHeader::of`).
        let eight = cursor.bytes.get(first..)?.first_chunk::<8>()?;
        let (id_bits, time_bits) = (u32::from(self.id_bits), u32::from(self.time_bits));
        let end = at + u64::from(id_bits + time_bits);
        if end > cursor.end {
            return None;
        }
        // Both widths are at least 1 and their sum is at most 64, so that no shift reaches 64.
        let (id, time) = match self.order {
            ByteOrder::Little => {
                let word = u64::from_le_bytes(*eight);
                (word & (u64::MAX >> (64 - id_bits)), word >> id_bits)
            }
            ByteOrder::Big => {
                let word = u64::from_be_bytes(*eight);
                let time = word << id_bits >> (64 - time_bits);
                (word >> (64 - id_bits), time)
            }
        };
        let time = time & (u64::MAX >> (64 - time_bits));
        let is_short = (self.ids.0..=self.ids.1).contains(&id);
        is_short.then_some(HeaderValues { id, time, end })
    }

    /// The clock of the stream after a header, in cycles.
    #[inline]
    pub(crate) fn advance_clock(&self, cycles: u64, values: HeaderValues) -> u64 {
        clock::advance_clock(cycles, values.time, self.time_bits)
    }

    /// Moves the cursor to the end of a header and the clock to `cycles`, and keeps the id for what
    /// refers to it.
    #[inline]
    pub(crate) fn pass(
        &self,
        values: HeaderValues,
        cycles: u64,
        cursor: &mut Cursor<'_>,
        state: &mut DecodeState,
    ) {
        self.store_id(values.id, state);
        state.read_short_header(self.order);
        state.cycles = cycles;
        cursor.position = values.end;
    }

    /// Keeps the id for what refers to it.
    #[inline]
    pub(crate) fn store_id(&self, id: u64, state: &DecodeState) {
        if let Some(slot) = self.id_slot {
            store_slot(&state.slots, slot, id);
        }
    }
}
