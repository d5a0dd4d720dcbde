//! Durations, as users write them.

use std::time::Duration;

/// Parses a duration: a number with a unit, `250ms`, `90s`, `15m`, `12h`, `30d` or `8w`.
///
/// # Errors
/// If the text is no such duration, or its milliseconds do not fit 64 bits; with a message
/// for the user.
pub fn parse(text: &str) -> Result<Duration, String> {
    // The unit that ends with another one first.
    const UNITS: [(&str, u64); 6] = [
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 24 * 3_600_000),
        ("w", 7 * 24 * 3_600_000),
    ];
    UNITS
        .into_iter()
        .find_map(|(unit, millis)| Some((text.strip_suffix(unit)?, millis)))
        .and_then(|(digits, millis)| digits.parse::<u64>().ok()?.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| "not a duration, such as 90s, 15m, 12h, 30d or 8w".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, seconds) in [
            ("0s", 0),
            ("90s", 90),
            ("15m", 900),
            ("12h", 43_200),
            ("30d", 2_592_000),
            ("8w", 4_838_400),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "d", "30", "-1d", "1y", "1.5h", "99999999999999999999w"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
