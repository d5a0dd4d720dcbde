//! Which numbers of a stream have been found.

use std::collections::BTreeMap;

/// A set of numbers, as ranges that do not touch: the beginning of each, and the number after its
/// last one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Coverage(BTreeMap<u64, u64>);

impl Coverage {
    /// Adds the numbers from `begin` to before `end`. Returns the ranges that were not in the set.
    pub(crate) fn insert(&mut self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let (mut merged_begin, mut merged_end) = (begin, end);
        let (mut added, mut next) = (Vec::new(), begin);
        if begin >= end {
            return added;
        }
        // Ranges that touch it: the one that begins before it, and those that begin in it.
        let before = self.0.range(..begin).next_back();
        let before = before.filter(|(_, own)| **own >= begin);
        let touched: Vec<_> = before
            .into_iter()
            .chain(self.0.range(begin..=end))
            .map(|(begin, end)| (*begin, *end))
            .collect();
        for (own_begin, own_end) in touched {
            if own_begin > next {
                added.push((next, own_begin.min(end)));
            }
            next = next.max(own_end);
            merged_begin = merged_begin.min(own_begin);
            merged_end = merged_end.max(own_end);
            self.0.remove(&own_begin);
        }
        if next < end {
            added.push((next, end));
        }
        self.0.insert(merged_begin, merged_end);
        added
    }

    /// The ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(begin, end)| (*begin, *end))
    }

    /// The number after those that are in the set from this one on without a gap: the number itself
    /// if it is not in the set.
    pub(crate) fn end_from(&self, number: u64) -> u64 {
        let before = self.0.range(..=number).next_back();
        before.map_or(number, |(_, end)| number.max(*end))
    }

    /// The first number, and the number after the last one. None: the set is empty.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let (first, _) = self.0.first_key_value()?;
        let (_, end) = self.0.last_key_value()?;
        Some((*first, *end))
    }

    /// How many of the numbers from `begin` to before `end` are in the set.
    pub(crate) fn len_within(&self, begin: u64, end: u64) -> u64 {
        let within = self
            .ranges()
            .map(|(own_begin, own_end)| own_end.min(end).saturating_sub(own_begin.max(begin)));
        within.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_those_of_a_set(inserted in prop::collection::vec((0..40_u64, 0..12_u64), 0..20)) {
            let (mut coverage, mut set) = (Coverage::default(), BTreeSet::new());
            for (begin, len) in inserted {
                let end = begin + len;
                let added = coverage.insert(begin, end);
                let mut new = BTreeSet::new();
                for (begin, end) in added {
                    prop_assert!(begin < end);
                    new.extend(begin..end);
                }
                let expected: BTreeSet<_> = (begin..end).filter(|number| set.insert(*number)).collect();
                prop_assert_eq!(new, expected);
            }
            let covered: BTreeSet<_> = coverage.ranges().flat_map(|(begin, end)| begin..end).collect();
            prop_assert_eq!(&covered, &set);
            let within = set.range(5..20).count() as u64;
            prop_assert_eq!(coverage.len_within(5, 20), within);
        }
    }
}
