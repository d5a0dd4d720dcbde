//! The names of definitions, for the fields that people read.

use std::ops::Range;

/// Bytes of all names that are kept, for each kind of definition. Later ones are known by their
/// numbers only.
const MAX_NAME_BYTES: usize = 16 << 20;

/// The names of the definitions of one kind, by position.
#[derive(Debug, Default)]
pub(super) struct Names {
    count: u64,
    text: String,
    ranges: Vec<Range<usize>>,
}

impl Names {
    /// The number of definitions, which is the position of the next one.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Adds the next definition.
    pub(super) fn add(&mut self, name: &str) {
        // Each range counts, too: names may be empty.
        let used = self.text.len() + size_of_val(&*self.ranges);
        // After a name that was not kept, none is: its position would be wrong.
        let is_gapless = self.ranges.len() as u64 == self.count;
        if is_gapless && used + name.len() <= MAX_NAME_BYTES {
            let begin = self.text.len();
            self.text.push_str(name);
            self.ranges.push(begin..self.text.len());
        }
        self.count += 1;
    }

    /// The name of a definition; empty if there is none or it was not kept.
    pub(super) fn get(&self, position: u64) -> &str {
        usize::try_from(position)
            .ok()
            .and_then(|position| self.ranges.get(position))
            .and_then(|range| self.text.get(range.clone()))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted_and_not_kept() {
        let mut names = Names::default();
        names.add("first");
        names.add(&"x".repeat(MAX_NAME_BYTES));
        names.add("third");
        assert_eq!((names.count(), names.get(0)), (3, "first"));
        assert_eq!(
            (names.get(1), names.get(2), names.get(u64::MAX)),
            ("", "", "")
        );
    }
}
