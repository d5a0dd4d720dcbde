//! Times as text, in the forms that the options `--clock-*` select.

use std::io::Write;

use ctf::decode::Event;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use viewer::select::WriteTime;

use super::line::{Line, Literal};
use super::number;

const NANOSECONDS: i64 = 1_000_000_000;

/// The format of times.
#[derive(Debug, Clone, Default)]
pub struct ClockFormat {
    /// Seconds since the origin instead of the time of day. (`--clock-seconds`)
    pub seconds: bool,
    /// Cycles instead of time. (`--clock-cycles`)
    pub cycles: bool,
    /// The date before the time of day. (`--clock-date`)
    pub date: bool,
    /// Whether times are in UTC instead of the zone of this host. (`--clock-gmt`)
    pub gmt: bool,
    /// Nanoseconds to be added. (`--clock-offset`, `--clock-offset-ns`)
    pub offset: i64,
}

impl ClockFormat {
    /// The time zone in which times are typed and shown.
    #[must_use]
    pub fn zone(&self) -> TimeZone {
        if self.gmt {
            TimeZone::UTC
        } else {
            TimeZone::system()
        }
    }
}

/// The time of an event of a stream with a clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownTime {
    pub(crate) cycles: u64,
    /// The time in nanoseconds. Absent if it is not known.
    pub(crate) time: Option<i64>,
    /// The seconds that are to be added, so many that the time is not shown as a date.
    far_seconds: i64,
}

impl ShownTime {
    /// A time in nanoseconds that may be shown as a date.
    pub(crate) const fn near(time: i64) -> Self {
        Self {
            cycles: 0,
            time: Some(time),
            far_seconds: 0,
        }
    }

    /// The time of `event`; `None` if its stream has no clock.
    #[inline]
    pub(crate) fn of(event: &Event<'_>) -> Option<Self> {
        let scale = event.stream_class().timescale()?;
        Some(Self {
            cycles: event.cycles(),
            time: event.time(),
            far_seconds: scale.far_seconds(),
        })
    }
}

/// Writes times. Remembers the text of the second that was shown last: most events share one.
#[derive(Debug)]
pub struct Times {
    format: ClockFormat,
    zone: TimeZone,
    /// Where the second of the text begins, in nanoseconds; the least number if there is no text
    /// yet.
    second: i64,
    text: Literal,
}

impl Times {
    /// A writer of times in the zone of this host, unless `format` says otherwise.
    #[must_use]
    pub fn new(format: ClockFormat) -> Self {
        let zone = format.zone();
        Self {
            format,
            zone,
            second: i64::MIN,
            text: Literal::default(),
        }
    }

    /// Makes a writer of times for messages.
    #[must_use]
    pub fn into_writer(mut self) -> WriteTime {
        Box::new(move |time, out| self.write(out, time.get()))
    }

    /// Appends a time in nanoseconds since 1970.
    pub fn write(&mut self, out: &mut Vec<u8>, time: i64) {
        match self.time_of_day(time) {
            Ok(rest) => {
                out.extend_from_slice(self.text.text());
                number::nine_digits(out, rest);
            }
            Err(time) => signed_seconds(out, time),
        }
    }

    /// Appends a time in nanoseconds since 1970 to a line.
    #[inline]
    fn write_to_line(&mut self, line: &mut Line<'_>, time: i64) {
        match self.time_of_day(time) {
            Ok(rest) => {
                line.literal(&self.text);
                line.nine_digits(rest);
            }
            Err(time) => signed_seconds(line.out(), time),
        }
    }

    /// Returns the nanoseconds after the second of the text. Fails with the time to be shown, in
    /// nanoseconds, if that is not to be shown as a time of day.
    #[inline]
    fn time_of_day(&mut self, time: i64) -> Result<u64, i64> {
        let time = time.saturating_add(self.format.offset);
        if self.format.seconds || time < 0 {
            return Err(time);
        }
        // Without a text, the second is the least number: the difference wraps, and is too large.
        let rest = |second| time.wrapping_sub(second).cast_unsigned();
        if rest(self.second) >= NANOSECONDS.cast_unsigned() {
            self.set_second(time / NANOSECONDS);
        }
        Ok(rest(self.second))
    }

    #[cold]
    fn set_second(&mut self, second: i64) {
        let mut text = Vec::new();
        if let Ok(stamp) = Timestamp::from_second(second) {
            let at = stamp.to_zoned(self.zone.clone());
            // Writing to memory does not fail.
            if self.format.date {
                let _ = write!(text, "{} ", at.date());
            }
            let (hour, minute, second) = (at.hour(), at.minute(), at.second());
            let _ = write!(text, "{hour:02}:{minute:02}:{second:02}.");
        }
        self.text = text.into();
        self.second = second * NANOSECONDS;
    }

