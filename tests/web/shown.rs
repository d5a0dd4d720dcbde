//! Numbers and times as a page shows them, to be compared with exact ones.

/// A number that is shown, and by how much it may differ because it is rounded.
#[derive(Debug)]
pub(crate) struct Shown {
    text: String,
    value: f64,
    rounding: f64,
}

const DURATIONS: [(&str, f64); 7] = [
    ("d", 86_400e9),
    ("h", 3600e9),
    ("min", 60e9),
    ("s", 1e9),
    ("ms", 1e6),
    ("µs", 1e3),
    ("ns", 1.0),
];
const COUNTS: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];

impl Shown {
    /// A duration with about four digits.
    pub(crate) fn of_duration(text: &str) -> Self {
        let (value, unit) = with_unit(text, &DURATIONS);
        // At least three digits after the first one, and whole nanoseconds.
        Self::new(
            text,
            value,
            (value.abs() * 5.1e-4).max(unit.min(1.0) * 0.51),
        )
    }

    /// A number of events, which has a unit if it is large.
    pub(crate) fn of_count(text: &str) -> Self {
        let (value, unit) = with_unit(text, &COUNTS);
        let digit = if unit > 1.0 { 0.1 } else { 1.0 };
        Self::new(text, value, unit * digit * 0.501)
    }

    /// A whole number with commas.
    pub(crate) fn of_exact(text: &str) -> Self {
        let value = text.replace(',', "").parse().unwrap();
        Self::new(text, value, 0.51)
    }

    /// A value of a counter, with six digits.
    pub(crate) fn of_value(text: &str) -> Self {
        let value: f64 = text.replace(',', "").parse().unwrap();
        Self::new(text, value, value.abs() * 5.1e-6)
    }

    fn new(text: &str, value: f64, rounding: f64) -> Self {
        Self {
            text: text.to_owned(),
            value,
            rounding,
        }
    }

    /// Fails unless this shows a number.
    pub(crate) fn assert(&self, expected: f64, what: &str) {
        self.assert_within(expected, 0.0, what);
    }

    /// Fails unless this shows a number, or one that differs by no more than this part.
    pub(crate) fn assert_within(&self, expected: f64, part: f64, what: &str) {
        let error = (self.value - expected).abs();
        assert!(
            error <= self.rounding + expected.abs() * part,
            "{what}: {:?} is shown, and not {expected}",
            self.text
        );
    }
}

/// A number with a unit, and the unit.
fn with_unit(text: &str, units: &[(&str, f64)]) -> (f64, f64) {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let unit = text[end..].trim();
    let scale = units.iter().find(|(name, _)| *name == unit);
    let (_, scale) = scale.unwrap_or_else(|| panic!("{text:?} has no unit"));
    let number: f64 = text[..end].parse().unwrap();
    (number * scale, *scale)
}

const DAY: i64 = 86_400;

/// A time as a page shows it, in the time zone of the tests: `2026-01-31 12:00:00.123 456 789`.
pub(crate) fn date_and_time(ns: i64) -> String {
    let (seconds, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (mut days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let mut year = 1970;
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let parts = [rest / 1_000_000, rest / 1000 % 1000, rest % 1000];
    let [ms, us, ns] = parts.map(|part| format!("{part:03}"));
    format!(
        "{year}-{:02}-{:02} {hour:02}:{minute:02}:{:02}.{ms}\u{2009}{us}\u{2009}{ns}",
        month + 1,
        days + 1,
        second % 60
    )
}

/// The nanoseconds since midnight of a time that ends with hours, minutes, seconds and perhaps a
/// fraction.
pub(crate) fn nanoseconds_of_day(text: &str) -> i64 {
    let clock = text.rsplit(' ').next().unwrap();
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let seconds = clock
        .split(':')
        .fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap());
    let digits: String = fraction.chars().filter(char::is_ascii_digit).collect();
    let fraction: i64 = format!("{digits:0<9}").parse().unwrap();
    seconds * 1_000_000_000 + fraction
}
