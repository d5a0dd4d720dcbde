//! The line that is being written.
//!
//! A line is many pieces of a few bytes. To append each to a vector would be one step of reserving
//! memory for each, and the length of the vector would go through memory from one to the next. Here
//! pieces are copied as 8 or 32 bytes whatever their length, what is too much is overwritten by the
//! next piece, and the length stays in a register.

use super::number::{
    EIGHT_DIGITS, SixDigits, eight_digits, general, hexadecimal_digits, leading_zeros,
    trailing_zeros,
};

/// Bytes of a line that are written before they go to the output.
const CAPACITY: usize = 1024;
/// Bytes for which each piece may assume that there is room.
const ROOM: usize = 64;
/// Longest text in bytes that is copied as a whole.
const SHORT: usize = 32;

/// The memory of a line. Its size is known to the compiler, which leaves out checks then.
pub(super) type LineBuffer = [u8; CAPACITY];

/// A line buffer that holds nothing.
pub(super) fn line_buffer() -> Box<LineBuffer> {
    Box::new([0; CAPACITY])
}

/// Appends pieces to a line.
pub(super) struct Line<'a> {
    buffer: &'a mut LineBuffer,
    /// The number of bytes in `buffer`. The rest of it may hold anything.
    length: usize,
    /// What is before the bytes in `buffer`.
    out: &'a mut Vec<u8>,
}

/// A text that is the same in many lines.
#[derive(Debug, Default)]
pub(super) struct Literal {
    /// The text, followed by zeros up to [`SHORT`] bytes.
    padded: Vec<u8>,
    length: usize,
}

impl Literal {
    pub(super) fn push(&mut self, text: &[u8]) {
        // The zeros of the text before are not part of it.
        self.padded.truncate(self.length);
        self.padded.extend_from_slice(text);
        self.length = self.padded.len();
        self.padded.resize(self.length.max(SHORT), 0);
    }

    pub(super) fn text(&self) -> &[u8] {
        self.padded.get(..self.length).unwrap_or_default()
    }
}

impl From<Vec<u8>> for Literal {
    fn from(text: Vec<u8>) -> Self {
        Self::from(&*text)
    }
}

impl From<&[u8]> for Literal {
    fn from(text: &[u8]) -> Self {
        let mut literal = Self::default();
        literal.push(text);
        literal
    }
}

impl<'a> Line<'a> {
    /// A line that follows the bytes in `out`.
    #[inline(always)]
    pub(super) fn new(buffer: &'a mut LineBuffer, out: &'a mut Vec<u8>) -> Self {
        Self {
            buffer,
            length: 0,
            out,
        }
    }

