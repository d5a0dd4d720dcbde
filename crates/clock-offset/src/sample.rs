//! What is measured, and what follows from it.

/// One comparison of two clocks, of the one that `time` is of, and another. All numbers are
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// The time of the first clock.
    pub time: i64,
    /// By how much the other clock was ahead of it; negative if it was behind.
    pub ahead: i64,
    /// By how much `ahead` may be wrong: half of the time between question and answer.
    pub error: u64,
    /// By how much the time of day of the first clock's host was ahead of that clock. It changes
    /// when the time of day is set, and while the host is suspended.
    pub realtime: i64,
    /// The same of the other clock.
    pub other_realtime: i64,
}

impl ClockSample {
    /// Returns the same comparison, seen from the other clock.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            time: self.time.saturating_add(self.ahead),
            ahead: self.ahead.saturating_neg(),
            error: self.error,
            realtime: self.other_realtime,
            other_realtime: self.realtime,
        }
    }
}

/// How far one clock is ahead of another at some time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// By how much the other clock is ahead; negative if it is behind.
    pub ahead: i64,
    /// By how much `ahead` may be wrong.
    pub error: u64,
}

impl ClockOffset {
    /// The offset that contains all of both.
    pub(crate) fn hull(self, other: Self) -> Self {
        Self::between(self.low().min(other.low()), self.high().max(other.high()))
    }

    /// The offset that contains all from `low` to `high`.
    pub(crate) fn between(low: i128, high: i128) -> Self {
        Self {
            ahead: saturate((low + high) / 2),
            // Rounded up, and with the rounding of the middle.
            error: u64::try_from((high - low) / 2 + 1).unwrap_or(u64::MAX),
        }
    }

    fn low(self) -> i128 {
        i128::from(self.ahead) - i128::from(self.error)
    }

    fn high(self) -> i128 {
        i128::from(self.ahead) + i128::from(self.error)
    }
}

/// Returns the nearest number of 64 bits.
pub(crate) fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}
