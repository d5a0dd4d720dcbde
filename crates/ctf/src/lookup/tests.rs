use std::cell::Cell;
use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

/// The first and last value of a range.
type Pair = (i128, i128);

fn contains(set: &[Pair], value: i128) -> bool {
    set.iter()
        .any(|(low, high)| (*low..=*high).contains(&value))
}

/// Values that are close together, so that ranges overlap, and those at the ends of the domain.
fn value() -> impl Strategy<Value = i128> {
    let around = |middle: i128| (middle - 3)..=(middle + 3);
    prop_oneof![
        8 => -20..=20_i128,
        1 => around(i128::from(i64::MIN)),
        1 => around(i128::from(i64::MAX)),
        1 => around(i128::from(u64::MAX)),
    ]
}

fn sets() -> impl Strategy<Value = Vec<Vec<Pair>>> {
    let range = (value(), value()).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let short = (value(), 0..3_i128).prop_map(|(low, length)| (low, low + length));
    let set = prop::collection::vec(prop_oneof![3 => short, 1 => range], 0..5);
    prop::collection::vec(set, 0..12)
}

fn number(bits: u64, signed: bool) -> i128 {
    if signed {
        i128::from(bits.cast_signed())
    } else {
        i128::from(bits)
    }
}

proptest! {
    #[test]
    fn first_match_is_that_of_a_linear_search(
        sets in sets(),
        signed: bool,
        others in prop::collection::vec(any::<u64>(), 4),
    ) {
        let fast = FirstMatch::new(sets.iter().map(Vec::as_slice), signed);
        let ranges: usize = sets.iter().map(Vec::len).sum();
        prop_assert!(fast.segments.len() <= 2 * ranges);
        let ends = sets.iter().flatten().flat_map(|(low, high)| [low - 1, *low, *high, high + 1]);
        let bits = |value: i128| {
            let unsigned = u64::try_from(value).ok();
            unsigned.or_else(|| i64::try_from(value).ok().map(i64::cast_unsigned))
        };
        for bits in ends.filter_map(bits).chain(others) {
            let slow = sets.iter().position(|set| contains(set, number(bits, signed)));
            prop_assert_eq!(fast.find(bits, signed), slow, "{} of {:?}", bits, sets);
        }
    }

    #[test]
    fn ranges_without_overlap_contain_the_same_values(sets in sets()) {
        for set in sets {
            let merged = without_overlap(&set);
            prop_assert!(merged.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            for value in set.iter().flat_map(|(low, high)| [low - 1, *low, *high, high + 1]) {
                prop_assert_eq!(any_contains(&merged, value), contains(&set, value));
            }
        }
    }

    #[test]
    fn all_matches_are_those_of_a_linear_search(sets in sets()) {
        let fast = AllMatches::new(sets.iter().map(Vec::as_slice));
        for value in sets.iter().flatten().flat_map(|(low, high)| [low - 1, *low, *high, high + 1]) {
            let mut found = Vec::new();
            fast.find(value, &mut found);
            found.sort_unstable();
            found.dedup();
            let slow = (0..).zip(&sets).filter(|(_, set)| contains(set, value));
            let slow: Vec<u32> = slow.map(|(number, _)| number).collect();
            prop_assert_eq!(found, slow);
        }
    }
}

#[test]
fn a_lookup_without_ranges_matches_every_value_but_zero() {
    for signed in [false, true] {
        let lookup = FirstMatch::not_zero(signed);
        assert_eq!(lookup.find(0, signed), None);
        for bits in [1, 2, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX] {
            assert_eq!(lookup.find(bits, signed), Some(0), "{bits}");
        }
    }
}

thread_local! {
    static COMPARISONS: Cell<u32> = const { Cell::new(0) };
}

/// A number that counts how often it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted(i128);

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0.partial_cmp(&other.0)
    }
}

fn comparisons(search: impl FnOnce()) -> u32 {
    COMPARISONS.set(0);
    search();
    COMPARISONS.get()
}

#[test]
fn comparisons_grow_with_the_logarithm_of_the_number_of_ranges() {
    for log in [4, 10, 16, 20] {
        let count = 1_i128 << log;
        let sets: Vec<[Pair; 1]> = (0..count).map(|low| [(low * 2, low * 2)]).collect();
        let first = FirstMatch::new(sets.iter().map(|set| &set[..]), false);
        let first: Vec<_> = (first.segments.iter())
            .map(|(low, high, number)| (Counted((*low).into()), Counted((*high).into()), *number))
            .collect();
        let all = AllMatches::new(sets.iter().map(|set| &set[..]));
        let ranges: Vec<_> = (all.ranges.iter())
            .map(|(low, high, number)| (Counted(*low), Counted(*high), *number))
            .collect();
        let ends: Vec<_> = all.ends.iter().copied().map(Counted).collect();
        for value in [-1, 0, 1, count - 1, count, count * 2 - 2, count * 2].map(Counted) {
            let of_first = comparisons(|| {
                find(&first, value);
            });
            assert!(of_first <= log + 3, "{of_first} of 2^{log}");
            let of_all = comparisons(|| find_all(&ranges, &ends, value, &mut Vec::new()));
            assert!(of_all <= 4 * (log + 2), "{of_all} of 2^{log}");
        }
    }
}

#[test]
fn ranges_that_all_overlap_make_no_more_than_two_segments_each() {
    // Each begins before the one after and ends after it; the last one is preferred least.
    let sets: Vec<[Pair; 1]> = (0..10_000).map(|low| [(low, 20_000 - low)]).collect();
    let lookup = FirstMatch::new(sets.iter().rev().map(|set| &set[..]), false);
    assert!(lookup.segments.len() <= 2 * sets.len());
    assert_eq!(lookup.find(0, false), Some(9_999));
    assert_eq!(lookup.find(10_000, false), Some(0));
    assert_eq!(lookup.find(20_000, false), Some(9_999));
}
