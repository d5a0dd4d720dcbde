//! Annotated hex: the format of the test data of all crates.

use thiserror::Error;

/// The word because of which a text is not annotated hex.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {word:?} is not hex, \"text\" or hex*count")]
pub struct HexError {
    /// The line of the word, from 1; 0 if a section is missing.
    pub line: usize,
    /// The word that is not hex, or the missing section.
    pub word: String,
}

/// Reads annotated hex: pairs of hex digits in words of any length, `"text"` for its characters
/// without blanks, `00*12` for a repeated word; from `#` to the end of the line is a remark.
///
/// ```
/// let bytes = wire::hex::parse("0000 0007  # length\n\"chan_0\" 00*3");
/// assert_eq!(bytes.unwrap(), b"\0\0\0\x07chan_0\0\0\0");
/// ```
///
/// # Errors
/// [`HexError`] for the first word that is none of these.
pub fn parse(text: &str) -> Result<Vec<u8>, HexError> {
    let mut bytes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split_whitespace() {
            let error = || HexError {
                line: number + 1,
                word: word.to_owned(),
            };
            let (unit, count) = match word.split_once('*') {
                Some((unit, count)) => (unit, count.parse().map_err(|_| error())?),
                None => (word, 1),
            };
            let unit = bytes_of(unit).ok_or_else(error)?;
            // Test data is trusted: its counts have no limit.
            (0..count).for_each(|_| bytes.extend_from_slice(&unit));
        }
    }
    Ok(bytes)
}

/// The bytes of one section of a file that holds several: what stands between the line `[name]`
/// and the next such line.
///
/// ```
/// let file = "[hello]\n0001  # greeting\n[bye]\n0002\n";
/// assert_eq!(wire::hex::section(file, "bye").unwrap(), [0, 2]);
/// ```
///
/// # Errors
/// [`HexError`] with line 0 if there is no such section, or as [`parse`].
pub fn section(file: &str, name: &str) -> Result<Vec<u8>, HexError> {
    let is_head = |line: &&str| line.starts_with('[');
    let wanted =
        |line: &&str| line.strip_prefix('[').and_then(|l| l.split(']').next()) == Some(name);
    let mut lines = file.lines();
    lines.find(wanted).ok_or_else(|| HexError {
        line: 0,
        word: format!("[{name}]"),
    })?;
    let body: Vec<_> = lines.take_while(|line| !is_head(line)).collect();
    parse(&body.join("\n"))
}

fn bytes_of(word: &str) -> Option<Vec<u8>> {
    if let Some(text) = word.strip_prefix('"') {
        return Some(text.strip_suffix('"')?.as_bytes().to_vec());
    }
    // Other characters have several bytes, which a slice of two bytes would cut.
    if !word.is_ascii() || !word.len().is_multiple_of(2) {
        return None;
    }
    (0..word.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_not_hex_is_reported_with_its_line() {
        for (text, line, word) in [
            ("00 0", 1, "0"),
            ("00\nzz", 2, "zz"),
            ("00*x", 1, "00*x"),
            ("\"a", 1, "\"a"),
        ] {
            assert_eq!(
                parse(text),
                Err(HexError {
                    line,
                    word: word.to_owned()
                })
            );
        }
    }
}
