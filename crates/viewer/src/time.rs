//! Times of events, packets and losses.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use ctf::Timescale;

/// A time in nanoseconds since the clock's origin. `Option<Nanoseconds>` is as small as an `i64`,
/// and compares as fast: what has no time is before everything that has one.
// The number with its sign bit flipped, which has the same order without a sign. That of the least
// `i64` would be zero, which stands for none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(NonZeroU64);

const SIGN: u64 = 1 << 63;

impl Nanoseconds {
    /// The earliest time, 292 years before the clock's origin.
    pub const MIN: Self = Self(NonZeroU64::MIN);
    /// The latest time, 292 years after the clock's origin.
    pub const MAX: Self = Self(NonZeroU64::MAX);

    /// The time of a number. `None` for the least `i64`, which no clock comes to.
    #[inline]
    #[must_use]
    pub fn new(number: i64) -> Option<Self> {
        NonZeroU64::new(number.cast_unsigned() ^ SIGN).map(Self)
    }

    /// The time of a clock value. `None` if that is more than 292 years from the origin.
    #[inline]
    #[must_use]
    pub fn of_cycles(scale: &Timescale, cycles: u64) -> Option<Self> {
        Self::new(scale.nanoseconds(cycles)?)
    }

    /// The time as a number.
    #[inline]
    #[must_use]
    pub fn get(self) -> i64 {
        (self.0.get() ^ SIGN).cast_signed()
    }

    /// A number that orders times as they are, and no time before them.
    #[inline]
    pub(crate) fn order_key(time: Option<Self>) -> u64 {
        time.map_or(0, |time| time.0.get())
    }

    /// The time that has this [key](Self::order_key).
    #[inline]
    pub(crate) fn of_order_key(key: u64) -> Option<Self> {
        NonZeroU64::new(key).map(Self)
    }
}

/// `Nanoseconds(-5)`: the number, and not how it is stored.
impl fmt::Debug for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nanoseconds").field(&self.get()).finish()
    }
}

/// A time that threads share. Absent until it is set. Nothing else is passed on by it: all its
/// accesses are relaxed.
#[derive(Debug, Default)]
pub struct AtomicTime(AtomicU64);

impl AtomicTime {
    /// The time that was set last.
    #[inline]
    #[must_use]
    pub fn load(&self) -> Option<Nanoseconds> {
        Nanoseconds::of_order_key(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time.
    #[inline]
    pub fn store(&self, time: Nanoseconds) {
        self.0.store(time.0.get(), Ordering::Relaxed);
    }

    /// Sets the time if it is later, or if there is none.
    #[inline]
    pub fn fetch_max(&self, time: Nanoseconds) {
        // Only then, because a write takes the cache line from all other threads.
        if self.0.load(Ordering::Relaxed) < time.0.get() {
            self.0.fetch_max(time.0.get(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered_as_their_numbers_and_no_time_is_before_them() {
        let numbers = [i64::MIN + 1, -1, 0, 1, i64::MAX];
        let times = numbers.map(|number| Nanoseconds::new(number).unwrap());
        assert_eq!(times.map(Nanoseconds::get), numbers);
        assert!(times.is_sorted());
        assert_eq!((times[0], times[4]), (Nanoseconds::MIN, Nanoseconds::MAX));
        assert_eq!(Nanoseconds::new(i64::MIN), None);
        assert!(None < Some(Nanoseconds::MIN));
        assert_eq!(format!("{:?}", times[1]), "Nanoseconds(-1)");
    }

    #[test]
    fn a_shared_time_is_absent_until_it_is_set() {
        let shared = AtomicTime::default();
        assert_eq!(shared.load(), None);
        for (number, latest) in [(-7, -7), (-9, -7), (3, 3)] {
            shared.fetch_max(Nanoseconds::new(number).unwrap());
            assert_eq!(shared.load(), Nanoseconds::new(latest), "{number}");
        }
        shared.store(Nanoseconds::MIN);
        assert_eq!(shared.load(), Some(Nanoseconds::MIN));
    }
}
