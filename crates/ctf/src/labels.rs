//! The labels of enumerations and bit maps.

use std::sync::Arc;

use crate::lookup::AllMatches;

/// A label of an enumeration with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name as written in the metadata, with its underscores.
    pub name: Arc<str>,
    /// First and last value of each range, both included.
    pub ranges: Vec<(i128, i128)>,
}

/// The labels of an enumeration, in order of first declaration. Ranges may overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels {
    labels: Vec<Label>,
    lookup: AllMatches,
}

/// Largest number of ranges that are compared one by one: for so few that is faster than a search,
/// and takes no memory.
const MAX_RANGES_COMPARED: usize = 16;

impl Labels {
    /// Prepares the labels of an enumeration, or of the flags of a bit map, for lookup.
    #[must_use]
    pub fn new(labels: Vec<Label>) -> Self {
        let lookup = AllMatches::new(labels.iter().map(|label| label.ranges.as_slice()));
        Self { labels, lookup }
    }

    /// The labels in order of first declaration.
    #[must_use]
    pub fn as_slice(&self) -> &[Label] {
        &self.labels
    }

    /// The labels of `value`, in order of first declaration.
    pub fn of(&self, value: i128) -> impl Iterator<Item = &str> {
        self.containing([value])
    }

    /// The labels that have a bit that is set in `bits` in one of their ranges, in order of first
    /// declaration. Bits are numbered from 0, the least significant.
    pub fn of_bits(&self, bits: u64) -> impl Iterator<Item = &str> {
        let set = (0..64_u32).filter(move |place| bits >> place & 1 == 1);
        self.containing(set.map(i128::from))
    }

    /// The labels of any of these values.
    fn containing(
        &self,
        values: impl IntoIterator<Item = i128> + Clone,
    ) -> impl Iterator<Item = &str> {
        // `values` is cloned below, which is cheap: one number, or the bits of one.
        let is_short = self.lookup.len() <= MAX_RANGES_COMPARED;
        let mut found = Vec::new();
        if !is_short {
            for value in values.clone() {
                self.lookup.find(value, &mut found);
            }
            found.sort_unstable();
            found.dedup();
        }
        let found = found.into_iter();
        let found = found.filter_map(|place| self.labels.get(usize::try_from(place).ok()?));
        // One of the two iterators is empty: chained, both ways have the same type and need no
        // `Box`.
        let compared = self
            .labels
            .iter()
            .take(if is_short { usize::MAX } else { 0 });
        let compared = compared.filter(move |label| {
            let mut values = values.clone().into_iter();
            values.any(|value| {
                let mut ranges = label.ranges.iter();
                ranges.any(|(low, high)| (*low..=*high).contains(&value))
            })
        });
        compared.chain(found).map(|label| &*label.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(sets: &[Vec<(i128, i128)>]) -> Labels {
        let label = |(number, ranges): (usize, &Vec<_>)| Label {
            name: number.to_string().into(),
            ranges: ranges.clone(),
        };
        Labels::new(sets.iter().enumerate().map(label).collect())
    }

    fn slowly(labels: &Labels, value: i128) -> Vec<&str> {
        let is_one = |label: &&Label| {
            let mut ranges = label.ranges.iter();
            ranges.any(|(low, high)| (*low..=*high).contains(&value))
        };
        let found = labels.as_slice().iter().filter(is_one);
        found.map(|label| &*label.name).collect()
    }

    proptest! {
        #[test]
        fn label_lookup_gives_what_a_linear_search_gives_in_declaration_order(
            sets in prop::collection::vec(
                prop::collection::vec((-8..70_i128, 0..9_i128), 0..4), 0..24),
            values in prop::collection::vec(-10..80_i128, 8),
            bits: u64,
        ) {
            let range = |&(low, length): &(i128, i128)| (low, low + length);
            let sets: Vec<Vec<_>> = sets.iter().map(|set| set.iter().map(range).collect()).collect();
            let labels = labels(&sets);
            for value in values {
                let found: Vec<_> = labels.of(value).collect();
                prop_assert_eq!(found, slowly(&labels, value));
            }
            let set: Vec<_> = (0..64).filter(|place| bits >> place & 1 == 1).collect();
            let slow = labels.as_slice().iter().filter(|label| {
                set.iter().any(|place| slowly(&labels, *place).contains(&&*label.name))
            });
            let slow: Vec<_> = slow.map(|label| &*label.name).collect();
            prop_assert_eq!(labels.of_bits(bits).collect::<Vec<_>>(), slow);
        }
    }
}
