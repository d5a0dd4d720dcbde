//! Clocks: how timestamps move the clock of a stream, and which time its cycles mean.

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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timescale {
    /// Nanoseconds from the origin, or from the far seconds, to the clock's zero.
    base: i64,
    frequency: u64,
    far_seconds: i64,
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
        })
    }

    /// A clock of 1 GHz that began in 1970: what is assumed where none is declared.
    pub const UNIX: Self = Self {
        base: 0,
        frequency: NANOSECONDS,
        far_seconds: 0,
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
        self.base
            .checked_add(cycles_to_nanoseconds(cycles, self.frequency)?)
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
