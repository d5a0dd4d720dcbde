//! Numbers as JSON writes them, exactly: a floating point number has no room for nanoseconds
//! since 1970.

/// Powers of ten that fit.
#[expect(clippy::indexing_slicing, reason = "worked out by the compiler")]
const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut power = 1;
    while power < powers.len() {
        powers[power] = powers[power - 1] * 10;
        power += 1;
    }
    powers
};

/// Digits of microseconds in a nanosecond.
const DECIMALS: usize = 3;

/// A number of microseconds, as nanoseconds, if it is whole so and fits.
pub(super) fn nanoseconds(number: &str) -> Option<i64> {
    plain_nanoseconds(number).or_else(|| any_nanoseconds(number))
}

/// The nanoseconds of a number with so few digits that nothing can overflow, and no more than three
/// decimals.
fn plain_nanoseconds(number: &str) -> Option<i64> {
    // 10^15 microseconds are 10^18 nanoseconds, which an `i64` holds.
    const MAX_BYTES: usize = 15;
    let (is_negative, digits) = sign(number);
    if digits.len() > MAX_BYTES {
        return None;
    }
    let mut value = 0;
    let mut point = None;
    for (place, byte) in digits.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + i64::from(byte - b'0'),
            // One at most: the scan of the line has checked that this is a number.
            b'.' => point = Some(place),
            _ => return None,
        }
    }
    let decimals = point.map_or(0, |point| digits.len() - point - 1);
    let missing = DECIMALS.checked_sub(decimals)?;
    let value = value * i64::try_from(*POWERS.get(missing)?).ok()?;
    Some(if is_negative { -value } else { value })
}

/// The nanoseconds of any number that JSON knows.
fn any_nanoseconds(number: &str) -> Option<i64> {
    let (is_negative, number) = sign(number);
    let (mantissa, power) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value = 0_u64;
    let mut zeros = 0_usize; // Behind the last digit that is none.
    for digit in whole.bytes().chain(fraction.bytes()) {
        zeros += 1;
        if digit != b'0' {
            // Zeros before the first other digit do not count, however many they are.
            if value > 0 {
                // More zeros than the table has are more than the result may have.
                value = value.checked_mul(*POWERS.get(zeros)?)?;
            }
            value = value.checked_add(u64::from(digit.checked_sub(b'0')?))?;
            zeros = 0;
        }
    }
    if value == 0 {
        return Some(0);
    }
    // One that does not fit is far beyond all that could be made good by digits.
    let power: i64 = power.parse().ok()?;
    let length = |of: usize| i64::try_from(of).ok();
    let power = power
        .checked_add(length(DECIMALS)?)?
        .checked_add(length(zeros)?)?
        .checked_sub(length(fraction.len())?)?;
    let value = value.checked_mul(*POWERS.get(usize::try_from(power).ok()?)?)?;
    if is_negative {
        // The least `i64` has no positive counterpart.
        0_i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// A number of microseconds, as nanoseconds rounded to whole ones, if it is a number and fits.
pub(crate) fn rounded_nanoseconds(number: &str) -> Option<i64> {
    // What JSON knows as a number, and not all that Rust does.
    let is_number = number.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    let float: f64 = number.parse().ok().filter(|_| is_number)?;
    if let Some(exact) = nanoseconds(number) {
        return Some(exact);
    }
    let cut = number.find('.').map(|point| point + 1 + DECIMALS);
    if let Some((whole, rest)) = cut.and_then(|cut| number.split_at_checked(cut))
        && rest.bytes().all(|byte| byte.is_ascii_digit())
    {
        let up = i64::from(rest.as_bytes().first().is_some_and(|digit| *digit >= b'5'));
        let up = if number.starts_with('-') { -up } else { up };
        return nanoseconds(whole)?.checked_add(up);
    }
    let nanoseconds = (float * 1000.0).round();
    #[expect(clippy::cast_possible_truncation, reason = "it is looked at first")]
    let whole = nanoseconds as i64;
    // Below the largest `i64`, so that the cast has not saturated.
    (nanoseconds.abs() < 9e18).then_some(whole)
}

/// A whole number, written as one, if it fits.
pub(super) fn integer(number: &str) -> Option<i64> {
    number.parse().ok()
}

fn sign(number: &str) -> (bool, &str) {
    match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_of_whole_nanoseconds_are_parsed_exactly() {
        for (number, want) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("0.0e9999999999999999999", Some(0)),
            ("1", Some(1000)),
            ("-1.5", Some(-1500)),
            ("12.340", Some(12340)),
            ("1.2345", None),
            ("1.2340", Some(1234)),
            ("1234567.89", Some(1_234_567_890)),
            ("1754000000000000.123", Some(1_754_000_000_000_000_123)),
            ("1e3", Some(1_000_000)),
            ("1.5E+2", Some(150_000)),
            ("1500e-3", Some(1500)),
            ("1e-3", Some(1)),
            ("1e-4", None),
            ("10000000000000000000000000000e-25", Some(1_000_000)),
            ("0.00000000000000000000000000001e30", Some(10_000)),
            ("9223372036854775.807", Some(i64::MAX)),
            ("9223372036854775.808", None),
            ("-9223372036854775.808", Some(i64::MIN)),
            ("-9223372036854775.809", None),
            ("1e999", None),
            ("1e-999", None),
            ("1e99999999999999999999", None),
        ] {
            assert_eq!(nanoseconds(number), want, "{number}");
        }
    }

    #[test]
    fn times_finer_than_nanoseconds_are_rounded_without_a_loss_of_digits() {
        for (number, want) in [
            ("1767225600000001.00149", Some(1_767_225_600_000_001_001)),
            ("1767225600000001.0015", Some(1_767_225_600_000_001_002)),
            ("1767225600000001.9999", Some(1_767_225_600_000_002_000)),
            ("-1.0005", Some(-1001)),
            ("1e-4", Some(0)),
            ("1.23456e0", Some(1235)),
            ("1e999", None),
            ("9223372036854775.8079", None),
            ("", None),
            ("soon", None),
            ("inf", None),
            ("1.5x", None),
            ("1.12345x", None),
        ] {
            assert_eq!(rounded_nanoseconds(number), want, "{number}");
        }
    }

    proptest! {
        #[test]
        fn the_fast_and_the_general_parser_of_times_agree(number in "-?(0|[1-9][0-9]{0,10})(\\.[0-9]{1,4})?") {
            if let Some(value) = plain_nanoseconds(&number) {
                prop_assert_eq!(any_nanoseconds(&number), Some(value));
            }
        }

        #[test]
        fn any_written_time_is_parsed_to_the_same_nanoseconds(value: i64) {
            let mut text = Vec::new();
            super::super::write_microseconds(value.into(), &mut text);
            prop_assert_eq!(nanoseconds(std::str::from_utf8(&text).unwrap()), Some(value));
        }
    }
}
