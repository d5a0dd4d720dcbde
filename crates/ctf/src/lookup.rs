//! Finds ranges that contain a number, in time that grows with the logarithm of the number of
//! ranges: a hostile trace may declare many, and select one for each element of an array.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// First and last value, both included, and the number of the set or label to which the range
/// belongs.
type Range<T> = (T, T, u32);

/// Several sets of ranges, which may overlap, prepared to find the first set with a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FirstMatch {
    /// The ranges in order of their values, which are [`rank`]s; they do not overlap.
    segments: Box<[Range<u64>]>,
    /// The set of each of the first numbers from 0, plus 1; 0 if no set contains it. Most selectors
    /// are such numbers.
    small: [u32; SMALL_NUMBERS],
}

/// Numbers that are looked up in a table.
const SMALL_NUMBERS: usize = 16;

/// Ranges that may overlap, prepared to find all of them that contain a value: an interval tree,
/// stored as a sorted array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AllMatches {
    /// The ranges in order of their first values. The middle one is the root of a binary tree, and
    /// so on in each half.
    ranges: Box<[Range<i128>]>,
    /// The greatest last value in the tree of which each range is the root.
    ends: Box<[i128]>,
}

/// Maps the bits of a number to an unsigned number in the same order: the least signed number
/// becomes 0.
#[inline]
const fn rank(bits: u64, signed: bool) -> u64 {
    bits ^ ((signed as u64) << 63)
}

impl FirstMatch {
    /// Prepares sets for a selector that is signed or not; values that it cannot have are left out.
    pub(crate) fn new<'a>(
        sets: impl IntoIterator<Item = &'a [(i128, i128)]>,
        signed: bool,
    ) -> Self {
        let (min, max) = if signed {
            (i128::from(i64::MIN), i128::from(i64::MAX))
        } else {
            (0, i128::from(u64::MAX))
        };
        // Clamped to `min` and `max` first, the value fits: the default is never taken.
        let rank = |value: i128| u64::try_from(value - min).unwrap_or(0);
        let mut ranges = Vec::new();
        for (number, set) in (0..).zip(sets) {
            ranges.extend(set.iter().filter_map(|(low, high)| {
                let (low, high) = ((*low).max(min), (*high).min(max));
                (low <= high).then(|| (rank(low), rank(high), number))
            }));
        }
        let segments = segments(ranges);
        let mut small = [0; SMALL_NUMBERS];
        for (number, set) in (0..).zip(&mut small) {
            *set = find(&segments, self::rank(number, signed)).map_or(0, |found| found + 1);
        }
        Self { segments, small }
    }

    /// Prepares the lookup of an option that is selected by any value but 0.
    pub(crate) fn not_zero(signed: bool) -> Self {
        // Both ranges for both kinds: `new` drops what an unsigned or a signed selector cannot
        // have.
        let ranges = [(i128::from(i64::MIN), -1), (1, i128::from(u64::MAX))];
        Self::new([&ranges[..]], signed)
    }

    /// First and last value of the largest range that belongs to a set, where the selector is not
    /// signed.
    pub(crate) fn largest_range(&self, set: usize) -> Option<(u64, u64)> {
        let segments = self.segments.iter();
        let of_set = segments.filter(|(_, _, number)| usize::try_from(*number) == Ok(set));
        let ranges = of_set.map(|(low, high, _)| (*low, *high));
        ranges.max_by_key(|(low, high)| high - low)
    }

    /// The number of the first set that contains the number of these bits.
    #[inline]
    pub(crate) fn find(&self, bits: u64, signed: bool) -> Option<usize> {
        let small = usize::try_from(bits).ok();
        let found = match small.and_then(|number| self.small.get(number)) {
            Some(set) => set.checked_sub(1),
            None => find(&self.segments, rank(bits, signed)),
        };
        found.and_then(|number| usize::try_from(number).ok())
    }
}

/// Returns the same values as the ranges have, in order and in as few ranges as possible.
pub(crate) fn without_overlap(ranges: &[(i128, i128)]) -> Vec<(i128, i128)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    sorted.dedup_by(|(low, high), (_, end)| {
        let is_adjacent = *low <= end.saturating_add(1);
        if is_adjacent {
            *end = (*end).max(*high);
        }
        is_adjacent
    });
    sorted
}

