//! Clocks: how timestamps move the clock of a stream, and which time its cycles mean.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::model::Clock;

const NANOSECONDS: u64 = 1_000_000_000;

/// The clock value of a stream, in cycles, after a timestamp field of `bits` bits with `value`: the
/// next value from `cycles` on that has these low bits. A gap of more than one period of the field
/// cannot be seen.
#[inline]
pub(crate) const fn advance_clock(cycles: u64, value: u64, bits: u8) -> u64 {
    // A timestamp of full width is the whole time, also where it goes back. `1 << 64` would panic.
    if bits >= 64 {
        return value;
    }
    let period = 1u64 << bits;
    let low = cycles & (period - 1);
    let next = (cycles - low).wrapping_add(value);
    if value < low {
        // The clock does not go back, so that the field has wrapped. The sum wraps too, because a
        // hostile trace may begin near the largest value.
        next.wrapping_add(period)
    } else {
        next
    }
}

/// The conversion from the cycles of a clock to nanoseconds since its origin, which is 1970 if the
/// clock is absolute.
#[derive(Debug, Clone, PartialEq)]
pub struct Timescale {
    /// Nanoseconds from the origin, or from the far seconds, to the clock's zero.
    base: i64,
    frequency: u64,
    far_seconds: i64,
    corrections: Option<Arc<TimeCorrections>>,
}

/// By how much times are changed at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeCorrection {
    /// The time before the correction, in nanoseconds since the origin.
    pub time: i64,
    /// Nanoseconds that are added to it.
    pub ahead: i64,
    /// By how much the corrected times from this one to the next may be wrong, in nanoseconds.
    pub error: u64,
}

/// Corrections of times: linear between the given ones, and constant outside.
#[derive(Debug)]
pub struct TimeCorrections {
    /// In order of their times, from the least `i64` to the largest.
    points: Vec<CorrectionPoint>,
    /// The place of the point before the time that was corrected last, after which the next one is,
    /// too, in nearly all cases.
    last: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct CorrectionPoint {
    time: i64,
    ahead: i64,
    /// Change of `ahead` per nanosecond until the next point.
    slope: f64,
    error: u64,
}

impl TimeCorrections {
    /// Corrections that are given in the order of their times. Times remain in order if no
    /// correction is smaller than the one before it by more than the time between.
    #[must_use]
    pub fn new(corrections: &[TimeCorrection]) -> Self {
        let outside = |time, edge: Option<&TimeCorrection>| TimeCorrection {
            time,
            ahead: edge.map_or(0, |edge| edge.ahead),
            error: 0,
        };
        let first = outside(i64::MIN, corrections.first());
        let last = outside(i64::MAX, corrections.last());
        let all = std::iter::once(&first).chain(corrections);
        let next = corrections.iter().chain([&last]);
        let points = all.zip(next).map(|(point, next)| CorrectionPoint {
            time: point.time,
            ahead: point.ahead,
            slope: slope(point, next),
            error: point.error,
        });
        let end = CorrectionPoint {
            time: last.time,
            ahead: last.ahead,
            slope: 0.0,
            error: 0,
        };
        Self {
            points: points.chain([end]).collect(),
            last: AtomicUsize::new(0),
        }
    }

    /// Returns the time that is meant by a time, in nanoseconds since the origin. None if it is out
    /// of range.
    #[inline]
    #[must_use]
    pub fn corrected(&self, time: i64) -> Option<i64> {
        let place = self.last.load(Ordering::Relaxed);
        let point = match self.points.get(place..place + 2) {
            Some([point, next]) if (point.time..next.time).contains(&time) => point,
            _ => self.find(time)?,
        };
        time.checked_add(point.ahead.checked_add(point.rise_until(time))?)
    }

    /// Returns by how much the corrected time may be wrong, in nanoseconds. None before the first
    /// and after the last correction, where nothing is known.
    #[must_use]
    pub fn error(&self, time: i64) -> Option<u64> {
        let next = self.points.partition_point(|point| point.time <= time);
        // The first two and the last two are those of all other times.
        let place = next.checked_sub(1).filter(|place| *place > 0)?;
        let known = self.points.get(..self.points.len() - 2)?;
        known.get(place).map(|point| point.error)
    }

