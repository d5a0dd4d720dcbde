//! A slab: values at places that are used again when a value has been removed.

/// Values, each at its place for as long as it is there.
#[derive(Debug)]
pub struct Slots<T> {
    values: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Inserts a value, and returns its place.
    pub fn insert(&mut self, value: T) -> usize {
        let place = self.free.pop().unwrap_or(self.values.len());
        match self.values.get_mut(place) {
            Some(slot) => *slot = Some(value),
            None => self.values.push(Some(value)),
        }
        place
    }

    /// Removes the value at `place`, and returns it.
    pub fn remove(&mut self, place: usize) -> Option<T> {
        let removed = self.values.get_mut(place)?.take()?;
        self.free.push(place);
        Some(removed)
    }

    #[inline]
    /// Returns the value at `place`.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&T> {
        self.values.get(place)?.as_ref()
    }

    #[inline]
    /// Returns the value at `place`, to be changed.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.values.get_mut(place)?.as_mut()
    }

    /// Returns all values, each with its place.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let values = self.values.iter().enumerate();
        values.filter_map(|(place, value)| Some((place, value.as_ref()?)))
    }

    /// Returns all values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut().flatten()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        // Each place that is not free has a value.
        self.values.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reused_after_its_value_was_removed() {
        let mut slots = Slots::default();
        let places: Vec<usize> = (0..3).map(|value| slots.insert(value)).collect();
        assert_eq!(slots.remove(places[1]), Some(1));
        assert_eq!(slots.remove(places[1]), None);
        assert_eq!((slots.get(places[1]), slots.len()), (None, 2));
        assert_eq!(slots.insert(7), places[1]);
        assert_eq!((slots.get(places[1]), slots.len()), (Some(&7), 3));
        assert_eq!(slots.insert(8), 3);
        slots.values_mut().for_each(|value| *value += 1);
        let all: Vec<(usize, &i32)> = slots.iter().collect();
        assert_eq!(all, [(0, &1), (1, &8), (2, &3), (3, &9)]);
    }
}