/// Whether one of the ranges contains the value, where they are in order and do not overlap.
#[inline]
pub(crate) fn any_contains(ranges: &[(i128, i128)], value: i128) -> bool {
    let behind = ranges.partition_point(|(low, _)| *low <= value);
    let range = behind.checked_sub(1).and_then(|place| ranges.get(place));
    range.is_some_and(|(_, high)| value <= *high)
}

/// The number of the range that contains the value, where ranges are in order and do not overlap.
#[inline]
fn find<T: PartialOrd + Copy>(ranges: &[Range<T>], value: T) -> Option<u32> {
    let behind = ranges.partition_point(|(low, ..)| *low <= value);
    let (_, high, number) = ranges.get(behind.checked_sub(1)?)?;
    (value <= *high).then_some(*number)
}

/// Cuts ranges where they overlap, so that each value belongs to the least number.
///
/// A sweep over the values: `at` moves from one begin or end of a range to the next, and a min-heap
/// holds the ranges that have begun. Each value goes to the range at the top of the heap.
fn segments(mut ranges: Vec<Range<u64>>) -> Box<[Range<u64>]> {
    ranges.sort_unstable();
    let mut segments: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    let mut later = ranges.into_iter().peekable();
    // Ranges that have ended are removed only when they reach the top.
    let mut begun = BinaryHeap::new();
    let mut at = 0;
    loop {
        let Some(Reverse((number, high))) = begun.peek().copied() else {
            let Some((low, high, number)) = later.next() else {
                break;
            };
            at = low;
            begun.push(Reverse((number, high)));
            continue;
        };
        if high < at {
            begun.pop();
            continue;
        }
        if let Some((_, high, number)) = later.next_if(|(low, ..)| *low <= at) {
            begun.push(Reverse((number, high)));
            continue;
        }
        let end = match later.peek() {
            // No underflow: a range that begins at or before `at` has been taken above.
            Some((low, ..)) if *low <= high => *low - 1,
            _ => high,
        };
        match segments.last_mut() {
            Some((_, before, last)) if *last == number && before.checked_add(1) == Some(at) => {
                *before = end;
            }
            _ => segments.push((at, end, number)),
        }
        // After the range that ends with the largest number none can follow.
        match end.checked_add(1) {
            Some(next) => at = next,
            None => break,
        }
    }
    segments.into_boxed_slice()
}

impl AllMatches {
    pub(crate) fn new<'a>(sets: impl IntoIterator<Item = &'a [(i128, i128)]>) -> Self {
        let mut ranges = Vec::new();
        for (number, set) in (0..).zip(sets) {
            ranges.extend(set.iter().map(|(low, high)| (*low, *high, number)));
        }
        ranges.sort_unstable();
        let mut ends = vec![i128::MIN; ranges.len()];
        fill_ends(&ranges, &mut ends);
        Self {
            ranges: ranges.into_boxed_slice(),
            ends: ends.into_boxed_slice(),
        }
    }

    /// The number of ranges.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds the numbers of the ranges that contain the value, in no order.
    pub(crate) fn find(&self, value: i128, found: &mut Vec<u32>) {
        find_all(&self.ranges, &self.ends, value, found);
    }
}

/// Fills in the highest end of each subtree. The recursion depth is logarithmic: each step splits
/// the slices in the middle.
fn fill_ends(ranges: &[Range<i128>], ends: &mut [i128]) -> i128 {
    let middle = ranges.len() / 2;
    let (before, rest) = ranges.split_at(middle);
    let (ends_before, ends_rest) = ends.split_at_mut(middle);
    let (Some(((_, high, _), behind)), Some((end, ends_behind))) =
        (rest.split_first(), ends_rest.split_first_mut())
    else {
        return i128::MIN;
    };
    let below = fill_ends(before, ends_before).max(fill_ends(behind, ends_behind));
    *end = below.max(*high);
    *end
}

fn find_all<T: PartialOrd + Copy>(ranges: &[Range<T>], ends: &[T], value: T, found: &mut Vec<u32>) {
    let middle = ranges.len() / 2;
    let (before, rest) = ranges.split_at(middle);
    let (ends_before, ends_rest) = ends.split_at(middle);
    let (Some(((low, high, number), behind)), Some((end, ends_behind))) =
        (rest.split_first(), ends_rest.split_first())
    else {
        return;
    };
    // No range of this subtree reaches the value.
    if *end < value {
        return;
    }
    find_all(before, ends_before, value, found);
    if *low <= value {
        if value <= *high {
            found.push(*number);
        }
        find_all(behind, ends_behind, value, found);
    }
}

#[cfg(test)]
mod tests;
