//! The clock of a replay: maps times of the trace to times at which packets are sent.

use std::str::FromStr;
use std::time::{Duration, Instant};

use thiserror::Error;

/// The speed of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Packets are sent as fast as the relay takes them.
    Max,
    /// A multiple of the original speed: 1.0 is real time.
    Times(f64),
}

/// A text is not a [`Rate`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a rate: realtime, max, or N% with N from 0.1 to 100000")]
pub struct RateError;

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        match text {
            "max" => Ok(Self::Max),
            "realtime" => Ok(Self::Times(1.0)),
            _ => {
                let percent = text.strip_suffix('%').ok_or(RateError)?;
                let percent: f64 = percent.parse().map_err(|_| RateError)?;
                if (0.1..=100_000.0).contains(&percent) {
                    Ok(Self::Times(percent / 100.0))
                } else {
                    Err(RateError)
                }
            }
        }
    }
}

/// The clock of a replay. It starts with the first packet.
#[derive(Debug)]
pub(super) struct ReplayClock {
    rate: Rate,
    /// The first packet's begin in nanoseconds, and when it was sent.
    began: Option<(i64, Instant)>,
    /// The latest begin of a packet, in nanoseconds.
    last: i64,
}

impl ReplayClock {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            began: None,
            last: i64::MIN,
        }
    }

    /// Returns when to send a packet that begins at `time`, in nanoseconds.
    pub(super) fn send_time(&mut self, time: i64, now: Instant) -> Instant {
        self.last = self.last.max(time);
        let (first, began) = *self.began.get_or_insert((time, now));
        let Rate::Times(times) = self.rate else {
            return now;
        };
        let since = time.saturating_sub(first).max(0).unsigned_abs();
        // From the first packet on, and not from the one before: delays do not add up.
        let lasts = Duration::from_nanos(since).div_f64(times);
        began.checked_add(lasts).unwrap_or(now)
    }

    /// Returns the present time of the trace, in nanoseconds; none before the first packet.
    pub(super) fn trace_time(&self, now: Instant) -> Option<i64> {
        let (first, began) = self.began?;
        let Rate::Times(times) = self.rate else {
            return Some(self.last);
        };
        let passed = now.saturating_duration_since(began).mul_f64(times);
        let passed = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        Some(first.saturating_add(passed).max(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_as_words_or_percentages() {
        assert_eq!("max".parse(), Ok(Rate::Max));
        assert_eq!("realtime".parse(), Ok(Rate::Times(1.0)));
        assert_eq!("250%".parse(), Ok(Rate::Times(2.5)));
        for text in ["", "2", "%", "-5%", "0%", "NaN%", "inf%", "fast"] {
            assert_eq!(text.parse::<Rate>(), Err(RateError), "{text}");
        }
    }

    #[test]
    fn packets_are_due_at_their_intervals_scaled_by_the_rate() {
        let start = Instant::now();
        let mut clock = ReplayClock::new(Rate::Times(2.0));
        assert_eq!(clock.trace_time(start), None);
        assert_eq!(clock.send_time(1000, start), start);
        assert_eq!(
            clock.send_time(3000, start),
            start + Duration::from_nanos(1000)
        );
        // A packet from before the first one is due at once.
        assert_eq!(clock.send_time(0, start), start);
        assert_eq!(
            clock.trace_time(start + Duration::from_nanos(5000)),
            Some(11_000)
        );
        let mut clock = ReplayClock::new(Rate::Max);
        let later = start + Duration::from_secs(9);
        assert_eq!(clock.send_time(1000, start), start);
        assert_eq!(clock.send_time(i64::MAX, later), later);
    }

    #[test]
    fn extreme_packet_times_do_not_overflow() {
        let start = Instant::now();
        let mut clock = ReplayClock::new(Rate::Times(0.001));
        clock.send_time(i64::MIN, start);
        clock.send_time(i64::MAX, start);
        clock.trace_time(start + Duration::from_secs(1 << 40));
    }
}
