//! Identifiers and quoted strings of TSDL.

use std::fmt::Write;

/// A string with its quotation marks.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // A NUL would end the string for most readers.
            '\0' => out.push(char::REPLACEMENT_CHARACTER),
            '\u{1}'..='\u{1f}' | '\u{7f}' => {
                // Always three digits, so that a digit after the escape does not become part of
                // it.
                let _ = write!(out, "\\{:03o}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// A name of which only letters, digits and underscores are left. May begin with a digit.
pub(super) fn identifier(name: &str) -> String {
    let kept = |character: char| {
        if character.is_ascii_alphanumeric() {
            character
        } else {
            '_'
        }
    };
    name.chars().map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_end_or_change_a_tsdl_string_are_escaped() {
        assert_eq!(
            quoted("a\"b\\c\n\t\x1b7\x7f\0é"),
            r#""a\"b\\c\n\t\0337\177�é""#
        );
    }

    #[test]
    fn a_tsdl_identifier_keeps_letters_and_digits() {
        assert_eq!(identifier("http.status-2é"), "http_status_2_");
    }
}
