//! Slices that have begun and not ended, of rows `R`: threads and asynchronous ids.

use std::collections::HashMap;
use std::hash::Hash;

/// Largest number of slices that are remembered.
const MAX_SLICES: usize = 1 << 17;
/// Largest number of bytes of memory for them, about.
const MAX_BYTES: usize = 64 << 20;
/// Largest number of slices of a row that an end is searched among, the innermost ones: else ends
/// that find none would take time in proportion to all that are open.
const MAX_SEARCHED: usize = 1024;

/// A slice that has begun.
pub trait OpenSlice {
    /// The form in which an end names its slice.
    type Name: ?Sized;

    /// The id of the span, by which it ends. Absent if it ends by its name.
    fn span(&self) -> Option<u64>;
    /// Whether an end with `name` ends the slice.
    fn is_named(&self, name: &Self::Name) -> bool;
    /// The number of losses when the slice began. After more of them its end may be missing.
    fn losses(&self) -> u64;
    /// The number of bytes of memory that the slice takes, about.
    fn bytes(&self) -> usize;
}

/// How an end says which slice it is of.
#[derive(Debug)]
pub enum EndOf<'a, N: ?Sized> {
    /// The span of this id.
    Span(u64),
    /// The innermost slice of this name.
    Name(&'a N),
    /// The innermost asynchronous slice of this name; those that have begun since go on.
    Asynchronous(&'a N),
    /// The innermost slice.
    Innermost,
}

/// The slices that are open, by their rows.
#[derive(Debug)]
pub struct OpenSlices<R, S> {
    rows: HashMap<R, Vec<S>>,
    count: usize,
    bytes: usize,
}

impl<R, S> Default for OpenSlices<R, S> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
            count: 0,
            bytes: 0,
        }
    }
}

impl<R: Copy + Eq + Hash + Ord, S: OpenSlice> OpenSlices<R, S> {
    /// Whether a limit is reached, so that all have to be [taken](Self::take_all).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count >= MAX_SLICES || self.bytes >= MAX_BYTES
    }

    /// Adds a slice of a row.
    pub fn begin(&mut self, row: R, slice: S) {
        self.count += 1;
        self.bytes += slice.bytes();
        self.rows.entry(row).or_default().push(slice);
    }

    /// Takes the slice of a row that ends, last, and before it those within it that end too: they
    /// have no ids, or their ends may be lost. `losses`: the number of losses so far. Empty if the
    /// slice that ends is not one of the innermost 1024.
    pub fn end(&mut self, row: R, of: EndOf<'_, S::Name>, losses: u64) -> Vec<S> {
        let Some(open) = self.rows.get_mut(&row) else {
            return Vec::new();
        };
        let mut searched = open.iter().enumerate().rev().take(MAX_SEARCHED);
        let found = searched.find(|(_, slice)| match &of {
            EndOf::Span(span) => slice.span() == Some(*span),
            EndOf::Name(name) | EndOf::Asynchronous(name) => {
                slice.span().is_none() && slice.is_named(name)
            }
            EndOf::Innermost => slice.span().is_none(),
        });
        let Some((place, _)) = found else {
            return Vec::new();
        };
        let mut tail = open.split_off(place).into_iter();
        let slice = tail.next();
        let mut ended = Vec::new();
        for inner in tail {
            let outlives = match of {
                EndOf::Span(_) => inner.span().is_some(),
                EndOf::Asynchronous(_) => true,
                EndOf::Name(_) | EndOf::Innermost => false,
            };
            match outlives && inner.losses() == losses {
                true => open.push(inner),
                false => ended.push(inner),
            }
        }
        ended.reverse();
        ended.extend(slice);
        if open.is_empty() {
            self.rows.remove(&row);
        }
        for slice in &ended {
            self.count -= 1;
            self.bytes = self.bytes.saturating_sub(slice.bytes());
        }
        ended
    }

    /// Takes all slices, of each row the innermost first.
    pub fn take_all(&mut self) -> Vec<(R, S)> {
        let all = std::mem::take(self);
        let mut rows: Vec<_> = all.rows.into_iter().collect();
        rows.sort_unstable_by_key(|(row, _)| *row);
        let of_row = |(row, slices): (_, Vec<_>)| {
            let slices = slices.into_iter().rev();
            slices.map(move |slice| (row, slice))
        };
        rows.into_iter().flat_map(of_row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A slice of this name, which counts how often names are compared.
    #[derive(Debug)]
    struct Slice<'c>(usize, &'c Cell<usize>);

    impl OpenSlice for Slice<'_> {
        type Name = usize;

        fn span(&self) -> Option<u64> {
            None
        }

        fn is_named(&self, name: &usize) -> bool {
            self.1.set(self.1.get() + 1);
            self.0 == *name
        }

        fn losses(&self) -> u64 {
            0
        }

        fn bytes(&self) -> usize {
            size_of::<Self>()
        }
    }

    #[test]
    fn end_is_searched_among_the_innermost_slices_only() {
        let steps = Cell::new(0);
        let mut open = OpenSlices::default();
        for name in 0..=MAX_SEARCHED {
            open.begin(1, Slice(name, &steps));
        }
        for of in [EndOf::Name(&0), EndOf::Asynchronous(&0)] {
            assert!(open.end(1, of, 0).is_empty());
        }
        assert_eq!(steps.get(), 2 * MAX_SEARCHED);
        let ended = open.end(1, EndOf::Asynchronous(&1), 0);
        assert!(matches!(ended[..], [Slice(1, _)]), "{ended:?}");
        let ended = open.end(1, EndOf::Name(&0), 0);
        assert_eq!(ended.len(), MAX_SEARCHED);
        assert_eq!((open.count, open.bytes), (0, 0));
    }
}
