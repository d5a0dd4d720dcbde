//! The values of words, numbers, strings and character constants, by their spelling.

use std::sync::Arc;

use crate::metadata::warning::Deviation;

/// Called with each deviation of a spelling, and with what it is.
pub(super) type Report<'a> = &'a mut dyn FnMut(Deviation, String);

/// An identifier: as spelled, but with `\uXXXX` and `\UXXXXXXXX` replaced.
pub(super) fn word(spelling: &[u8]) -> Result<Arc<str>, String> {
    // Lossless: the lexer takes words of ASCII only.
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

/// Decimal, octal or hexadecimal, with the suffixes of C; also binary, which CTF 1.8 does not have.
pub(super) fn number(spelling: &[u8], deviates: Report<'_>) -> Result<u64, String> {
    let text = String::from_utf8_lossy(spelling);
    // No digit of any base is among these letters.
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = text
        .get(digits.len()..)
        .unwrap_or_default()
        .to_ascii_lowercase();
    // All suffixes of C, though babeltrace2 2.0.4 refuses a lone `L`.
    let known = ["", "u", "l", "ul", "lu", "ll", "ull", "llu"].contains(&&*suffix);
    let after = |prefixes: [&str; 2]| {
        prefixes
            .iter()
            .find_map(|prefix| digits.strip_prefix(*prefix))
    };
    let (digits, radix) = if let Some(digits) = after(["0x", "0X"]) {
        (digits, 16)
    } else if let Some(digits) = after(["0b", "0B"]) {
        (digits, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (digits, 8)
    } else {
        (digits, 10)
    };
    if !known || digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("`{text}` is no number"));
    }
    if radix == 2 {
        deviates(Deviation::BinaryNumber, format!("`{text}` is binary"));
    }
    u64::from_str_radix(digits, radix).map_err(|_| format!("{text} is above 64 bits"))
}

/// The text between quotation marks, escapes replaced. Bytes that are not UTF-8 are replaced. As in
/// C, an escaped NUL ends it.
pub(super) fn text(spelling: &[u8], deviates: Report<'_>) -> Result<Arc<str>, String> {
    let bytes = unescaped(spelling, deviates)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into())
}

/// The code point of a character constant.
pub(super) fn character(spelling: &[u8], deviates: Report<'_>) -> Result<u64, String> {
    match unescaped(spelling, deviates)?.as_slice() {
        [byte] => Ok(u64::from(*byte)),
        bytes => std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.chars().count() == 1)
            .and_then(|text| text.chars().next())
            .map(|character| u64::from(u32::from(character)))
            .ok_or_else(|| "one character is expected between single quotes".to_owned()),
    }
}

fn unescaped(spelling: &[u8], deviates: Report<'_>) -> Result<Vec<u8>, String> {
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
                bytes.push(numbered(&mut rest, 8, deviates)?);
                continue;
            }
            b'x' => {
                rest = after;
                bytes.push(numbered(&mut rest, 16, deviates)?);
                continue;
            }
            _ => {
                let what = format!("`\\{}` is no escape of C", escape.escape_ascii());
                deviates(Deviation::Escape, what);
                *escape
            }
        });
        rest = after;
    }
    Ok(bytes)
}

/// Takes the digits of an escape: three at most, of a hexadecimal one all if their value is that of
/// a byte. Of a larger value the low 8 bits count. (babeltrace2 2.0.4; in C the escape is an error)
fn numbered(rest: &mut &[u8], radix: u32, deviates: Report<'_>) -> Result<u8, String> {
    let is_digit = |byte: &&u8| char::from(**byte).is_digit(radix);
    let all = rest.iter().take_while(is_digit).count();
    if all == 0 {
        return Err("an escape without digits".to_owned());
    }
    let value = |count: usize| {
        let digits = String::from_utf8_lossy(rest.get(..count).unwrap_or_default());
        u64::from_str_radix(&digits, radix).unwrap_or(u64::MAX)
    };
    let count = if radix == 16 && value(all) <= 0xFF {
        all
    } else {
        all.min(3)
    };
    let [byte, high @ ..] = value(count).to_le_bytes();
    if count < all && radix == 16 || high != [0; 7] {
        let shown = if radix == 16 { all } else { count };
        let digits = String::from_utf8_lossy(rest.get(..shown).unwrap_or_default());
        let what = format!("an escape of {digits}, above 255");
        deviates(Deviation::Escape, what);
    }
    *rest = rest.get(count..).unwrap_or_default();
    Ok(byte)
}