    /// Borrows the line for the time of a function, which can keep its length in a register if
    /// nothing else refers to it. What is appended counts when [`Line::end_borrow`] is given the
    /// length.
    #[inline(always)]
    pub(super) fn borrow(&mut self) -> Line<'_> {
        Line {
            buffer: self.buffer,
            length: self.length,
            out: self.out,
        }
    }

    /// The number of bytes in the buffer.
    #[inline(always)]
    pub(super) fn pending(&self) -> usize {
        self.length
    }

    /// Takes over what has been appended to the line that was [borrowed](Self::borrow).
    #[inline(always)]
    pub(super) fn end_borrow(&mut self, pending: usize) {
        self.length = pending;
    }

    /// What is before the bytes in the buffer, with all of them.
    #[inline(always)]
    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        flush(self.buffer, self.length, self.out);
        self.length = 0;
        self.out
    }

    /// Appends a text that is the same in many lines.
    #[inline(always)]
    pub(super) fn literal(&mut self, literal: &Literal) {
        match literal.padded.first_chunk::<SHORT>() {
            Some(padded) if literal.length <= SHORT => self.copy(padded, literal.length),
            _ => self.text(literal.text()),
        }
    }

    /// Appends a text of any length.
    #[inline(always)]
    pub(super) fn text(&mut self, text: &[u8]) {
        let mut text = text;
        while let Some((first, rest)) = text.split_first_chunk::<SHORT>() {
            self.copy(first, SHORT);
            text = rest;
        }
        // Two pieces of fixed size, which overlap unless the text is as long as both.
        if let (Some(first), Some(last)) = (text.first_chunk::<16>(), text.last_chunk::<16>()) {
            self.copy(first, text.len() - 16);
            self.copy(last, 16);
        } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>())
        {
            self.copy(first, text.len() - 8);
            self.copy(last, 8);
        } else {
            for byte in text {
                self.copy(&[*byte], 1);
            }
        }
    }

    /// Appends the first bytes of a piece: `length` of them, at most `N`.
    #[inline(always)]
    pub(super) fn copy<const N: usize>(&mut self, piece: &[u8; N], length: usize) {
        // One check for each piece, because no piece is longer than this room.
        if self.length > CAPACITY - ROOM {
            flush(self.buffer, self.length, self.out);
            self.length = 0;
        }
        let place = self.buffer.get_mut(self.length..);
        if let Some(place) = place.and_then(|place| place.first_chunk_mut::<N>()) {
            *place = *piece;
        }
        self.length += length;
    }

    /// Appends a number in base 10.
    #[inline(always)]
    pub(super) fn decimal(&mut self, value: u64) {
        if value < EIGHT_DIGITS {
            self.short_decimal(value);
            return;
        }
        let (high, low) = (value / EIGHT_DIGITS, value % EIGHT_DIGITS);
        if high < EIGHT_DIGITS {
            self.short_decimal(high);
        } else {
            self.short_decimal(high / EIGHT_DIGITS);
            self.copy(&eight_digits(high % EIGHT_DIGITS).to_le_bytes(), 8);
        }
        self.copy(&eight_digits(low).to_le_bytes(), 8);
    }

    /// Appends a number in base 10, with `-` in front if it is negative.
    #[inline(always)]
    pub(super) fn signed_decimal(&mut self, value: i64) {
        // Copied in any case, and counted only if it is needed: there is no branch.
        self.copy(b"-", usize::from(value < 0));
        self.decimal(value.unsigned_abs());
    }

    /// Appends a number below 1,000,000,000 in base 10, with zeros in front.
    #[inline(always)]
    pub(super) fn nine_digits(&mut self, value: u64) {
        let [first, ..] = (value / EIGHT_DIGITS).to_le_bytes();
        self.copy(&[b'0' + first], 1);
        self.copy(&eight_digits(value % EIGHT_DIGITS).to_le_bytes(), 8);
    }

    /// Appends a number in base 16, with `0x` in front.
    #[inline(always)]
    pub(super) fn hexadecimal(&mut self, value: u64) {
        let (high, low) = (value >> 32, value & u64::from(u32::MAX));
        // With the lowest bit set, the number 0 has one digit too.
        let leading = usize::try_from((value | 1).leading_zeros() / 4).unwrap_or(0);
        self.copy(b"0x", 2);
        if leading < 8 {
            self.copy(
                &(hexadecimal_digits(high) >> (8 * leading)).to_le_bytes(),
                8 - leading,
            );
            self.copy(&hexadecimal_digits(low).to_le_bytes(), 8);
        } else {
            let leading = leading - 8;
            self.copy(
                &(hexadecimal_digits(low) >> (8 * leading)).to_le_bytes(),
                8 - leading,
            );
        }
    }

    /// Appends a number as `%g` does.
    pub(super) fn general(&mut self, value: f64) {
        let Some(SixDigits { digits, exponent }) = SixDigits::of(value) else {
            general(self.out(), value);
            return;
        };
        // Copied in any case, and counted only if it is needed.
        self.copy(b"-", usize::from(value.is_sign_negative()));
        let text = eight_digits(digits) >> 16;
        let significant = 6 - trailing_zeros(text);
        match usize::try_from(exponent) {
            Ok(exponent) => {
                let whole = exponent + 1;
                self.copy(&text.to_le_bytes(), whole);
                if significant > whole {
                    self.copy(b".", 1);
                    self.copy(&(text >> (8 * whole)).to_le_bytes(), significant - whole);
                }
            }
            Err(_) => {
                let zeros = usize::try_from(-exponent).unwrap_or(1);
                self.copy(b"0.000", 1 + zeros);
                self.copy(&text.to_le_bytes(), significant);
            }
        }
    }

    /// Appends a number of at most eight digits.
    #[inline(always)]
    fn short_decimal(&mut self, value: u64) {
        let digits = eight_digits(value);
        let zeros = leading_zeros(digits);
        self.copy(&(digits >> (8 * zeros)).to_le_bytes(), 8 - zeros);
    }
}

/// Moves the beginning of a buffer to the output.
#[inline(never)]
fn flush(buffer: &LineBuffer, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(buffer.get(..length).unwrap_or_default());
}

#[cfg(test)]
pub(super) fn written(write: impl FnOnce(&mut Line<'_>)) -> Vec<u8> {
    let (mut buffer, mut out) = (line_buffer(), Vec::new());
    let mut line = Line::new(&mut buffer, &mut out);
    write(&mut line);
    line.out();
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Line<'_>)) -> String {
        String::from_utf8(written(write)).unwrap()
    }

    proptest! {
        #[test]
        fn a_line_is_its_pieces_one_behind_the_other(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..100), 0..4), 0..60),
        ) {
            let mut want = Vec::new();
            let line = written(|line| {
                for (piece, kind) in &pieces {
                    want.extend_from_slice(piece);
                    match kind {
                        0 => line.text(piece),
                        1 => line.literal(&Literal::from(&**piece)),
                        2 => line.out().extend_from_slice(piece),
                        _ => {
                            let mut lent = line.borrow();
                            lent.text(piece);
                            let pending = lent.pending();
                            line.end_borrow(pending);
                        }
                    }
                }
            });
            prop_assert_eq!(line, want);
        }

        #[test]
        fn numbers_in_a_line_are_as_printf_writes_them(
            bits: u64, zeros in 0..64_u32, exponent in -8..9_i32, digits in -1_000_000..1_000_000_i64,
        ) {
            let number = bits >> zeros;
            prop_assert_eq!(text(|line| line.decimal(number)), number.to_string());
            let signed = number.cast_signed();
            prop_assert_eq!(text(|line| line.signed_decimal(signed)), signed.to_string());
            prop_assert_eq!(text(|line| line.hexadecimal(number)), format!("{number:#X}").replace("0X", "0x"));
            let floats = [
                f64::from_bits(bits),
                digits as f64 * 10_f64.powi(exponent),
                // Ties between two decimals.
                digits as f64 / 64.0,
                (digits as f64 + 0.5) / 8.0,
            ];
            for float in floats {
                let mut want = Vec::new();
                general(&mut want, float);
                prop_assert_eq!(written(|line| line.general(float)), want, "{:e}", float);
            }
        }
    }
}