    /// Appends the time of an event of a stream with a clock: that which users have chosen, as far
    /// as it is known.
    pub(crate) fn write_event_time(&mut self, out: &mut Vec<u8>, time: ShownTime) {
        let ShownTime {
            cycles,
            time,
            far_seconds,
        } = time;
        match time {
            _ if self.format.cycles => Self::write_cycles(out, cycles),
            Some(time) if far_seconds != 0 => {
                far_time(out, far_seconds, time.saturating_add(self.format.offset));
            }
            Some(time) => self.write(out, time),
            None => out.extend_from_slice(b"??:??:??.?????????"),
        }
    }

    /// Appends the time of an event of a stream with a clock to a line.
    #[inline]
    pub(super) fn write_event_time_to_line(&mut self, line: &mut Line<'_>, time: ShownTime) {
        match time.time {
            Some(near) if !self.format.cycles && time.far_seconds == 0 => {
                self.write_to_line(line, near);
            }
            _ => self.write_event_time(line.out(), time),
        }
    }

    /// Appends the cycles of an event's clock.
    fn write_cycles(out: &mut Vec<u8>, cycles: u64) {
        // As many digits as the largest number of 64 bits has, as in babeltrace2.
        padded(out, cycles, 20);
    }
}

fn signed_seconds(out: &mut Vec<u8>, nanoseconds: i64) {
    if nanoseconds < 0 {
        out.push(b'-');
    }
    seconds(out, nanoseconds.unsigned_abs());
}

/// Writes the seconds of a time that is too far to be a date, as `SECONDS.NNNNNNNNN`.
#[cold]
fn far_time(out: &mut Vec<u8>, seconds: i64, nanoseconds: i64) {
    // As nanoseconds, times this far away do not fit into 64 bits.
    let sum = i128::from(seconds) * i128::from(NANOSECONDS) + i128::from(nanoseconds);
    let second = u128::from(NANOSECONDS.unsigned_abs());
    let (whole, rest) = (sum.unsigned_abs() / second, sum.unsigned_abs() % second);
    let sign = if sum < 0 { "-" } else { "" };
    // Writing to memory does not fail.
    let _ = write!(out, "{sign}{whole}.{rest:09}");
}

/// Writes nanoseconds as `SECONDS.NNNNNNNNN` to a line.
#[inline]
pub(super) fn seconds_to_line(line: &mut Line<'_>, nanoseconds: u64) {
    let second = NANOSECONDS.unsigned_abs();
    if nanoseconds < second {
        line.copy(b"0.", 2);
        line.nine_digits(nanoseconds);
    } else {
        seconds(line.out(), nanoseconds);
    }
}

/// Writes nanoseconds as `SECONDS.NNNNNNNNN`.
fn seconds(out: &mut Vec<u8>, nanoseconds: u64) {
    let second = NANOSECONDS.unsigned_abs();
    number::decimal(out, nanoseconds / second);
    out.push(b'.');
    number::nine_digits(out, nanoseconds % second);
}

/// Writes a number with zeros in front: at least `width` digits, at most 20.
pub(super) fn padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    let zeros = width.saturating_sub(digits.len());
    out.extend_from_slice(
        "00000000000000000000"
            .get(..zeros)
            .unwrap_or_default()
            .as_bytes(),
    );
    out.extend_from_slice(digits.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: ClockFormat, time: i64) -> String {
        let (mut out, format) = (
            Vec::new(),
            ClockFormat {
                gmt: true,
                ..format
            },
        );
        Times::new(format).write(&mut out, time);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_time_in_text_is_the_time_of_day_with_nine_digits() {
        let time = 1_700_000_000_000_000_260;
        assert_eq!(shown(ClockFormat::default(), time), "22:13:20.000000260");
        let date = ClockFormat {
            date: true,
            ..ClockFormat::default()
        };
        assert_eq!(shown(date, time), "2023-11-14 22:13:20.000000260");
        let plain = ClockFormat {
            seconds: true,
            ..ClockFormat::default()
        };
        assert_eq!(shown(plain.clone(), time), "1700000000.000000260");
        assert_eq!(shown(plain, -1_500_000_000), "-1.500000000");
    }

    #[test]
    fn a_time_too_far_to_be_a_date_is_shown_as_seconds() {
        let far = |far_seconds, time| {
            let mut out = Vec::new();
            let shown = ShownTime {
                cycles: 7,
                time: Some(time),
                far_seconds,
            };
            Times::new(ClockFormat::default()).write_event_time(&mut out, shown);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            far(i64::MAX, 1_000_000_001),
            "9223372036854775808.000000001"
        );
        assert_eq!(far(i64::MIN, 5), "-9223372036854775807.999999995");
    }

    #[test]
    fn the_cached_second_of_a_time_is_used_for_that_second_only() {
        let mut times = Times::new(ClockFormat {
            gmt: true,
            ..ClockFormat::default()
        });
        let mut out = Vec::new();
        for time in [999_999_999, 1_000_000_000, 1_000_000_001, 0] {
            times.write(&mut out, time);
            out.push(b' ');
        }
        assert_eq!(
            out,
            b"00:00:00.999999999 00:00:01.000000000 00:00:01.000000001 00:00:00.000000000 "
        );
    }
}
