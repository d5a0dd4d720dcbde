//! Runs a plan over the bytes of a packet: finds the ends of structures, checks that all of their
//! fields fit into the content, and reads the values that the decoder needs.

use std::cell::Cell;

use memchr::memchr;

use super::error::{DecodeError, FieldError};
use crate::bits::{align_up, read_bits, reverse_bits, sign_extended};
use crate::clock;
use crate::model::{ByteOrder, Length, Role, Slot};
use crate::plan::{Choice, Loop, Meaning, Plan, Step};

/// Largest number of elements that take no bits, in a packet of few bits: each bit allows for one
/// more. Elements that take bits are bounded by the packet.
const MAX_EMPTY_ELEMENTS: u64 = 1 << 16;

/// The state that one part of a packet leaves to the parts that follow.
#[derive(Debug, Default)]
pub(crate) struct DecodeState {
    /// The value of the stream's clock, in cycles.
    pub(crate) cycles: u64,
    pub(crate) roles: Roles,
    /// Numbers that lengths and selections refer to. In cells, because a walk over an event, which
    /// may be repeated, passes the same fields again and finds the same numbers.
    pub(crate) slots: Vec<Cell<u64>>,
    pub(crate) uuid: Option<[u8; 16]>,
    /// Elements that took no bits, so far in this packet.
    empty_elements: u64,
    /// The number of shared slots ([`Trace::shared_slots`](crate::metadata::Trace::shared_slots))
    /// when the packet began.
    pub(crate) shared_slots: u32,
    order: Option<ByteOrder>,
}

/// The part of a [`DecodeState`] that decoding an event changes, without slots: those are written
/// again before they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checkpoint {
    cycles: u64,
    roles: Roles,
    empty_elements: u64,
    shared_slots: u32,
    order: Option<ByteOrder>,
}

/// The values of the fields that have a role, with their widths in bits; width 0 if there is no
/// such field.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Roles {
    // An array with a place for each role, because roles are set and read for every event.
    values: [(u64, u8); 11],
}

impl Roles {
    /// The value of the field of this role and its width in bits; `None` if the packet or event has
    /// none.
    #[inline]
    pub(crate) fn get(&self, role: Role) -> Option<(u64, u8)> {
        let found = self.values.get(role as usize).copied();
        found.filter(|(_, bits)| *bits > 0)
    }

    /// The value of the field of this role; `None` if the packet or event has none.
    #[inline]
    pub(crate) fn value(&self, role: Role) -> Option<u64> {
        self.get(role).map(|(value, _)| value)
    }

    #[inline]
    fn set(&mut self, role: Role, value: u64, bits: u8) {
        if let Some(place) = self.values.get_mut(role as usize) {
            *place = (value, bits);
        }
    }
}

