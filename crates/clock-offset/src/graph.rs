//! Clocks that were compared with each other, directly or by way of others.

use std::collections::{BTreeMap, BTreeSet};

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
        let start = ClockOffset { ahead: 0, error: 0 };
        let mut open = BTreeMap::from([(from, start)]);
        let mut done = BTreeSet::new();
        loop {
            let nearest = open.iter().min_by_key(|(_, offset)| offset.error);
            let (node, reached) = nearest.map(|(node, offset)| (*node, *offset))?;
            if node == to {
                return Some(reached);
            }
            open.remove(node);
            done.insert(node);
            // From a clock that was compared with one only, no way goes on: most hosts of a relay.
            let goes_on = |next: &K| next == to || self.tracks_of(next).nth(1).is_some();
            let tracks = self.tracks_of(node);
            for (next, track) in tracks.filter(|(next, _)| !done.contains(next) && goes_on(next)) {
                let there = time.saturating_add(reached.ahead);
                let Some(step) = track.offset_at(there) else {
                    continue;
                };
                // The time there is uncertain, too: a thousandth covers the drift meanwhile.
                let carried = reached.error.saturating_add(reached.error / 1000);
                let found = ClockOffset {
                    ahead: reached.ahead.saturating_add(step.ahead),
                    error: carried.saturating_add(step.error),
                };
                let known = open.entry(next).or_insert(found);
                if found.error < known.error {
                    *known = found;
                }
            }
        }
    }
}
