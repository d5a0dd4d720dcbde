//! Strings of JSON as text.

use std::borrow::Cow;

use crate::json::code_unit;

/// The text of a string, given without its quotation marks. `None` if there is half a surrogate
/// pair in it, which no text can have.
pub(super) fn unescaped(string: &str) -> Option<Cow<'_, str>> {
    let Some(first) = memchr::memchr(b'\\', string.as_bytes()) else {
        return Some(Cow::Borrowed(string));
    };
    // A text is never longer than its spelling.
    let mut text = String::with_capacity(string.len());
    let mut at = 0;
    let mut next = Some(first);
    while let Some(escape) = next {
        text.push_str(string.get(at..escape)?);
        let bytes = string.as_bytes();
        at = escape + 2;
        match *bytes.get(escape + 1)? {
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            b'u' => {
                let first = code_unit(bytes, escape)?;
                // 0 is no half of a pair: the first unit is taken alone, or refused.
                let second = code_unit(bytes, escape + 6).unwrap_or(0);
                let character = char::decode_utf16([first, second]).next()?.ok()?;
                text.push(character);
                at = escape + 6 * character.len_utf16();
            }
            // A quotation mark, backslash or slash stands for itself.
            other => text.push(char::from(other)),
        }
        let rest = bytes.get(at..)?;
        next = memchr::memchr(b'\\', rest).map(|offset| at + offset);
    }
    text.push_str(string.get(at..)?);
    Some(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_string_escapes_are_decoded() {
        for (string, want) in [
            ("plain é", Some("plain é")),
            (r#"\"\\\/\b\f\n\r\t"#, Some("\"\\/\u{8}\u{c}\n\r\t")),
            (r"a\u00e9b\u0000c", Some("aéb\0c")),
            (r"\ud83d\ude00!", Some("😀!")),
            (r"\uFFFD\\u00e9", Some("\u{fffd}\\u00e9")),
            (r"\ud83d", None),
            (r"\ud83dx", None),
            (r"\ude00\ud83d", None),
        ] {
            assert_eq!(unescaped(string).as_deref(), want, "{string}");
        }
    }
}