    #[cold]
    fn find(&self, time: i64) -> Option<&CorrectionPoint> {
        let next = self.points.partition_point(|point| point.time <= time);
        let place = next.checked_sub(1)?;
        self.last.store(place, Ordering::Relaxed);
        self.points.get(place)
    }
}

/// What was corrected last makes no difference.
impl PartialEq for TimeCorrections {
    fn eq(&self, other: &Self) -> bool {
        self.points == other.points
    }
}

/// Among numbers of this size there are only integers: what is added to it is rounded. Unlike
/// `round_ties_even`, this is no call on all processors. Exact up to 26 days.
const ROUNDING: f64 = 6_755_399_441_055_744.0;

impl CorrectionPoint {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a drift of a clock, which is exact to a nanosecond"
    )]
    fn rise_until(&self, time: i64) -> i64 {
        let rise = time.wrapping_sub(self.time) as f64 * self.slope;
        // To the nearest: a clock that is held back, at the slope of -1, must not go back.
        ((rise + ROUNDING) - ROUNDING) as i64
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the rounding is far below a nanosecond"
)]
fn slope(from: &TimeCorrection, to: &TimeCorrection) -> f64 {
    let rise = to.ahead.saturating_sub(from.ahead);
    match rise {
        0 => 0.0,
        rise => rise as f64 / to.time.abs_diff(from.time).max(1) as f64,
    }
}

impl Timescale {
    /// The conversion of `clock`; `None` if the sum of its offsets is not an `i64` in seconds.
    #[must_use]
    pub fn new(clock: &Clock) -> Option<Self> {
        // As babeltrace2 does: whole seconds are integers, so that only the rest is rounded.
        let seconds = i64::try_from(clock.offset_cycles / clock.frequency).ok()?;
        let seconds = clock.offset_seconds.checked_add(seconds)?;
        let rest = clock.offset_cycles % clock.frequency;
        let rest = cycles_to_nanoseconds(rest, clock.frequency)?;
        let base = seconds.checked_mul(NANOSECONDS.cast_signed());
        let (base, far_seconds) = match base.and_then(|base| base.checked_add(rest)) {
            Some(base) => (base, 0),
            None => (rest, seconds),
        };
        Some(Self {
            base,
            frequency: clock.frequency,
            far_seconds,
            corrections: None,
        })
    }

    /// A clock of 1 GHz that began in 1970: what is assumed where none is declared.
    pub const UNIX: Self = Self {
        base: 0,
        frequency: NANOSECONDS,
        far_seconds: 0,
        corrections: None,
    };

    /// The seconds from the clock's origin to where nanoseconds are counted from: 0 unless the
    /// clock's zero is more than 292 years from the origin.
    #[inline]
    #[must_use]
    pub const fn far_seconds(&self) -> i64 {
        self.far_seconds
    }

    /// The time of a clock value, in nanoseconds since the origin, or since the [far
    /// seconds](Self::far_seconds) after it; `None` if that is more than 292 years.
    #[inline]
    #[must_use]
    pub fn nanoseconds(&self, cycles: u64) -> Option<i64> {
        let time = cycles_to_nanoseconds(cycles, self.frequency)?;
        let time = self.base.checked_add(time)?;
        match &self.corrections {
            None => Some(time),
            Some(corrections) => corrections.corrected(time),
        }
    }

    /// By how much the [time](Self::nanoseconds) of a clock value may be wrong, in nanoseconds.
    /// `None` if nothing is known of that.
    #[must_use]
    pub fn error(&self, cycles: u64) -> Option<u64> {
        let time = cycles_to_nanoseconds(cycles, self.frequency)?;
        let time = self.base.checked_add(time)?;
        self.corrections.as_ref()?.error(time)
    }

    /// Corrects times, if the clock's zero is near the origin.
    pub(crate) fn set_corrections(&mut self, corrections: &Arc<TimeCorrections>) {
        if self.far_seconds == 0 {
            self.corrections = Some(Arc::clone(corrections));
        }
    }
}