/// A position in the bits of a packet, and their end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) position: u64,
    /// The end of the content or of the packet, in bits from the first of `bytes`: nothing beyond
    /// it is read.
    pub(crate) end: u64,
    /// The number of bits of the packet before `position` that are not in `bytes`. Alignment counts
    /// them.
    pub(crate) shift: u64,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn align(&mut self, alignment: u32) {
        self.position = align_up(self.position + self.shift, alignment) - self.shift;
    }

    #[inline]
    fn skip(&mut self, bits: u64) -> Result<(), FieldError> {
        // Saturating, because a size may be as large as the metadata or packet says: a sum that
        // wraps would pass the check.
        let end = self.position.saturating_add(bits);
        if end > self.end {
            return Err(self.past_end(bits));
        }
        self.position = end;
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn read_number(&mut self, bits: u8, order: ByteOrder) -> Result<u64, FieldError> {
        let width = u64::from(bits);
        let end = self.position.saturating_add(width);
        match read_bits(self.bytes, self.position, bits, order) {
            // The given bytes may go on after the content, with padding or with the next packet.
            Some(number) if end <= self.end => {
                self.position = end;
                Ok(number)
            }
            _ => Err(self.past_end(width)),
        }
    }

    /// Reads an integer; a signed one is sign-extended to 64 bits.
    #[inline(always)]
    pub(crate) fn read_integer(
        &mut self,
        bits: u8,
        order: ByteOrder,
        signed: bool,
    ) -> Result<u64, FieldError> {
        let number = self.read_number(bits, order)?;
        Ok(if signed {
            sign_extended(number, bits).cast_unsigned()
        } else {
            number
        })
    }

    /// Reads `length` bytes. The position must be a multiple of 8 bits.
    pub(crate) fn read_bytes(&mut self, length: u64) -> Result<&'a [u8], FieldError> {
        // The packet may claim any length: a product that wraps would be taken for a short field.
        let bits = length.saturating_mul(8);
        let first = self.position / 8;
        let end = self.position.saturating_add(bits);
        let range = usize::try_from(first)
            .ok()
            .zip(usize::try_from(end / 8).ok());
        match range.and_then(|(first, end)| self.bytes.get(first..end)) {
            Some(bytes) if end <= self.end => {
                self.position = end;
                Ok(bytes)
            }
            _ => Err(self.past_end(bits)),
        }
    }

    /// Reads a text up to its terminator, a code unit of `unit` bytes that are all zero, and moves
    /// after the terminator.
    #[inline(always)]
    pub(crate) fn read_text(&mut self, unit: u8) -> Result<&'a [u8], FieldError> {
        let Some(text) = self.find_text(unit) else {
            return Err(self.no_terminator());
        };
        self.position += (text.len() as u64 + u64::from(unit)) * 8;
        Ok(text)
    }

    /// The text at this position, without its terminator.
    #[inline(always)]
    fn find_text(&self, unit: u8) -> Option<&'a [u8]> {
        let first = usize::try_from(self.position / 8).ok()?;
        // An end that is no `usize` is no limit, because the given bytes end before it.
        let end = usize::try_from(self.end / 8)
            .unwrap_or(usize::MAX)
            .min(self.bytes.len());
        let rest = self.bytes.get(first..end)?;
        let length = find_terminator(rest, unit)?;
        rest.get(..length)
    }

    /// The error of a text whose terminator was not found: it may follow after the bytes that were
    /// given.
    #[cold]
    fn no_terminator(&self) -> FieldError {
        let here = (self.bytes.len() as u64).saturating_mul(8);
        // A text has whole bytes: bits after the last whole byte of the content cannot hold its
        // terminator. `PastEnd` tells the caller to try again with more bytes (`is_cut`).
        if here < self.end / 8 * 8 {
            self.past_end(here.saturating_sub(self.position) + 8)
        } else {
            FieldError::EndlessText { end: self.end }
        }
    }

    /// Reads a number of seven bits in each byte (LEB128); also returns its width in bits, at
    /// most 64.
    pub(crate) fn read_variable(&mut self, signed: bool) -> Result<(u64, u8), FieldError> {
        let (mut number, mut bits) = (0_u64, 0_u8);
        loop {
            let byte = self.read_number(8, ByteOrder::Little)?;
            let seven = byte & 0x7F;
            // Of the tenth byte only one bit is left: the others must be zeros, or repeat the sign.
            let fits = bits < 63
                || match (signed, bits) {
                    (false, 63) => seven <= 1,
                    (true, 63) => seven == 0 || seven == 0x7F,
                    _ => false,
                };
            if !fits {
                return Err(FieldError::EndlessNumber);
            }
            number |= seven << bits;
            bits += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let width = bits.min(64);
        if signed {
            number = sign_extended(number, width).cast_unsigned();
        }
        Ok((number, width))
    }

    /// An error of the field at this position.
    pub(crate) fn error(&self, what: FieldError) -> DecodeError {
        DecodeError::Field {
            at: self.position,
            what,
        }
    }

    fn past_end(&self, bits: u64) -> FieldError {
        FieldError::PastEnd {
            bits,
            end: self.end.min(self.bytes.len() as u64 * 8),
        }
    }

    /// Whether `count` elements of at least `bits` each may follow.
    pub(crate) fn check_room(&self, count: u64, bits: u64) -> Result<(), FieldError> {
        let room = match bits {
            // Refused before any is decoded: each takes time, but no bytes of the packet.
            0 => count <= MAX_EMPTY_ELEMENTS,
            _ => count
                .checked_mul(bits)
                .is_some_and(|bits| bits <= self.end.saturating_sub(self.position)),
        };
        if room {
            Ok(())
        } else {
            Err(FieldError::TooMany {
                count,
                end: self.end,
            })
        }
    }
}

