//! The streams that have an event, the earliest first.
//!
//! A winner tree: a complete binary tree whose leaves are the slots of the streams. Each inner node
//! is the smaller of its two children, and the root the smallest of all. A new place of one stream
//! is compared once at each level.

use super::order::Place;

/// The place of the next event or loss of each stream that has one.
#[derive(Debug, Default)]
pub(super) struct ReadyStreams {
    /// The root at 1, the children of the node at `n` at `2 * n` and `2 * n + 1`, the leaves in the
    /// second half. Empty, or a power of two of at least 2.
    nodes: Vec<Place>,
}

impl ReadyStreams {
    /// The earliest place; [`Place::NONE`] if no stream is ready.
    #[inline]
    pub(super) fn first(&self) -> Place {
        self.nodes.get(1).copied().unwrap_or(Place::NONE)
    }

    /// Whether no stream is ready.
    pub(super) fn is_empty(&self) -> bool {
        self.first() == Place::NONE
    }

    /// Adds a stream, or replaces its place.
    pub(super) fn insert(&mut self, place: Place) {
        let leaves = self.nodes.len() / 2;
        let needed = (place.slot() + 1).next_power_of_two();
        if needed > leaves {
            // Slots keep their numbers: the old leaves become the first of the new ones.
            let old = self.nodes.split_off(leaves);
            self.nodes = vec![Place::NONE; needed];
            self.nodes.extend(old);
            self.nodes.resize(2 * needed, Place::NONE);
            self.fill_inner_nodes();
        }
        self.replace(place);
    }

    /// Replaces the place of a stream that is ready.
    #[inline]
    pub(super) fn replace(&mut self, place: Place) {
        self.set(place.slot(), place);
    }

    /// Removes the stream at this slot.
    pub(super) fn remove(&mut self, slot: usize) {
        self.set(slot, Place::NONE);
    }

    /// Replaces the places of all streams that are ready.
    pub(super) fn replace_all(&mut self, new: impl Fn(Place) -> Place) {
        let leaves = self.nodes.len() / 2;
        for place in self.nodes.iter_mut().skip(leaves) {
            if *place != Place::NONE {
                *place = new(*place);
            }
        }
        self.fill_inner_nodes();
    }

    #[inline]
    fn set(&mut self, slot: usize, place: Place) {
        let mut first = place;
        let mut at = self.nodes.len() / 2 + slot;
        while at > 1 {
            // The two children of a node differ in the lowest bit of their numbers.
            let (Some(node), other) = (self.nodes.get_mut(at), at ^ 1) else {
                return;
            };
            *node = first;
            let Some(other) = self.nodes.get(other) else {
                return;
            };
            first = first.earlier(*other);
            at /= 2;
        }
        if let Some(root) = self.nodes.get_mut(1) {
            *root = first;
        }
    }

    fn fill_inner_nodes(&mut self) {
        for at in (1..self.nodes.len() / 2).rev() {
            let children = self.nodes.get(2 * at..2 * at + 2).unwrap_or_default();
            let first = children.iter().min().copied();
            if let (Some(node), Some(first)) = (self.nodes.get_mut(at), first) {
                *node = first;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::time::Nanoseconds;

    #[test]
    fn no_stream_is_ready_before_the_first_and_after_the_last() {
        let mut ready = ReadyStreams::default();
        assert!(ready.is_empty());
        for slot in [0, 5, 70] {
            let place = Place::new(Nanoseconds::new(3), 1, slot);
            ready.insert(place);
            assert_eq!(ready.first(), place);
            ready.remove(slot);
            assert!(ready.is_empty());
        }
        ready.remove(1000);
        assert!(ready.is_empty());
    }

    proptest! {
        #[test]
        fn the_first_stream_that_is_ready_is_the_smallest_place(
            steps in proptest::collection::vec((0_usize..20, any::<bool>(), -3_i64..3, 0_u32..3), 1..200),
        ) {
            let mut ready = ReadyStreams::default();
            let mut naive = BTreeMap::new();
            for (slot, is_ready, time, rank) in steps {
                let place = Place::new(Nanoseconds::new(time), rank, slot);
                if is_ready {
                    ready.insert(place);
                    naive.insert(slot, place);
                } else {
                    ready.remove(slot);
                    naive.remove(&slot);
                }
                let first = naive.values().min().copied();
                prop_assert_eq!(ready.first(), first.unwrap_or(Place::NONE));
            }
            let later = |place: Place| {
                let time = place.time().unwrap().get();
                place.at(Nanoseconds::new(7 - time))
            };
            ready.replace_all(later);
            let first = naive.values().map(|place| later(*place)).min();
            prop_assert_eq!(ready.first(), first.unwrap_or(Place::NONE));
        }
    }
}
