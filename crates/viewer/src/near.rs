//! Names that users may have meant by one that does not exist.

use daemon::event_text::printable;

/// Largest number of names that are suggested.
const MAX_SUGGESTIONS: usize = 3;

/// Length in characters from which a name is also near to those that contain it.
const MIN_PART_CHARACTERS: usize = 3;

/// Longest name that is near to any, in bytes. To compare two names takes the product of both
/// lengths.
const MAX_COMPARED_BYTES: usize = 256;

/// The names of `known` that are most like `name`, the most similar first; none if all are very
/// different.
pub(crate) fn near_names<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut near: Vec<(usize, &str)> = Vec::new();
    let is_short = |name: &str| name.len() <= MAX_COMPARED_BYTES;
    // A long name is no typing error, and to compare it would take long.
    if !is_short(name) {
        return Vec::new();
    }
    let wanted = name.to_lowercase();
    // One wrong character in a short name, several in a long one: more would suggest anything.
    let max_distance = (wanted.chars().count() / 3).max(1);
    for known in known.into_iter().filter(|known| is_short(known)) {
        let candidate = known.to_lowercase();
        let distance = strsim::osa_distance(&wanted, &candidate);
        let is_part = |whole: &str, part: &str| {
            part.chars().count() >= MIN_PART_CHARACTERS && whole.contains(part)
        };
        let is_near = distance <= max_distance
            || is_part(&candidate, &wanted)
            || is_part(&wanted, &candidate);
        if is_near && !near.iter().any(|(_, found)| *found == known) {
            near.push((distance, known));
            near.sort_unstable();
            // At once, because there may be as many known names as a relay has sessions.
            near.truncate(MAX_SUGGESTIONS);
        }
    }
    near.into_iter().map(|(_, name)| name).collect()
}

/// `; did you mean A or B?`, or nothing if there are no names.
pub(crate) fn did_you_mean(names: &[&str]) -> String {
    if names.is_empty() {
        return String::new();
    }
    // The names come from traces and relays, and may have control characters.
    format!("; did you mean {}?", printable(&names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_those_with_a_typing_error_and_those_that_contain_the_name() {
        let known = [
            "sched_switch",
            "sched_wakeup",
            "irq_handler",
            "my-session-20260101",
        ];
        for (name, want) in [
            ("sched_swich", &["sched_switch"][..]),
            ("Sched_Switch", &["sched_switch"]),
            ("sched", &["sched_switch", "sched_wakeup"]),
            ("my-session", &["my-session-20260101"]),
            ("x", &[]),
            ("network", &[]),
        ] {
            assert_eq!(near_names(name, known), want, "{name}");
        }
        assert_eq!(near_names("sched", [""]), [""; 0]);
        let long = "x".repeat(MAX_COMPARED_BYTES);
        assert_eq!(near_names(&long, [&*long]), [&*long]);
        let longer = "x".repeat(MAX_COMPARED_BYTES + 1);
        assert_eq!(near_names(&long, [&*longer]), [""; 0]);
        assert_eq!(near_names(&longer, [&*long, "xxx"]), [""; 0]);
        assert_eq!(did_you_mean(&["a", "b"]), "; did you mean a or b?");
        let hostile = did_you_mean(&["a\u{1b}[2J", "b"]);
        assert!(!hostile.contains(char::is_control), "{hostile:?}");
    }
}