impl DecodeState {
    pub(crate) fn begin_packet(&mut self) {
        // The clock stays, because a narrow `timestamp_begin` counts from the packet before. Slots
        // stay, because each is written again before it is read.
        self.roles = Roles::default();
        self.uuid = None;
        self.order = None;
        self.empty_elements = 0;
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            cycles: self.cycles,
            roles: self.roles,
            empty_elements: self.empty_elements,
            shared_slots: self.shared_slots,
            order: self.order,
        }
    }

    /// Undoes what was decoded since `checkpoint`, so that it can be decoded again.
    pub(crate) fn restore(&mut self, checkpoint: &Checkpoint) {
        self.cycles = checkpoint.cycles;
        self.roles = checkpoint.roles;
        self.empty_elements = checkpoint.empty_elements;
        self.shared_slots = checkpoint.shared_slots;
        self.order = checkpoint.order;
    }

    /// Takes note that an event header of this order was read at once.
    #[inline]
    pub(crate) fn read_short_header(&mut self, order: ByteOrder) {
        self.order = Some(order);
    }

    /// Makes room for slots that the metadata has assigned since the last call.
    #[inline]
    pub(crate) fn need_slots(&mut self, count: u32) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if self.slots.len() < count {
            self.slots.resize(count, Cell::new(0));
        }
    }

    /// Counts elements that took no bits. They are limited because a visitor takes time for each.
    fn pass_empty(&mut self, count: u64, cursor: &Cursor<'_>) -> Result<(), FieldError> {
        self.empty_elements = self.empty_elements.saturating_add(count);
        // Bits that have been removed count too: how a packet is divided into parts makes no
        // difference.
        let passed = cursor.position.saturating_add(cursor.shift);
        if self.empty_elements > MAX_EMPTY_ELEMENTS.saturating_add(passed) {
            let end = cursor.end;
            return Err(FieldError::TooMany { count, end });
        }
        Ok(())
    }

    fn record_value(&mut self, meaning: Meaning, value: u64, bits: u8) {
        if let Some(slot) = meaning.slot {
            // Any bit that is set makes a boolean true; selectors refer to it as 0 or 1.
            let value = if meaning.boolean {
                u64::from(value != 0)
            } else {
                value
            };
            store_slot(&self.slots, slot, value);
        }
        if let Some(role) = meaning.role {
            self.roles.set(role, value, bits);
        }
        if meaning.moves_clock {
            // At the field itself, so that several timestamps in one header count from one another.
            self.cycles = clock::advance_clock(self.cycles, value, bits);
        }
    }
}

/// The value of a slot; 0 if it has not been written.
#[inline]
pub(crate) fn load_slot(slots: &[Cell<u64>], slot: Slot) -> u64 {
    let place = usize::try_from(slot.0).ok();
    place
        .and_then(|place| slots.get(place))
        .map_or(0, Cell::get)
}

/// The value of a length: elements of an array, bytes of a text or BLOB.
#[inline]
pub(crate) fn load_length(slots: &[Cell<u64>], length: &Length) -> u64 {
    match length {
        Length::Static(length) => *length,
        Length::Dynamic(slot) => load_slot(slots, *slot),
    }
}

/// The offset of the first zero. Most texts are short: to call `memchr` would take longer than to
/// look at them.
#[inline(always)]
fn find_zero(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (mut rest, mut passed) = (bytes, 0);
    // After 32 bytes the text is long enough for the call to pay.
    for _ in 0..4 {
        let Some((eight, behind)) = rest.split_first_chunk::<8>() else {
            break;
        };
        let word = u64::from_le_bytes(*eight);
        // The highest bit of each byte that is zero, and of no byte before the first such.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return Some(passed + usize::try_from(zeros.trailing_zeros() / 8).ok()?);
        }
        (rest, passed) = (behind, passed + 8);
    }
    memchr(0, rest).map(|place| passed + place)
}

/// The offset in bytes of the first code unit of `unit` bytes that are all zero.
#[inline(always)]
pub(crate) fn find_terminator(bytes: &[u8], unit: u8) -> Option<usize> {
    if unit == 1 {
        return find_zero(bytes);
    }
    let unit = usize::from(unit);
    let mut units = bytes.chunks_exact(unit);
    // In whole code units: the zeros of two neighbouring units are no terminator.
    let place = units.position(|unit| unit.iter().all(|byte| *byte == 0));
    place.map(|units| units * unit)
}

#[inline]
pub(crate) fn store_slot(slots: &[Cell<u64>], slot: Slot, value: u64) {
    let place = usize::try_from(slot.0).ok();
    if let Some(cell) = place.and_then(|place| slots.get(place)) {
        cell.set(value);
    }
}

/// The value of the slot of a selector, with its sign.
#[inline]
pub(crate) fn load_selector(slots: &[Cell<u64>], slot: Slot, signed: bool) -> i128 {
    let value = load_slot(slots, slot);
    if signed {
        i128::from(value.cast_signed())
    } else {
        i128::from(value)
    }
}

impl Plan {
    /// Takes all steps, beginning at the position of `cursor`.
    ///
    /// # Errors
    /// If a field does not fit. The error has the position of that field.
    #[inline]
    pub(crate) fn run(
        &self,
        cursor: &mut Cursor<'_>,
        state: &mut DecodeState,
    ) -> Result<(), DecodeError> {
        let ran = match &*self.steps {
            [] => Ok(()),
            // Most events have fields of fixed size, or texts between such: no step needs a call
            // then.
            [Step::Skip(bits, order)] => cursor.skip(*bits).map(|()| state.order = Some(*order)),
            steps => run_steps(steps, cursor, state),
        };
        ran.map_err(|what| cursor.error(what))
    }
}