/// Converts in double precision, because `babeltrace2` 2.0.4 does: exact arithmetic would differ
/// from what it prints in the last digits.
#[inline]
fn cycles_to_nanoseconds(cycles: u64, frequency: u64) -> Option<i64> {
    if frequency == NANOSECONDS {
        return i64::try_from(cycles).ok();
    }
    #[expect(clippy::cast_precision_loss, reason = "the rounding is wanted")]
    let nanoseconds = 1e9 * cycles as f64 / frequency as f64;
    // The largest double below 2^63.
    const LIMIT: f64 = 9_223_372_036_854_774_784.0;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "within the limit, and truncation is wanted"
    )]
    (nanoseconds <= LIMIT).then_some(nanoseconds as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(frequency: u64, offset_seconds: i64, offset_cycles: u64) -> Clock {
        Clock {
            name: "c".into(),
            uuid: None,
            description: None,
            frequency,
            precision: None,
            offset_seconds,
            offset_cycles,
            absolute: true,
        }
    }

    #[test]
    fn a_narrow_timestamp_field_that_decreases_has_wrapped_once() {
        assert_eq!(advance_clock(0x1_05, 0x07, 8), 0x1_07);
        assert_eq!(advance_clock(0x1_05, 0x05, 8), 0x1_05);
        assert_eq!(advance_clock(0x1_05, 0x04, 8), 0x2_04);
        assert_eq!(advance_clock(77, 3, 64), 3);
        assert_eq!(advance_clock(u64::MAX, 0, 8), 0);
    }

    #[test]
    fn clock_offsets_are_the_sum_of_seconds_and_cycles() {
        let scale = Timescale::new(&clock(1000, -2, 2500)).unwrap();
        assert_eq!(scale.nanoseconds(0), Some(500_000_000));
        assert_eq!(scale.nanoseconds(1), Some(501_000_000));
        let giga = Timescale::new(&clock(NANOSECONDS, 0, 7)).unwrap();
        assert_eq!(giga.nanoseconds(5), Some(12));
    }

    #[test]
    fn corrections_are_linear_between_points_and_keep_times_in_order() {
        let points = [(1000, 500), (2000, -500), (3000, 500)];
        let points = points.map(|(time, ahead)| TimeCorrection {
            time,
            ahead,
            error: time.unsigned_abs() / 100,
        });
        let corrections = Arc::new(TimeCorrections::new(&points));
        let mut scale = Timescale::new(&clock(NANOSECONDS, 0, 0)).unwrap();
        scale.set_corrections(&corrections);
        let at = |cycles| scale.nanoseconds(cycles).unwrap();
        assert_eq!([0, 1000, 1500, 2000].map(at), [500, 1500, 1500, 1500]);
        assert_eq!([2250, 3000, 4000].map(at), [2000, 3500, 4500]);
        assert!((0..4000).map(at).is_sorted());
        assert!((0..4000).rev().map(at).rev().is_sorted());
        let errors = [999, 1000, 1999, 2000, 2999, 3000].map(|cycles| scale.error(cycles));
        assert_eq!(errors, [None, Some(10), Some(10), Some(20), Some(20), None]);
        let mut far = Timescale::new(&clock(1000, i64::MAX, 0)).unwrap();
        far.set_corrections(&corrections);
        assert_eq!(far.nanoseconds(1), Some(1_000_000));
    }

    #[test]
    fn the_seconds_of_a_clock_that_is_far_from_its_origin_are_kept_apart() {
        for seconds in [1_351_530_929_945_824_323, i64::MAX, i64::MIN] {
            let scale = Timescale::new(&clock(1000, seconds, 500)).unwrap();
            assert_eq!(scale.far_seconds(), seconds);
            assert_eq!(scale.nanoseconds(1), Some(501_000_000));
        }
        let near = Timescale::new(&clock(1000, -9_000_000_000, 500)).unwrap();
        assert_eq!(near.far_seconds(), 0);
    }

    #[test]
    fn a_time_beyond_64_bits_of_nanoseconds_is_refused() {
        assert_eq!(Timescale::new(&clock(1, i64::MAX, 1)), None);
        let slow = Timescale::new(&clock(1, 0, 0)).unwrap();
        assert_eq!(slow.nanoseconds(u64::MAX), None);
        assert_eq!(Timescale::UNIX.nanoseconds(u64::MAX), None);
    }
}
