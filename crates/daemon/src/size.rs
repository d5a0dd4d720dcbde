//! Numbers of bytes, as users write them.

/// Parses a number of bytes: `4096`, `16k`, `32M`, `1G`, with units of 1024.
///
/// # Errors
/// If the text is no such number, or the number of bytes does not fit 64 bits; with a message for
/// the user.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1 << 10),
        Some((at, 'M')) => (text.get(..at), 1 << 20),
        Some((at, 'G')) => (text.get(..at), 1 << 30),
        _ => (Some(text), 1u64),
    };
    digits
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "not a number of bytes, such as 4096, 16k, 32M or 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_have_optional_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("16k", 16 << 10),
            ("32M", 32 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse(text), Ok(bytes));
        }
        for text in ["", "k", "1T", "99999999999G", "-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
