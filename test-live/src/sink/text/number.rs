//! Numbers as text, as C's `printf` and `babeltrace2` write them.

use std::io::Write;

use super::short;

#[inline]
pub(super) fn decimal(out: &mut Vec<u8>, value: u64) {
    short::push(out, itoa::Buffer::new().format(value).as_bytes());
}

#[inline]
pub(super) fn signed_decimal(out: &mut Vec<u8>, value: i64) {
    short::push(out, itoa::Buffer::new().format(value).as_bytes());
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

/// `0x` and upper case digits.
pub(super) fn hexadecimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    digits(out, value, 4);
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

/// Writes a number like `%g`: six significant digits, an exponent where it is below -4 or above 5, no
/// trailing zeros.
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
        assert_eq!(text(|out| hexadecimal(out, 0)), "0x0");
        assert_eq!(text(|out| hexadecimal(out, 0xABC)), "0xABC");
        assert_eq!(text(|out| octal(out, 0)), "00");
        assert_eq!(text(|out| octal(out, 0o777)), "0777");
        assert_eq!(text(|out| binary(out, 5, 5)), "0b00101");
        assert_eq!(low(u64::MAX, 5, 4), 0xFF);
        assert_eq!(low(u64::MAX, 8, 3), 0o777);
        assert_eq!(low(u64::MAX, 64, 3), u64::MAX);
    }
}
