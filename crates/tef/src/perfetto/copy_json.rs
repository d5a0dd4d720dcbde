//! JSON without the tokens that would end the import of Perfetto.

/// Copies JSON, with the two tokens changed that would end the import: whole numbers beyond 64 bits
/// become strings, and surrogate pairs the characters that they stand for.
pub(super) fn copy_json(json: &str, out: &mut Vec<u8>) {
    const IN_STRING: &[char] = &['"', '\\'];
    const OUTSIDE: &[char] = &['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
    let mut is_in_string = false;
    let mut rest = json;
    while let Some(at) = rest.find(if is_in_string { IN_STRING } else { OUTSIDE }) {
        let (before, token) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let (token, after) = if token.starts_with('"') {
            is_in_string = !is_in_string;
            token.split_at(1)
        } else if !is_in_string {
            let is_end = |c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E');
            token.split_at(token.find(is_end).unwrap_or(token.len()))
        } else if surrogate_pair(token).is_some() {
            token.split_at(PAIR_BYTES)
        } else {
            // What is escaped may be a quotation mark; it is always ASCII.
            token.split_at_checked(2).unwrap_or((token, ""))
        };
        if let Some(character) = surrogate_pair(token) {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else if !is_in_string && is_beyond_64_bits(token) {
            let number = token.parse::<u128>();
            let text = number.map_or_else(|_| token.to_owned(), |value| format!("{value:#x}"));
            out.extend_from_slice(format!("\"{text}\"").as_bytes());
        } else {
            out.extend_from_slice(token.as_bytes());
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Length of two escapes like `\ud83d`.
const PAIR_BYTES: usize = 12;

/// The character of a surrogate pair that `text` begins with.
fn surrogate_pair(text: &str) -> Option<char> {
    let unit = |at: usize| {
        let digits = text.get(at..at + PAIR_BYTES / 2)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0).filter(|unit| (0xD800..0xDC00).contains(unit))?;
    char::decode_utf16([first, unit(PAIR_BYTES / 2)?])
        .next()?
        .ok()
}

/// Whether a token is a whole number that does not fit into an `i64`.
fn is_beyond_64_bits(token: &str) -> bool {
    !token.contains(['.', 'e', 'E', '"']) && token.parse::<i64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_that_would_fail_the_perfetto_import_are_changed() {
        for (json, want) in [
            (r#"{"a":[1,-2.5e3],"b":"1"}"#, r#"{"a":[1,-2.5e3],"b":"1"}"#),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("[9223372036854775808]", r#"["0x8000000000000000"]"#),
            ("[-9223372036854775809]", r#"["-9223372036854775809"]"#),
            (
                "1000000000000000000000000000000000000000",
                r#""1000000000000000000000000000000000000000""#,
            ),
            ("9223372036854775808.5", "9223372036854775808.5"),
            (
                r#""\ud83d\ude00 \\ud83d\ude00 \" 9223372036854775808""#,
                r#""😀 \\ud83d\ude00 \" 9223372036854775808""#,
            ),
            (r#"{"\ud83d\ude00":1}"#, r#"{"😀":1}"#),
            (r#""\ud83dx\"""#, r#""\ud83dx\"""#),
        ] {
            let mut out = Vec::new();
            copy_json(json, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
