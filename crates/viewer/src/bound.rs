//! Times as users type them: `--begin` and `--end`.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use thiserror::Error;

use crate::time::Nanoseconds;

/// A time that events are compared with.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// A time since the clock's origin.
    At(Nanoseconds),
    /// A time of the day: on that of the first event it is compared with.
    OfDay(Time, TimeZone),
}

/// A time as it was typed, before the time zone is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypedTime {
    /// `SECONDS[.N]`: a time since the clock's origin.
    Seconds(Nanoseconds),
    /// `YYYY-MM-DD HH:MM:SS[.N]`: a date and a time of the day.
    DateTime(Date, Time),
    /// `HH:MM:SS[.N]`: a time of the day.
    OfDay(Time),
}

/// The error for a text that is no time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected [YYYY-MM-DD ]HH:MM:SS[.NNNNNNNNN] or SECONDS[.NNNNNNNNN]")]
pub struct NoTime;

impl FromStr for TypedTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        let text = text.trim();
        if !text.contains(':') {
            return seconds(text).map(Self::Seconds).ok_or(NoTime);
        }
        // Users copy times from babeltrace2, with a space, and from logs, with the `T` of ISO 8601.
        let (date, time) = match text.split_once([' ', 'T']) {
            Some((date, time)) => (Some(date), time),
            None => (None, text),
        };
        let time: Time = time.trim().parse().map_err(|_| NoTime)?;
        match date {
            Some(date) => {
                let date: Date = date.parse().map_err(|_| NoTime)?;
                Ok(Self::DateTime(date, time))
            }
            None => Ok(Self::OfDay(time)),
        }
    }
}

fn seconds(text: &str) -> Option<Nanoseconds> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    // More than nine digits would say more than nanoseconds, and be read as another time.
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    // Zeros follow, because `.5` is half a second.
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    let nanoseconds = whole.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
    Nanoseconds::new(nanoseconds.checked_mul(sign)?)
}

impl TypedTime {
    /// The bound that is meant if dates and times of the day are those of `zone`.
    #[must_use]
    pub fn in_zone(self, zone: &TimeZone) -> Bound {
        match self {
            Self::Seconds(time) => Bound::At(time),
            Self::DateTime(date, time) => Bound::At(on_date(date, time, zone)),
            Self::OfDay(time) => Bound::OfDay(time, zone.clone()),
        }
    }
}

impl Bound {
    /// The bound as a time since the clock's origin. A time of the day is on the date of `time`,
    /// that of the event with which the bound is first compared.
    #[inline]
    pub fn time(&mut self, time: Nanoseconds) -> Nanoseconds {
        match self {
            Self::At(at) => *at,
            Self::OfDay(of_day, zone) => {
                let stamp = Timestamp::from_nanosecond(i128::from(time.get())).unwrap_or_default();
                let at = on_date(stamp.to_zoned(zone.clone()).date(), *of_day, zone);
                // Kept for all later events: a run may go past midnight.
                *self = Self::At(at);
                at
            }
        }
    }
}

fn on_date(date: Date, time: Time, zone: &TimeZone) -> Nanoseconds {
    let at = date.to_datetime(time).to_zoned(zone.clone());
    let nanoseconds = at.map_or(0, |at| at.timestamp().as_nanosecond());
    let nanoseconds = i64::try_from(nanoseconds).ok();
    nanoseconds
        .and_then(Nanoseconds::new)
        .unwrap_or(Nanoseconds::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        let typed: TypedTime = text.parse().unwrap();
        let event = Nanoseconds::new(1_700_000_000_000_000_260).unwrap();
        typed.in_zone(&TimeZone::UTC).time(event).get()
    }

    #[test]
    fn a_time_of_day_is_on_the_date_of_the_first_event() {
        assert_eq!(at("22:13:20"), 1_700_000_000_000_000_000);
        assert_eq!(at("2023-11-14 22:13:20.5"), 1_700_000_000_500_000_000);
        assert_eq!(at("1700000000.000000001"), 1_700_000_000_000_000_001);
        assert_eq!(at("-1.5"), -1_500_000_000);
    }

    #[test]
    fn an_invalid_time_is_refused() {
        for text in [
            "",
            "x",
            "1:2",
            "25:00:00",
            "1.2.3",
            "2023-13-01 00:00:00",
            "1.0000000001",
        ] {
            assert_eq!(text.parse::<TypedTime>(), Err(NoTime), "{text}");
        }
    }
}
