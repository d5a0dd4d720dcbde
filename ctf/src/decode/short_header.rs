//! Reads an event header that is short.

use super::run::{Cursor, DecodeState, store_slot};
use crate::bits::align_up;
use crate::clock;
use crate::model::ByteOrder;
use crate::short_header::ShortHeader;

impl ShortHeader {
    /// Reads the header, moves the clock, and returns the id. `None`, and nothing is changed, if this header is not short
    /// or ends too close to the end of the bytes.
    #[inline]
    pub(crate) fn read(&self, cursor: &mut Cursor<'_>, state: &mut DecodeState) -> Option<u64> {
        let at = align_up(cursor.position + cursor.shift, self.alignment) - cursor.shift;
        let first = usize::try_from(at / 8).ok()?;
        let eight = cursor.bytes.get(first..)?.first_chunk::<8>()?;
        let (id_bits, time_bits) = (u32::from(self.id_bits), u32::from(self.time_bits));
        let end = at + u64::from(id_bits + time_bits);
        if end > cursor.end {
            return None;
        }
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
        if !(self.ids.0..=self.ids.1).contains(&id) {
            return None;
        }
        if let Some(slot) = self.id_slot {
            store_slot(&state.slots, slot, id);
        }
        state.read_short_header(self.order);
        state.cycles = clock::advance_clock(state.cycles, time, self.time_bits);
        cursor.position = end;
        Some(id)
    }
}
