//! JSON, written piece by piece into a buffer. Nothing is allocated but the buffer.

use std::io::Write;

/// Writes `text` as a JSON string, quotes included.
pub fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escaped(text, out);
    out.push(b'"');
}

/// Writes `bytes` as a JSON string. What is no UTF-8 becomes U+FFFD.
pub fn lossy_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for chunk in bytes.utf8_chunks() {
        escaped(chunk.valid(), out);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
    out.push(b'"');
}

/// Writes `text` as it stands inside a JSON string.
pub fn escaped(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    // Most text has nothing to escape: it is copied in runs, not byte by byte.
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        let (plain, after) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((special, after)) = after.split_first() else {
            return;
        };
        let (special, after) = match (special, after) {
            (0xC2, [control @ 0x80..=0x9F, after @ ..]) => (control, after),
            (0xC2, _) => {
                out.push(*special);
                rest = after;
                continue;
            }
            _ => (special, after),
        };
        let short = match special {
            b'"' => Some(b'"'),
            b'\\' => Some(b'\\'),
            b'\n' => Some(b'n'),
            b'\r' => Some(b'r'),
            b'\t' => Some(b't'),
            _ => None,
        };
        match short {
            Some(short) => out.extend_from_slice(&[b'\\', short]),
            None => {
                out.extend_from_slice(b"\\u00");
                hex(&[*special], out);
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Whether a byte may have to be written as an escape. JSON allows DEL and the controls up to
/// U+009F, whose first byte is 0xC2, but a terminal would act on them.
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\' | 0x7F | 0xC2)
}

/// Writes `true` or `false`.
pub fn boolean(value: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Writes a whole number.
pub fn integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes a floating point number with the digits that distinguish it from its neighbours; as
/// string if it is not finite, because JSON has no such numbers.
pub fn float(value: f64, bits: u8, out: &mut Vec<u8>) {
    let written = if value.is_nan() {
        out.write_all(b"\"nan\"")
    } else if value.is_infinite() {
        let text: &[u8] = if value > 0.0 { b"\"inf\"" } else { b"\"-inf\"" };
        out.write_all(text)
    } else if bits == 32 {
        #[expect(clippy::cast_possible_truncation, reason = "it came from 32 bits")]
        let single = value as f32;
        write!(out, "{single:?}")
    } else {
        // `Debug` writes very large and very small numbers with an exponent; `Display` would write
        // hundreds of digits.
        write!(out, "{value:?}")
    };
    debug_assert!(written.is_ok(), "a buffer in memory takes everything");
}

/// Writes two hexadecimal digits for each byte, without quotes.
pub fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    let digit = |value: u8| match value {
        0..=9 => b'0' + value,
        _ => b'a' + (value - 10),
    };
    for byte in bytes {
        out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: f64, bits: u8) -> String {
        let mut out = Vec::new();
        float(value, bits, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn controls_that_a_terminal_would_act_on_are_escaped() {
        let text = "\u{7f}\u{80}\u{9b}2J\u{9f}\u{a0}µÂé\u{1b}";
        let want = r#""\u007f\u0080\u009b2J\u009f"#.to_owned() + "\u{a0}µÂé\\u001b\"";
        let mut out = Vec::new();
        string(text, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    #[test]
    fn floats_are_written_as_json_numbers_or_strings() {
        for (value, bits, want) in [
            (0.1, 64, "0.1"),
            (f64::from(0.1f32), 32, "0.1"),
            (1e300, 64, "1e300"),
            (-2.0, 64, "-2.0"),
            (f64::INFINITY, 64, "\"inf\""),
            (f64::NEG_INFINITY, 32, "\"-inf\""),
            (f64::NAN, 64, "\"nan\""),
        ] {
            assert_eq!(written(value, bits), want);
        }
    }
}
