//! Names, each with a number by which others refer to it.

use std::collections::HashMap;
use std::sync::Arc;

/// Largest number of names. Further ones have the number of [`OTHER`].
pub const MAX_NAMES: usize = 1 << 16;
/// Largest number of characters of a name; the rest is cut off.
pub const MAX_NAME_CHARACTERS: usize = 200;
/// The name of what has none of its own.
pub const OTHER: &str = "<other>";
/// What is shown for an empty name.
const UNNAMED: &str = "<unnamed>";

/// All names, which are never removed.
#[derive(Debug, Default)]
pub struct NameNumbers {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    is_full: bool,
}

impl NameNumbers {
    /// The number of a name, which is added if it is a new one.
    pub fn number(&mut self, name: &str) -> u32 {
        let name = shortened(name);
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        self.is_full = self.names.len() >= MAX_NAMES;
        let name = match self.is_full {
            false => name,
            // Names are never removed, because others refer to them by number.
            true => OTHER,
        };
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let name: Arc<str> = name.into();
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// Whether there was a name beyond the limit, which has the number of [`OTHER`].
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The name of this number, as it is shown.
    pub fn shown(&self, number: u32) -> &str {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        match self.names.get(place).map_or(OTHER, |name| name) {
            "" => UNNAMED,
            name => name,
        }
    }

    /// The names from this number on.
    pub fn from(&self, number: usize) -> &[Arc<str>] {
        self.names.get(number..).unwrap_or_default()
    }
}

/// The beginning of a name that is not too long.
pub fn shortened(name: &str) -> &str {
    first_characters(name, MAX_NAME_CHARACTERS)
}

/// The beginning of a name: at most `max` characters.
pub(super) fn first_characters(name: &str, max: usize) -> &str {
    // No character has less than one byte.
    if name.len() <= max {
        return name;
    }
    let end = name.char_indices().nth(max);
    name.get(..end.map_or(name.len(), |(end, _)| end))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_length_of_names_are_limited() {
        let mut names = NameNumbers::default();
        assert_eq!(names.number("a"), 0);
        assert_eq!(names.number(&"é".repeat(1000)), 1);
        assert!(!names.is_full());
        assert_eq!(names.from(1)[0].chars().count(), MAX_NAME_CHARACTERS);
        for number in 0..2 * MAX_NAMES {
            names.number(&number.to_string());
        }
        assert!(names.is_full());
        assert_eq!(names.from(0).len(), MAX_NAMES + 1);
        assert_eq!(names.from(MAX_NAMES), [OTHER.into()]);
        assert_eq!(names.number("a"), 0);
        assert_eq!(names.from(usize::MAX), []);
        assert_eq!((names.shown(0), names.shown(u32::MAX)), ("a", OTHER));
    }

    #[test]
    fn an_empty_name_is_shown_as_that_of_unnamed_spans() {
        let mut names = NameNumbers::default();
        let number = names.number("");
        assert_eq!(names.shown(number), UNNAMED);
    }
}
