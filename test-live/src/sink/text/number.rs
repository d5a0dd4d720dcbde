//! Numbers as text, as C's `printf` and `babeltrace2` write them.

use std::io::Write;

pub(super) const EIGHT_DIGITS: u64 = 100_000_000;

/// Writes a number in base 10.
pub(super) fn decimal(out: &mut Vec<u8>, value: u64) {
    if value < EIGHT_DIGITS {
        short_decimal(out, value);
        return;
    }
    long_decimal(out, value);
}

/// Writes a number below 1,000,000,000 in base 10, with zeros in front.
#[inline]
pub(super) fn nine_digits(out: &mut Vec<u8>, value: u64) {
    let [first, ..] = (value / EIGHT_DIGITS).to_le_bytes();
    out.push(b'0' + first);
    out.extend_from_slice(&eight_digits(value % EIGHT_DIGITS).to_le_bytes());
}

/// Writes a number of at most eight digits.
#[inline]
fn short_decimal(out: &mut Vec<u8>, value: u64) {
    let digits = eight_digits(value);
    let zeros = leading_zeros(digits);
    let begin = out.len();
    // All eight at once, and then fewer: no loop over digits of unknown number.
    out.extend_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    out.truncate(begin + 8 - zeros);
}

/// The number of zeros in front of eight digits: at most seven, as a number has at least one digit.
#[inline(always)]
pub(super) fn leading_zeros(digits: u64) -> usize {
    let zeros = ((digits ^ ZEROS) | 1 << 56).trailing_zeros() / 8;
    usize::try_from(zeros).unwrap_or(0)
}

fn long_decimal(out: &mut Vec<u8>, value: u64) {
    let (high, low) = (value / EIGHT_DIGITS, value % EIGHT_DIGITS);
    if high < EIGHT_DIGITS {
        short_decimal(out, high);
    } else {
        short_decimal(out, high / EIGHT_DIGITS);
        out.extend_from_slice(&eight_digits(high % EIGHT_DIGITS).to_le_bytes());
    }
    out.extend_from_slice(&eight_digits(low).to_le_bytes());
}

/// The number of zeros after the last other digit of six digits, which are the lowest bytes.
#[inline(always)]
pub(super) fn trailing_zeros(digits: u64) -> usize {
    let others = (digits ^ ZEROS) & (u64::MAX >> 16);
    let zeros = (others.leading_zeros() - 16) / 8;
    usize::try_from(zeros).unwrap_or(0)
}

/// A number that is rounded to six digits: `0.123456` is 123456 and the exponent -1.
#[derive(Debug, Clone, Copy)]
pub(super) struct SixDigits {
    pub(super) digits: u64,
    /// The power of ten of the first digit, -4 to 5.
    pub(super) exponent: i32,
}

impl SixDigits {
    /// The six digits of the magnitude of `value`; `None` if that is below 0.0001, or rounded
    /// above 999999.
    pub(super) fn of(value: f64) -> Option<Self> {
        let magnitude = value.abs();
        if !(1e-4..1e6).contains(&magnitude) {
            return None;
        }
        // The value is an integer of 53 bits, divided by 2^32 to 2^66.
        let bits = magnitude.to_bits();
        let integer = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let shift = u32::try_from(1075 - (bits >> 52)).ok()?;
        // Compared with each: that is exact, unlike a logarithm, and has no branch.
        let powers = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4, 1e5];
        let mut exponent = -4;
        for power in powers {
            exponent += i32::from(magnitude >= power);
        }
        let scaled = integer * 10_u128.pow(u32::try_from(5 - exponent).ok()?);
        let (mut digits, rest) = (scaled >> shift, scaled & ((1 << shift) - 1));
        let half = 1 << (shift - 1);
        // A half goes to the even digit, as `printf` of C rounds.
        if rest > half || rest == half && digits & 1 == 1 {
            digits += 1;
        }
        // A power of ten that is no binary number may have been passed by rounding: that is left to
        // others.
        let is_normal = (100_000..1_000_000).contains(&digits);
        let digits = u64::try_from(digits).ok()?;
        is_normal.then_some(Self { digits, exponent })
    }
}

/// The text `00000000` as a number whose lowest byte is the first character.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number below 100,000,000 as text, whose first character is the lowest
/// byte. All digits are found at once, by multiplications of the parts of a word: of four digits,
/// then of two, then of one.
#[inline(always)]
pub(super) fn eight_digits(value: u64) -> u64 {
    let fours = (value / 10_000) | ((value % 10_000) << 32);
    // 10486 / 2^20 and 103 / 2^10 are 1 / 100 and 1 / 10 as exactly as these digits need.
    let hundreds = ((fours * 10_486) >> 20) & 0x7F_0000_007F;
    let twos = hundreds | ((fours - 100 * hundreds) << 16);
    let tens = ((twos * 103) >> 10) & 0x000F_000F_000F_000F;
    ZEROS | tens | ((twos - 10 * tens) << 8)
}

/// The low bits of a number: `bits` of them, rounded up to whole digits of `digit` bits.
pub(super) fn low(value: u64, bits: u8, digit: u32) -> u64 {
    let kept = u32::from(bits).div_ceil(digit) * digit;
    if kept >= 64 {
        value
    } else {
        value & ((1 << kept) - 1)
    }
}

