//! Characters of a trace that a terminal must not interpret.

/// Returns `text` with each control character replaced, so that no name from a trace moves the
/// cursor.
pub fn printable(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|char| {
        if char.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            char
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c0_and_c1_control_characters_are_replaced_on_terminals() {
        let shown: String = printable("a\u{1b}[2J\u{9b}é\n").collect();
        assert_eq!(shown, "a\u{fffd}[2J\u{fffd}é\u{fffd}");
    }
}
