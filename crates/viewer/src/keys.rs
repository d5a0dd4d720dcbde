//! Maps by small numbers that this program has assigned itself, looked up for each event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::slots::Slots;

/// A map whose keys no peer chooses: its hash is fast, and not safe from keys that collide on
/// purpose.
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Values that are looked up for each event, most of them one of those that were looked up last.
/// These are found by their numbers, without a hash.
#[derive(Debug)]
pub struct RecentMap<V> {
    values: Slots<V>,
    places: KeyMap<u64, usize>,
    /// Keys that were looked up last and their places, each at the low bits of the key.
    recent: [Option<(u64, usize)>; RECENT],
}

/// Number of keys that are found without a hash. A power of two.
const RECENT: usize = 64;

impl<V> Default for RecentMap<V> {
    fn default() -> Self {
        Self {
            values: Slots::default(),
            places: KeyMap::default(),
            recent: [None; RECENT],
        }
    }
}

impl<V> RecentMap<V> {
    /// The value of `key`, which is made if there is none.
    #[inline]
    pub fn get_or_insert(&mut self, key: u64, new: impl FnOnce() -> V) -> Option<&mut V> {
        let place = match self.recent.get(low_bits(key)) {
            Some(Some((recent, place))) if *recent == key => *place,
            _ => self.find_or_insert(key, new),
        };
        self.values.get_mut(place)
    }

    fn find_or_insert(&mut self, key: u64, new: impl FnOnce() -> V) -> usize {
        let values = &mut self.values;
        let place = *self
            .places
            .entry(key)
            .or_insert_with(|| values.insert(new()));
        // Another key with the same low bits loses its place here, and is found by its hash again.
        if let Some(recent) = self.recent.get_mut(low_bits(key)) {
            *recent = Some((key, place));
        }
        place
    }

    /// Removes all values that are not to be kept.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &V) -> bool) {
        // Places are used again: a key that was looked up last must not lead to another value.
        self.recent = [None; RECENT];
        let values = &mut self.values;
        self.places.retain(|key, place| {
            let is_kept = values.get(*place).is_some_and(|value| keep(*key, value));
            if !is_kept {
                values.remove(*place);
            }
            is_kept
        });
    }

    /// Removes the value of `key`, and returns it.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        // Cleared even if it belongs to another key, which is found by its hash then.
        if let Some(recent) = self.recent.get_mut(low_bits(key)) {
            *recent = None;
        }
        self.values.remove(self.places.remove(&key)?)
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }
}

#[inline]
fn low_bits(key: u64) -> usize {
    usize::from(key.to_le_bytes()[0]) % RECENT
}

/// Spreads consecutive numbers over all bits.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The multiplier is 2^64 divided by the golden ratio (Fibonacci hashing).
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // Required by the trait; the keys are numbers, which do not come here.
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The map takes the low bits too, which the multiplication has mixed least.
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_keys_until_they_are_removed() {
        let mut map = RecentMap::default();
        let keys = [1, 1 + RECENT as u64, 2, u64::MAX];
        for round in 0..3 {
            for key in keys {
                let value = map.get_or_insert(key, || (key, 0)).unwrap();
                assert_eq!(*value, (key, round));
                value.1 += 1;
            }
        }
        map.remove(1);
        assert_eq!(map.get_or_insert(1, || (7, 7)), Some(&mut (7, 7)));
        map.retain(|key, _| key == 2);
        assert_eq!(map.len(), 1);
        for key in keys {
            let kept = if key == 2 { (2, 3) } else { (0, 0) };
            assert_eq!(map.get_or_insert(key, || (0, 0)), Some(&mut { kept }));
        }
    }
}
