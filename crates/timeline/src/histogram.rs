//! Events and losses per time over everything that has been seen, whether it is still kept or not.

/// Largest number of buckets. When more are needed, each two neighbours become one.
const MAX_BUCKETS: usize = 1024;
/// The first width of a bucket, in nanoseconds.
const FIRST_WIDTH: i64 = 1_000_000;
/// Events that are farther than this from the others, in nanoseconds, are counted at the edge:
/// about 146 years.
const MAX_RANGE: i64 = i64::MAX / 2;

/// A histogram with buckets of one width, which grows with the range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Histogram {
    /// The begin of the first bucket, in nanoseconds; a multiple of the width.
    pub(super) begin: i64,
    /// The width of a bucket, in nanoseconds.
    pub(super) width: i64,
    /// The earliest and the latest time of an event or a loss, in nanoseconds.
    times: Option<(i64, i64)>,
    pub(super) events: Vec<u32>,
    pub(super) losses: Vec<u32>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            begin: 0,
            width: FIRST_WIDTH,
            times: None,
            events: Vec::new(),
            losses: Vec::new(),
        }
    }
}

impl Histogram {
    /// The earliest and the latest time of an event or a loss, in nanoseconds. Absent before the
    /// first.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        self.times
    }

    /// Counts an event at this time.
    #[inline]
    pub(super) fn add_event(&mut self, time: i64) {
        let place = self.place(time);
        if let Some(count) = self.events.get_mut(place) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a loss at this time.
    pub(super) fn add_loss(&mut self, time: i64) {
        let place = self.place(time);
        if let Some(count) = self.losses.get_mut(place) {
            *count = count.saturating_add(1);
        }
    }

    /// Reaches to this time, at which nothing is counted.
    pub(super) fn extend(&mut self, time: i64) {
        self.place(time);
    }

    /// The bucket of a time, which is new. There is one after the call.
    #[inline]
    fn place(&mut self, time: i64) -> usize {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        if self.events.is_empty() {
            // Rounded down for times before the origin, too.
            self.begin = time.div_euclid(self.width).saturating_mul(self.width);
            self.resize(1);
        }
        let near = self.begin.saturating_sub(MAX_RANGE)..=self.begin.saturating_add(MAX_RANGE);
        // A single wrong time must not overflow the width of the buckets.
        let time = time.clamp(*near.start(), *near.end());
        loop {
            let offset = time.saturating_sub(self.begin).div_euclid(self.width);
            if offset < 0 {
                let missing = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
                if missing.saturating_add(self.events.len()) > MAX_BUCKETS {
                    self.merge();
                    continue;
                }
                self.begin = self.begin.saturating_add(offset.saturating_mul(self.width));
                for counts in [&mut self.events, &mut self.losses] {
                    counts.splice(0..0, std::iter::repeat_n(0, missing));
                }
                return 0;
            }
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            if offset < self.events.len() {
                return offset;
            }
            if offset < MAX_BUCKETS {
                self.resize(offset + 1);
                return offset;
            }
            self.merge();
        }
    }

    fn resize(&mut self, buckets: usize) {
        self.events.resize(buckets, 0);
        self.losses.resize(buckets, 0);
    }

    /// Doubles the width of the buckets.
    fn merge(&mut self) {
        // Each pair must begin at a multiple of the new width.
        let is_odd = self.begin.div_euclid(self.width).rem_euclid(2) == 1;
        if is_odd {
            self.begin = self.begin.saturating_sub(self.width);
        }
        for counts in [&mut self.events, &mut self.losses] {
            if is_odd {
                counts.insert(0, 0);
            }
            let merged = counts.chunks(2).map(|two| {
                let sum = |sum: u32, count: &u32| sum.saturating_add(*count);
                two.iter().fold(0, sum)
            });
            *counts = merged.collect();
        }
        self.width = self.width.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_all_events_in_a_bounded_number_of_buckets() {
        let mut histogram = Histogram::default();
        let mut time = 1_700_000_000_000_000_000;
        for step in 0..100_000 {
            histogram.add_event(time);
            time += 1_000_000 + step * 1000;
        }
        histogram.add_event(1_600_000_000_000_000_000);
        histogram.add_loss(time);
        assert!(histogram.events.len() <= MAX_BUCKETS);
        assert_eq!(histogram.events.iter().sum::<u32>(), 100_001);
        assert_eq!(histogram.losses.iter().sum::<u32>(), 1);
        assert_eq!(histogram.events.first(), Some(&1));
        assert_eq!(histogram.events.len(), histogram.losses.len());
    }

    #[test]
    fn extreme_times_neither_overflow_nor_grow_the_histogram() {
        let mut histogram = Histogram::default();
        for time in [i64::MAX, i64::MIN, 0, i64::MAX, -1, 1] {
            histogram.add_event(time);
            histogram.add_loss(time);
        }
        assert!(histogram.events.len() <= MAX_BUCKETS);
        assert_eq!(histogram.events.iter().sum::<u32>(), 6);
    }
}
