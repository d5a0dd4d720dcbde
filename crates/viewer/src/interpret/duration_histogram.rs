//! Durations by their size, for percentiles: buckets whose width grows with the duration, as in an
//! HDR histogram. A bucket is at most 1/128 as wide as the durations in it are long, and a
//! percentile is the middle of its bucket: at most 0.4 % from the duration that it stands for.

/// Number of bits of a duration by which its bucket is found, after the highest one.
const PRECISION_BITS: u32 = 7;
/// Number of buckets of durations with the same highest bit.
const BUCKETS_PER_OCTAVE: u64 = 1 << PRECISION_BITS;

/// Durations of spans that are shown together.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    /// The buckets that have durations, in order, each with how many. Most rows have few.
    buckets: Vec<(u16, u64)>,
    count: u64,
}

/// A percentile of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Percentile {
    /// About this number of nanoseconds.
    Within(u64),
    /// The longest duration.
    Longest,
}

impl DurationHistogram {
    /// Adds a duration in nanoseconds. A new bucket takes one of `budget`; if there is none left,
    /// the duration is counted in the nearest bucket, and false is returned. The first bucket is
    /// there without budget, too.
    pub fn add(&mut self, duration: u64, budget: &mut usize) -> bool {
        self.count += 1;
        let bucket = bucket_of(duration);
        let place = match self.buckets.binary_search_by_key(&bucket, |(of, _)| *of) {
            Ok(place) => place,
            Err(place) if *budget > 0 || self.buckets.is_empty() => {
                *budget = budget.saturating_sub(1);
                self.buckets.insert(place, (bucket, 0));
                place
            }
            Err(place) => {
                let around = self
                    .buckets
                    .iter_mut()
                    .skip(place.saturating_sub(1))
                    .take(2);
                if let Some((_, count)) = around.min_by_key(|(of, _)| of.abs_diff(bucket)) {
                    *count += 1;
                }
                return false;
            }
        };
        if let Some((_, count)) = self.buckets.get_mut(place) {
            *count += 1;
        }
        true
    }

    /// The duration that `percent` of all are not longer than.
    pub fn percentile(&self, percent: u64) -> Percentile {
        // The nearest rank: the first one up to which there are `percent` of all or more.
        let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100);
        if rank == u128::from(self.count) {
            return Percentile::Longest;
        }
        let mut passed = 0;
        let of_rank = |(_, count): &&(u16, u64)| {
            passed += u128::from(*count);
            passed >= rank
        };
        let found = self.buckets.iter().find(of_rank);
        found.map_or(Percentile::Longest, |(bucket, _)| {
            Percentile::Within(middle_of(*bucket))
        })
    }
}

/// The number of the bucket of a duration. Below 256 ns each duration has its own.
fn bucket_of(duration: u64) -> u16 {
    let bits = u64::BITS - duration.leading_zeros();
    let shift = bits.saturating_sub(PRECISION_BITS + 1);
    let bucket = u64::from(shift) * BUCKETS_PER_OCTAVE + (duration >> shift);
    // At most 7423.
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// The middle of a bucket.
fn middle_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    let shift = (bucket / BUCKETS_PER_OCTAVE).saturating_sub(1);
    let first = (bucket - shift * BUCKETS_PER_OCTAVE) << shift;
    first + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_at_most_half_a_percent_from_its_durations() {
        let mut last = 0;
        for exponent in 0..u64::BITS {
            for offset in [0, 1, 3, 1000, 1 << exponent.saturating_sub(1)] {
                let duration = (1_u64 << exponent).saturating_add(offset);
                let middle = middle_of(bucket_of(duration));
                let error = middle.abs_diff(duration);
                assert!(error <= duration / 250, "{duration}: {middle}");
                last = last.max(bucket_of(duration));
            }
        }
        for duration in 0..256 {
            assert_eq!(middle_of(bucket_of(duration)), duration);
        }
        assert_eq!(bucket_of(u64::MAX), 7423);
        assert!(last <= 7423);
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_durations() {
        let mut histogram = DurationHistogram::default();
        let mut budget = usize::MAX;
        assert_eq!(histogram.percentile(50), Percentile::Longest);
        let mut durations: Vec<u64> = (0..1000).map(|n| n * n * 37 % 1_000_003).collect();
        for duration in &durations {
            assert!(histogram.add(*duration, &mut budget));
        }
        durations.sort_unstable();
        assert_eq!(histogram.percentile(100), Percentile::Longest);
        for (percent, rank) in [(1, 10), (50, 500), (90, 900), (99, 990)] {
            let exact = durations[rank - 1];
            let Percentile::Within(found) = histogram.percentile(percent) else {
                panic!("{percent}");
            };
            assert!(
                found.abs_diff(exact) <= exact / 200,
                "{percent}: {found} {exact}"
            );
        }
    }

    #[test]
    fn without_budget_durations_are_counted_in_the_nearest_bucket() {
        let mut histogram = DurationHistogram::default();
        let mut budget = 2;
        assert!(histogram.add(10, &mut budget) && histogram.add(100, &mut budget));
        assert!(!histogram.add(1_000_000, &mut budget));
        assert!(!histogram.add(1, &mut budget));
        assert_eq!((histogram.buckets.len(), histogram.count), (2, 4));
        assert_eq!(histogram.percentile(75), Percentile::Within(100));
        for _ in 0..8 {
            assert!(!histogram.add(11, &mut budget));
        }
        assert_eq!(histogram.percentile(75), Percentile::Within(10));
    }

    #[test]
    fn the_first_durations_of_a_row_have_a_bucket_without_budget_too() {
        let mut histogram = DurationHistogram::default();
        let mut budget = 0;
        assert!(histogram.add(10, &mut budget));
        assert!(!histogram.add(1_000_000, &mut budget));
        assert_eq!(
            (histogram.percentile(50), budget),
            (Percentile::Within(10), 0)
        );
    }
}