/// The eight hexadecimal digits of a number below 2^32 as text, whose first character is the lowest
/// byte.
#[inline(always)]
pub(super) fn hexadecimal_digits(value: u64) -> u64 {
    // One digit for each byte, the last in the lowest.
    let fours = (value | value << 16) & 0x0000_FFFF_0000_FFFF;
    let twos = (fours | fours << 8) & 0x00FF_00FF_00FF_00FF;
    let ones = (twos | twos << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    // 1 for each digit above 9, which is a letter: `A` is 7 after the character that follows `9`.
    let letters = (ones + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (ZEROS + ones + 7 * letters).swap_bytes()
}

/// Writes a number in base 8, with `0` in front.
pub(super) fn octal(out: &mut Vec<u8>, value: u64) {
    out.push(b'0');
    digits(out, value, 3);
}

/// `0b` and exactly `bits` digits.
pub(super) fn binary(out: &mut Vec<u8>, value: u64, bits: u8) {
    out.extend_from_slice(b"0b");
    for place in (0..bits).rev() {
        out.push(if value >> place & 1 == 1 { b'1' } else { b'0' });
    }
}

fn digits(out: &mut Vec<u8>, value: u64, bits: u32) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut shift = (64 - value.leading_zeros()).max(1).div_ceil(bits) * bits;
    while shift > 0 {
        shift -= bits;
        let digit = value >> shift & ((1 << bits) - 1);
        let digit = usize::try_from(digit).ok();
        out.push(
            digit
                .and_then(|digit| DIGITS.get(digit))
                .copied()
                .unwrap_or(b'?'),
        );
    }
}

/// Writes a number like `%g`: six significant digits, an exponent where it is below -4 or above 5,
/// no trailing zeros.
pub(super) fn general(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        let text: &[u8] = if value.is_sign_negative() {
            b"-nan"
        } else {
            b"nan"
        };
        out.extend_from_slice(text);
        return;
    }
    if value.is_infinite() {
        let text: &[u8] = if value < 0.0 { b"-inf" } else { b"inf" };
        out.extend_from_slice(text);
        return;
    }
    // One digit, five after the point, and the exponent: "-1.23456e-7".
    let mut scientific = [0_u8; 32];
    let mut cursor = &mut scientific[..];
    // The buffer has room for the longest number.
    let _ = write!(cursor, "{value:.5e}");
    let left = cursor.len();
    let text = scientific
        .get(..scientific.len() - left)
        .unwrap_or_default();
    let text = std::str::from_utf8(text).unwrap_or_default();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    out.extend_from_slice(sign.as_bytes());
    let significant = mantissa.trim_end_matches('0').trim_end_matches('.');
    if !(-4..6).contains(&exponent) {
        out.extend_from_slice(significant.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.unsigned_abs());
        return;
    }
    let plain = significant.bytes().filter(|byte| *byte != b'.');
    let Ok(whole) = usize::try_from(exponent + 1) else {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(
            b'0',
            usize::try_from(-exponent - 1).unwrap_or(0),
        ));
        out.extend(plain);
        return;
    };
    if whole == 0 {
        out.extend_from_slice(b"0.");
        out.extend(plain);
        return;
    }
    let mut count = 0;
    for digit in plain {
        if count == whole {
            out.push(b'.');
        }
        out.push(digit);
        count += 1;
    }
    out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(count)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_of_any_length_are_written_in_text_with_all_digits() {
        let mut values = vec![0, u64::MAX, 1 << 63, 104_729 * 104_723];
        for power in 0..20 {
            let power = 10_u64.pow(power);
            values.extend([power - 1, power, power + 1, power / 10 * 9, power / 3]);
        }
        values.extend((0..EIGHT_DIGITS).step_by(9973));
        for value in values {
            assert_eq!(text(|out| decimal(out, value)), value.to_string());
            let nine = value % 1_000_000_000;
            assert_eq!(text(|out| nine_digits(out, nine)), format!("{nine:09}"));
        }
    }

    #[test]
    fn floats_are_written_in_text_as_printf_does() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (12.345_678, "12.3457"),
            (1e6, "1e+06"),
            (999_999.4, "999999"),
            (999_999.6, "1e+06"),
            (123_456.0, "123456"),
            (100.0, "100"),
            (0.1, "0.1"),
            (0.01, "0.01"),
            (0.000_123_456, "0.000123456"),
            (0.000_012_345, "1.2345e-05"),
            (-1.5e-300, "-1.5e-300"),
            (1.0e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(|out| general(out, value)), want, "{value:e}");
        }
        assert_eq!(text(|out| general(out, f64::NAN.copysign(-1.0))), "-nan");
    }

    #[test]
    fn integers_in_text_have_the_prefix_of_their_base() {
        assert_eq!(text(|out| octal(out, 0)), "00");
        assert_eq!(text(|out| octal(out, 0o777)), "0777");
        assert_eq!(text(|out| binary(out, 5, 5)), "0b00101");
        assert_eq!(low(u64::MAX, 5, 4), 0xFF);
        assert_eq!(low(u64::MAX, 8, 3), 0o777);
        assert_eq!(low(u64::MAX, 64, 3), u64::MAX);
    }
}
