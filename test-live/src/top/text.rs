//! Names and numbers as short texts: names of peers are hostile, and a line of a terminal is short.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Largest number of characters of a name that are kept.
pub(super) const MAX_NAME_CHARACTERS: usize = 256;

/// The levels of a sparkline, the lowest first.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// `name` with each control character and each character that changes the direction of text as an
/// escape sequence, and without what is beyond [`MAX_NAME_CHARACTERS`].
pub(super) fn escape_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len().min(MAX_NAME_CHARACTERS));
    for character in name.chars().take(MAX_NAME_CHARACTERS) {
        let changes_direction = matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        if character.is_control() || changes_direction {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// `text` if it takes at most `columns` columns of a terminal, else its beginning and an ellipsis.
pub(crate) fn cut_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut cut = String::new();
    // One column is for the ellipsis.
    let mut free = columns.saturating_sub(1);
    for character in text.chars() {
        // Some characters take two columns, others none.
        let width = character.width().unwrap_or(0);
        if width > free {
            break;
        }
        free -= width;
        cut.push(character);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// A number in at most six characters: `99999`, `123.4k`, `1.0M`.
pub(super) fn short_number(number: u64) -> String {
    if number < 100_000 {
        return number.to_string();
    }
    let units = ['k', 'M', 'G', 'T', 'P', 'E'];
    let mut tenths = number / 100;
    let mut units = units.into_iter();
    let mut unit = units.next();
    while tenths >= 10_000 {
        let Some(next) = units.next() else { break };
        (tenths, unit) = (tenths / 1000, Some(next));
    }
    let unit = unit.unwrap_or_default();
    format!("{}.{}{unit}", tenths / 10, tenths % 10)
}

/// Events per 1000 seconds as events per second, in at most six characters.
pub(super) fn short_rate(per_kilosecond: u64) -> String {
    // Rounded first: 9.96 is 10.
    match per_kilosecond.saturating_add(50) / 100 {
        0 if per_kilosecond > 0 => "<0.1".to_owned(),
        tenths @ 1..100 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => short_number(per_kilosecond.saturating_add(500) / 1000),
    }
}

/// A duration in nanoseconds in at most six characters; `-` if it is not known.
pub(super) fn short_duration(nanoseconds: Option<i64>) -> String {
    let Some(nanoseconds) = nanoseconds else {
        return "-".to_owned();
    };
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let milliseconds = nanoseconds.unsigned_abs() / 1_000_000;
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{sign}{seconds}.{}s", milliseconds % 1000 / 100),
        60..3600 => format!("{sign}{}m{:02}", seconds / 60, seconds % 60),
        3600..360_000 => format!("{sign}{}h{:02}", seconds / 3600, seconds / 60 % 60),
        _ => format!("{sign}{}d", seconds / 86_400),
    }
}

/// The last `columns` values as bars, the newest at the right.
pub(super) fn sparkline(values: impl ExactSizeIterator<Item = u64>, columns: usize) -> String {
    let values: Vec<u64> = {
        let skipped = values.len().saturating_sub(columns);
        values.skip(skipped).collect()
    };
    let max = values.iter().copied().max().unwrap_or(0);
    let bar = |value: &u64| {
        // A value that is not zero shows at least the lowest bar.
        let level = u128::from(*value) * (LEVELS.len() as u128 - 1);
        let level = level.checked_div(u128::from(max)).unwrap_or(0);
        let level = usize::try_from(level).unwrap_or(0);
        match value {
            0 => ' ',
            _ => LEVELS.get(level).copied().unwrap_or(' '),
        }
    };
    let bars: String = values.iter().map(bar).collect();
    format!("{bars:>columns$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_direction_characters_of_names_are_escaped() {
        assert_eq!(escape_name("a\u{1b}[2J\n"), "a\\u{1b}[2J\\u{a}");
        assert_eq!(escape_name("a\u{202e}b\u{9b}é"), "a\\u{202e}b\\u{9b}é");
        let long = "x".repeat(1000);
        assert_eq!(escape_name(&long).len(), MAX_NAME_CHARACTERS);
    }

    #[test]
    fn names_are_cut_by_the_columns_that_they_take() {
        for (name, columns, want) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
        ] {
            assert_eq!(cut_to_width(name, columns), want, "{name} {columns}");
        }
    }

    #[test]
    fn numbers_take_at_most_six_characters() {
        for (number, want) in [
            (0, "0"),
            (99_999, "99999"),
            (100_000, "100.0k"),
            (999_999, "999.9k"),
            (1_000_000, "1.0M"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(short_number(number), want);
        }
        for (rate, want) in [
            (0, "0"),
            (1, "<0.1"),
            (50, "0.1"),
            (500, "0.5"),
            (9_940, "9.9"),
            (9_960, "10"),
            (1_234_000, "1234"),
        ] {
            assert_eq!(short_rate(rate), want, "{rate}");
        }
    }

    #[test]
    fn durations_take_at_most_six_characters() {
        const SECOND: i64 = 1_000_000_000;
        for (duration, want) in [
            (None, "-"),
            (Some(1), "0.0s"),
            (Some(SECOND * 3 / 2), "1.5s"),
            (Some(-SECOND * 3 / 2), "-1.5s"),
            (Some(SECOND * 61), "1m01"),
            (Some(SECOND * 3600 * 99), "99h00"),
            (Some(SECOND * 86_400 * 20), "20d"),
            (Some(i64::MIN), "-106751d"),
        ] {
            assert_eq!(short_duration(duration), want);
        }
    }

    #[test]
    fn sparkline_shows_the_newest_values_at_the_right() {
        assert_eq!(sparkline([1, 0, 4, 8].into_iter(), 3), " ▄█");
        assert_eq!(sparkline([7].into_iter(), 3), "  █");
        assert_eq!(sparkline([0, 1, 700].into_iter(), 3), " ▁█");
        assert_eq!(sparkline([].into_iter(), 2), "  ");
    }
}
