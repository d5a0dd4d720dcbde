//! The values of words, numbers, strings and character constants, by their spelling.

use std::sync::Arc;

/// An identifier: as spelled, but with `\uXXXX` and `\UXXXXXXXX` replaced.
pub(super) fn word(spelling: &[u8]) -> Result<Arc<str>, String> {
    let text = String::from_utf8_lossy(spelling);
    if !text.contains('\\') {
        return Ok(text.into());
    }
    let mut word = String::new();
    let mut rest = &*text;
    while let Some((before, escape)) = rest.split_once('\\') {
        let digits = if escape.starts_with('u') { 5 } else { 9 };
        let escaped = (escape.get(1..digits))
            .filter(|_| escape.starts_with(['u', 'U']))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .and_then(char::from_u32)
            .filter(|escaped| escaped.is_alphanumeric())
            .ok_or_else(|| format!("`{text}` is no name"))?;
        word.push_str(before);
        word.push(escaped);
        rest = escape.get(digits..).unwrap_or_default();
    }
    word.push_str(rest);
    Ok(word.into())
}

/// Decimal, octal or hexadecimal, with the suffixes of C.
pub(super) fn number(spelling: &[u8]) -> Result<u64, String> {
    let text = String::from_utf8_lossy(spelling);
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = text
        .get(digits.len()..)
        .unwrap_or_default()
        .to_ascii_lowercase();
    // All suffixes of C, though babeltrace2 2.0.4 refuses a lone `L`.
    let known = ["", "u", "l", "ul", "lu", "ll", "ull", "llu"].contains(&&*suffix);
    let (digits, radix) = if let Some(digits) = digits
        .strip_prefix("0x")
        .or_else(|| digits.strip_prefix("0X"))
    {
        (digits, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    if !known || digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("`{text}` is no number"));
    }
    u64::from_str_radix(digits, radix).map_err(|_| format!("{text} is above 64 bits"))
}

/// The text between quotation marks, escapes replaced. Bytes that are not UTF-8 are replaced.
pub(super) fn text(spelling: &[u8]) -> Result<Arc<str>, String> {
    Ok(String::from_utf8_lossy(&unescaped(spelling)?).into())
}

/// The code point of a character constant.
pub(super) fn character(spelling: &[u8]) -> Result<u64, String> {
    match unescaped(spelling)?.as_slice() {
        [byte] => Ok(u64::from(*byte)),
        bytes => std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.chars().count() == 1)
            .and_then(|text| text.chars().next())
            .map(|character| u64::from(u32::from(character)))
            .ok_or_else(|| "one character is expected between single quotes".to_owned()),
    }
}

fn unescaped(spelling: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(spelling.len());
    let mut rest = spelling;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        let Some((escape, after)) = rest.split_first() else {
            break;
        };
        bytes.push(match escape {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0B,
            b'\\' | b'\'' | b'"' | b'?' => *escape,
            b'0'..=b'7' => {
                bytes.push(numbered(&mut rest, 8, 3)?);
                continue;
            }
            b'x' => {
                rest = after;
                bytes.push(numbered(&mut rest, 16, usize::MAX)?);
                continue;
            }
            _ => return Err(format!("`\\{}` is no escape", char::from(*escape))),
        });
        rest = after;
    }
    Ok(bytes)
}

/// Takes the digits of an escape, at most `max_digits`.
fn numbered(rest: &mut &[u8], radix: u32, max_digits: usize) -> Result<u8, String> {
    let count = rest
        .iter()
        .take(max_digits)
        .take_while(|byte| char::from(**byte).is_digit(radix))
        .count();
    let (digits, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
    *rest = after;
    if digits.is_empty() {
        return Err("an escape without digits".to_owned());
    }
    let digits = String::from_utf8_lossy(digits);
    u8::from_str_radix(&digits, radix).map_err(|_| format!("an escape of {digits}, above 255"))
}
