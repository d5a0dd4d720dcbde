//! Strings, numbers and words: each function takes the begin of a token and returns its end.
//!
//! What is inlined was measured (`cargo run --release -p tef --example speed`): to carry a `Result`
//! through memory for every token takes a fifth of the time.

use super::error::{Fault, Reason};

/// Eight times the same byte.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}
const HIGH: u64 = each(0x80);

/// Returns the byte there; past the end a NUL, which is nowhere in JSON.
#[inline]
pub(super) fn peek(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

#[inline]
fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*eight))
}

/// The end of the blanks between tokens.
#[inline]
pub(super) fn skip_blanks(bytes: &[u8], at: usize) -> usize {
    // No blank is above the space, so that one comparison is enough for most tokens.
    if peek(bytes, at) > b' ' {
        at
    } else {
        skip_some_blanks(bytes, at)
    }
}

/// Most programs write none.
#[cold]
fn skip_some_blanks(bytes: &[u8], mut at: usize) -> usize {
    while matches!(peek(bytes, at), b' ' | b'\t' | b'\n' | b'\r') {
        at += 1;
    }
    at
}

/// The fault of the byte there, if nothing more is known.
#[cold]
pub(super) fn unexpected(bytes: &[u8], at: usize, wanted: Fault) -> Reason {
    let fault = if at < bytes.len() { wanted } else { Fault::Cut };
    Reason { fault, at }
}

/// The high bit of each byte at which a run of plain text ends: the first is right, those after it
/// need not be.
#[inline]
fn ends_of_plain(word: u64) -> u64 {
    let quote = word ^ each(b'"');
    let backslash = word ^ each(b'\\');
    let is_zero = |of: u64| of.wrapping_sub(each(1)) & !of;
    let is_control = word.wrapping_sub(each(0x20)) & !word;
    (is_zero(quote) | is_zero(backslash) | is_control) & HIGH
}

/// Returns the end of a string. `at` is after the first quotation mark, the end after the last.
#[inline(always)]
pub(super) fn string(bytes: &[u8], mut at: usize, surrogates: &mut bool) -> Result<usize, Reason> {
    loop {
        at = plain(bytes, at);
        if peek(bytes, at) == b'"' {
            return Ok(at + 1);
        }
        at = escape(bytes, at, surrogates)?;
    }
}

/// The end of a name of a member. Most are short, and the same from event to event: a processor
/// predicts where such a name ends, and does not wait for eight bytes to be worked through.
#[inline(always)]
pub(super) fn name(bytes: &[u8], at: usize, surrogates: &mut bool) -> Result<usize, Reason> {
    let rest = bytes.get(at..).unwrap_or_default();
    // Near the end of the line there are fewer: `long_name` reads what is there.
    if let Some(window) = rest.first_chunk::<8>() {
        for (length, byte) in window.iter().enumerate() {
            match byte {
                b'a'..=b'z' | b'_' => {}
                b'"' => return Ok(at + length + 1),
                _ => break,
            }
        }
    }
    long_name(bytes, at, surrogates)
}

/// The end of a name that has more than seven bytes, or others than most names have.
#[inline(never)]
fn long_name(bytes: &[u8], at: usize, surrogates: &mut bool) -> Result<usize, Reason> {
    string(bytes, at, surrogates)
}

/// Where a run of plain text ends.
#[inline]
fn plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = eight(bytes, at) {
        let ends = ends_of_plain(word);
        if ends != 0 {
            return at + (ends.trailing_zeros() >> 3) as usize;
        }
        at += 8;
    }
    // The last bytes, of which there are fewer than eight.
    while !matches!(peek(bytes, at), 0..0x20 | b'"' | b'\\') {
        at += 1;
    }
    at
}

/// Where an escape ends: the only thing in a string that is neither plain nor its end.
fn escape(bytes: &[u8], at: usize, surrogates: &mut bool) -> Result<usize, Reason> {
    // Neither plain nor the end, and no backslash: a control character, or the end of the line.
    if peek(bytes, at) != b'\\' {
        return Err(unexpected(bytes, at, Fault::Control));
    }
    match peek(bytes, at + 1) {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
        b'u' => {
            let unit = code_unit(bytes, at).ok_or_else(|| {
                let missing = (at + 2..at + 6).find(|at| !peek(bytes, *at).is_ascii_hexdigit());
                unexpected(bytes, missing.unwrap_or(at), Fault::Escape)
            })?;
            *surrogates |= unit & 0xF800 == 0xD800;
            Ok(at + 6)
        }
        _ => Err(unexpected(bytes, at + 1, Fault::Escape)),
    }
}

/// The UTF-16 code unit that `\u....` at this place stands for.
pub(crate) fn code_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let [b'\\', b'u', digits @ ..] = bytes.get(at..at.checked_add(6)?)? else {
        return None;
    };
    digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    })
}

/// The end of a run of digits. One by one, because most runs are short, as for [`name`].
#[inline]
fn digits(bytes: &[u8], mut at: usize) -> usize {
    while peek(bytes, at).is_ascii_digit() {
        at += 1;
    }
    at
}

/// The end of a number. `at` is its minus sign or its first digit.
#[inline]
pub(super) fn number(bytes: &[u8], at: usize) -> Result<usize, Reason> {
    let first = at + usize::from(peek(bytes, at) == b'-');
    let mut end = digits(bytes, first);
    // JSON has no leading zeros (RFC 8259, section 6).
    if end == first || (peek(bytes, first) == b'0' && end > first + 1) {
        return Err(unexpected(bytes, first, Fault::Number));
    }
    if peek(bytes, end) == b'.' {
        let fraction = end + 1;
        end = digits(bytes, fraction);
        if end == fraction {
            return Err(unexpected(bytes, fraction, Fault::Number));
        }
    }
    if peek(bytes, end) | 0x20 == b'e' {
        let sign = end + 1;
        let power = sign + usize::from(matches!(peek(bytes, sign), b'+' | b'-'));
        end = digits(bytes, power);
        if end == power {
            return Err(unexpected(bytes, power, Fault::Number));
        }
    }
    Ok(end)
}

/// The end of `true`, `false` or `null`.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Result<usize, Reason> {
    let rest = bytes.get(at..).unwrap_or_default();
    for word in [&b"true"[..], b"false", b"null"] {
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
    }
    Err(unexpected(bytes, at, Fault::Value))
}
