//! Names of the directories of partitions: `event=NAME/day=YYYY-MM-DD/host=HOST`.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::PathBuf;

use ctf::decode::Event;
use jiff::Span;
use jiff::civil::date;

/// Largest number of bytes of an encoded name: file systems take 255 for `event=` and the name.
const MAX_ENCODED_BYTES: usize = 200;
/// The number of bytes of `~` and a hash, encoded.
const HASH_BYTES: usize = 19;
/// What Hive and its successors read as a name that is not known.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// Nanoseconds of a day.
const DAY: i64 = 86_400_000_000_000;

/// A day of UTC, counted from 1970-01-01. Absent if the time is not known.
pub(super) type Day = Option<i32>;

/// The day of a time in nanoseconds since 1970.
pub(super) fn day_of(time: Option<i64>) -> Day {
    // 64 bits of nanoseconds are 213 504 days.
    i32::try_from(time?.div_euclid(DAY)).ok()
}

/// The directory of a partition, relative to that of the output. Its parts are single names,
/// whatever the names of event and host are.
pub(super) fn partition(event: Option<&str>, day: Day, host: Option<&str>) -> PathBuf {
    let named = |key: &str, name: Option<&str>| {
        let name = name.map_or_else(|| UNKNOWN.to_owned(), encode);
        format!("{key}={name}")
    };
    let day = day.and_then(|day| date(1970, 1, 1).checked_add(Span::new().days(day)).ok());
    let day = day.map_or_else(|| UNKNOWN.to_owned(), |day| day.to_string());
    let mut path = PathBuf::from(named("event", event));
    path.push(format!("day={day}"));
    path.push(named("host", host));
    path
}

/// A name as Hive, Spark, DuckDB and Polars decode it: what is not a letter, a digit or one of
/// `_-.` is `%XX`. Letters beyond ASCII stay as they are, because Spark decodes byte by byte. A
/// long name ends in `~` and a hash of all of it.
fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    // The end of the last character before which a hash has room.
    let mut cut = 0;
    for char in name.chars() {
        if char.is_alphanumeric() || matches!(char, '_' | '-' | '.') {
            encoded.push(char);
        } else {
            for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a `String` does not fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        if encoded.len() <= MAX_ENCODED_BYTES - HASH_BYTES {
            cut = encoded.len();
        }
        if encoded.len() > MAX_ENCODED_BYTES {
            // Without random keys: the same name is the same directory in every run.
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
            encoded.truncate(cut);
            return format!("{encoded}%7E{hash:016x}");
        }
    }
    // Readers take these for a name that is not known.
    if encoded.is_empty() || encoded == UNKNOWN {
        return format!("%5F{}", encoded.get(1..).unwrap_or_default());
    }
    encoded
}

/// The time of an event in nanoseconds since 1970, if 64 bits can hold it.
pub(super) fn nanoseconds(event: &Event<'_>) -> Option<i64> {
    match event.far_seconds() {
        0 => event.time(),
        _ => i64::try_from(event.exact_time()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

    use proptest::prelude::*;

    use super::*;

    /// Decodes `%XX` as Hive does.
    fn decode(name: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = name.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            if *first == b'%' {
                let digits = std::str::from_utf8(&after[..2]).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &after[2..];
            } else {
                bytes.push(*first);
                rest = after;
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_partition_is_named_by_event_day_and_host() {
        for (event, time, host, want) in [
            (
                Some("sched_switch"),
                Some(1_767_225_599_999_999_999),
                Some("web-1.example"),
                "event=sched_switch/day=2025-12-31/host=web-1.example",
            ),
            (
                Some("app:step"),
                Some(-1),
                Some("bücher"),
                "event=app%3Astep/day=1969-12-31/host=bücher",
            ),
            (
                None,
                None,
                None,
                "event=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__/host=__HIVE_DEFAULT_PARTITION__",
            ),
            (
                Some(UNKNOWN),
                Some(0),
                Some("%"),
                "event=%5F_HIVE_DEFAULT_PARTITION__/day=1970-01-01/host=%25",
            ),
        ] {
            assert_eq!(partition(event, day_of(time), host), Path::new(want));
        }
        for time in [i64::MIN, i64::MAX] {
            let path = partition(Some("e"), day_of(Some(time)), None);
            assert!(
                !path.to_str().unwrap().contains(&format!("day={UNKNOWN}")),
                "{path:?}"
            );
        }
    }

    #[test]
    fn hostile_names_stay_single_components_of_bounded_length() {
        let long = "é/".repeat(500);
        for name in [
            "..",
            ".",
            "",
            "/etc/passwd",
            "a\\b",
            "\0\n\u{1b}[2J\u{9b}",
            "=",
            "%2F",
            &long,
        ] {
            let path = partition(Some(name), None, Some(name));
            let parts: Vec<_> = path.components().collect();
            assert_eq!(parts.len(), 3, "{name:?}");
            for part in parts {
                assert!(matches!(part, Component::Normal(_)), "{name:?}: {part:?}");
                let part = part.as_os_str().to_str().unwrap();
                assert!(part.len() <= 255, "{name:?}: {part}");
                assert!(!part.chars().any(char::is_control), "{name:?}: {part}");
                assert_eq!(part.matches('=').count(), 1, "{name:?}: {part}");
            }
        }
        let other = format!("{long}x");
        assert_ne!(encode(&long), encode(&other));
    }

    proptest! {
        #[test]
        fn an_encoded_name_decodes_to_itself(name in "\\PC{1,40}") {
            prop_assert_eq!(decode(&encode(&name)), name);
        }

        #[test]
        fn a_long_name_is_cut_between_characters_and_escapes(name in "[aé%\u{20ac}]{90,300}") {
            let encoded = encode(&name);
            prop_assert!(encoded.len() <= MAX_ENCODED_BYTES);
            // Panics at a part of an escape or of a character.
            decode(&encoded);
        }
    }
}
