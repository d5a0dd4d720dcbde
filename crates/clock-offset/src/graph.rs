//! Clocks that were compared with each other, directly or by way of others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::sample::{ClockOffset, ClockSample};
use crate::track::{ClockTrack, OffsetTrack};

/// Clocks as nodes, and their comparisons as edges. A node names a clock and what it counts from:
/// the start of a host (`boot_id`).
#[derive(Debug, Clone)]
pub struct ClockGraph<K, T = OffsetTrack> {
    /// For each clock the clocks that it was compared with.
    tracks: BTreeMap<K, BTreeMap<K, T>>,
}

impl<K, T> Default for ClockGraph<K, T> {
    fn default() -> Self {
        Self {
            tracks: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> ClockGraph<K> {
    /// Adds comparisons of the clock `here`, whose times the samples have, with `there`.
    pub fn add(&mut self, here: &K, there: &K, samples: &[ClockSample]) {
        self.track(here, there).add(samples.iter().copied());
        let reversed = samples.iter().map(|sample| sample.reversed());
        self.track(there, here).add(reversed);
    }

    fn track(&mut self, here: &K, there: &K) -> &mut OffsetTrack {
        let tracks = self.tracks.entry(here.clone()).or_default();
        tracks.entry(there.clone()).or_default()
    }
}

impl<K: Ord + Clone, T: ClockTrack> ClockGraph<K, T> {
    /// Sets what is known of the clock `here`, beside `there`, and the same the other way round.
    pub fn insert(&mut self, here: &K, there: &K, [track, reversed]: [T; 2]) {
        for (from, to, track) in [(here, there, track), (there, here, reversed)] {
            let tracks = self.tracks.entry(from.clone()).or_default();
            tracks.insert(to.clone(), track);
        }
    }

    /// Returns the comparisons of a clock, each with the other clock.
    pub fn tracks_of(&self, node: &K) -> impl Iterator<Item = (&K, &T)> {
        self.tracks.get(node).into_iter().flatten()
    }

    /// Returns how far `to` is ahead of `from` at a time of `from`, by way of the clocks between
    /// them whose errors add up to the least. None if no way leads there.
    #[must_use]
    pub fn offset(&self, from: &K, time: i64, to: &K) -> Option<ClockOffset> {
        // Dijkstra's algorithm, with the errors as lengths.
        let mut open = BinaryHeap::from([Reverse((0, 0, from))]);
        let mut done = BTreeSet::new();
        while let Some(Reverse((error, ahead, node))) = open.pop() {
            if node == to {
                return Some(ClockOffset { ahead, error });
            }
            if !done.insert(node) {
                continue;
            }
            // From a clock that was compared with one only, no way goes on: most hosts of a relay.
            let leads_on = |next: &K| next == to || self.tracks_of(next).nth(1).is_some();
            for (next, track) in self.tracks_of(node) {
                if done.contains(next) || !leads_on(next) {
                    continue;
                }
                let Some(step) = track.offset_at(time.saturating_add(ahead)) else {
                    continue;
                };
                // The time there is uncertain, too: a thousandth covers the drift meanwhile.
                let carried = error.saturating_add(error / 1000);
                let found = carried.saturating_add(step.error);
                open.push(Reverse((found, ahead.saturating_add(step.ahead), next)));
            }
        }
        None
    }
}