fn run_steps(
    steps: &[Step],
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
) -> Result<(), FieldError> {
    for step in steps {
        match step {
            Step::Align(alignment) => cursor.align(*alignment),
            Step::Skip(bits, order) => {
                cursor.skip(*bits)?;
                state.order = Some(*order);
            }
            Step::Read(read) => {
                let number = cursor.read_integer(read.bits, read.order, read.signed)?;
                state.order = Some(read.order);
                state.record_value(read.meaning, number, read.bits);
            }
            // `order` stays: a text ends with a byte, where the next field may have any order.
            Step::SkipString(unit) => {
                cursor.read_text(*unit)?;
            }
            Step::Repeat(slot, bits, order) => {
                // Checked before the product is formed: the packet may claim any length.
                let count = load_slot(&state.slots, *slot);
                cursor.check_room(count, *bits)?;
                cursor.skip(count.saturating_mul(*bits))?;
                state.order = Some(*order);
            }
            Step::Empty(length) => state.pass_empty(load_length(&state.slots, length), cursor)?,
            Step::Choose(choice) => run_choice(choice, cursor, state)?,
            Step::Loop(repeated) => run_loop(repeated, cursor, state)?,
            Step::Order(order) => {
                // The two orders count the bits of a byte from opposite ends: the fields would
                // overlap.
                let within_byte = !cursor.position.is_multiple_of(8);
                if within_byte && state.order.is_some_and(|before| before != *order) {
                    return Err(FieldError::OrderWithinByte);
                }
            }
            Step::ReadReversed(read) => {
                let mut number =
                    reverse_bits(cursor.read_number(read.bits, read.order)?, read.bits);
                if read.signed {
                    number = sign_extended(number, read.bits).cast_unsigned();
                }
                state.order = Some(read.order);
                state.record_value(read.meaning, number, read.bits);
            }
            Step::ReadVariable(read) => {
                let (number, bits) = cursor.read_variable(read.signed)?;
                state.record_value(read.meaning, number, bits);
            }
            Step::SkipVariable(signed) => {
                cursor.read_variable(*signed)?;
            }
            Step::CodeUnits(slot, unit) => {
                let (bytes, unit) = (load_slot(&state.slots, *slot), *unit);
                if !bytes.is_multiple_of(u64::from(unit)) {
                    return Err(FieldError::CutText { bytes, unit });
                }
            }
            // The conversion of 16 bytes does not fail.
            Step::MetadataUuid => state.uuid = cursor.read_bytes(16)?.try_into().ok(),
        }
    }
    Ok(())
}

fn run_choice(
    choice: &Choice,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
) -> Result<(), FieldError> {
    let value = load_slot(&state.slots, choice.selector);
    let option = choice.lookup.find(value, choice.signed);
    match option.and_then(|option| choice.options.get(option)) {
        Some(steps) => run_steps(steps, cursor, state),
        None if choice.optional => Ok(()),
        None => Err(FieldError::NoOption {
            value: load_selector(&state.slots, choice.selector, choice.signed),
        }),
    }
}

fn run_loop(
    repeated: &Loop,
    cursor: &mut Cursor<'_>,
    state: &mut DecodeState,
) -> Result<(), FieldError> {
    let count = load_length(&state.slots, &repeated.count);
    cursor.check_room(count, repeated.min_bits)?;
    for _ in 0..count {
        // An optional field or an empty structure may take no bits, and then the packet does not
        // limit the number of elements.
        let before = cursor.position;
        run_steps(&repeated.body, cursor, state)?;
        if cursor.position == before {
            state.pass_empty(1, cursor)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminator_of_a_text_is_its_first_zero() {
        for fill in [1, 0x7F, 0x80, 0x81, 0xFF] {
            for length in 0..60 {
                let mut bytes = vec![fill; length];
                assert_eq!(find_terminator(&bytes, 1), None);
                for place in (0..length).rev() {
                    // Those behind it remain.
                    bytes[place] = 0;
                    assert_eq!(find_terminator(&bytes, 1), Some(place));
                }
            }
        }
    }

    #[test]
    fn a_text_whose_terminator_may_follow_is_cut_and_not_endless() {
        let read = |bytes, content_bytes: u64| {
            let (position, end, shift) = (0, 8 * content_bytes, 0);
            let mut cursor = Cursor {
                bytes,
                position,
                end,
                shift,
            };
            cursor.read_text(1)
        };
        assert_eq!(read(b"text\0", 9), Ok(&b"text"[..]));
        let cut = FieldError::PastEnd { bits: 40, end: 32 };
        assert_eq!(read(b"text", 9), Err(cut));
        let endless = FieldError::EndlessText { end: 32 };
        assert_eq!(read(b"text", 4), Err(endless));
        assert_eq!(read(b"text\0", 4), Err(endless));
    }
}
