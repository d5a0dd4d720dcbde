//! The file name of a trace: maps any id to a valid name in one directory.

use crate::limits::MAX_TRACE_NAME_BYTES;

/// Suffix of the name of the file of refused lines, before the ending.
const REJECTED: &str = ".rejected";

/// Returns the file name for an id. Different ids have different names. A name never begins with a
/// dot and never contains a slash.
///
/// Letters and digits of all scripts, `.`, `_`, `-` and the blank stay as they are; every other
/// byte becomes `%XX`. A name that would be too long is truncated, and ends in a hash of the whole
/// id.
#[must_use]
pub(crate) fn safe_name(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    let rejected_at = id.ends_with(REJECTED).then(|| id.len() - REJECTED.len());
    for (at, letter) in id.char_indices() {
        let is_safe = letter.is_alphanumeric() || matches!(letter, '.' | '_' | '-' | ' ');
        // Hidden files, and the files of refused lines, are not traces.
        let is_misleading = letter == '.' && (at == 0 || Some(at) == rejected_at);
        if is_safe && !is_misleading {
            name.push(letter);
        } else {
            for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                name.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    if name.len() > MAX_TRACE_NAME_BYTES {
        truncate_name(&mut name, &format!("-{:032x}", fnv(id.as_bytes())));
    }
    name
}

/// Truncates a name, but not inside an escape, and appends the suffix.
fn truncate_name(name: &mut String, suffix: &str) {
    name.truncate(name.floor_char_boundary(MAX_TRACE_NAME_BYTES - suffix.len()));
    let last = name.len().saturating_sub(2);
    if let Some(percent) = name.get(last..).and_then(|tail| tail.find('%')) {
        name.truncate(last + percent);
    }
    name.push_str(suffix);
}

/// Returns the hash FNV-1a with 128 bits. File names depend on it: it must not change.
fn fnv(bytes: &[u8]) -> u128 {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_characters_stay_in_the_name() {
        for id in [
            "tr-1739313372-00112233445566778899aabbccddeeff",
            "my long  run",
            "café-漢",
            "a.jsonl",
            "a.rejected.b",
        ] {
            assert_eq!(safe_name(id), id);
        }
    }

    #[test]
    fn characters_that_change_the_path_are_escaped() {
        for (id, name) in [
            ("../out/x", "%2E.%2Fout%2Fx"),
            ("/abs", "%2Fabs"),
            (".", "%2E"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("nul\0", "nul%00"),
            ("100%", "100%25"),
            ("a\u{a0}b", "a%C2%A0b"),
            ("x.rejected", "x%2Erejected"),
            (".rejected", "%2Erejected"),
        ] {
            assert_eq!(safe_name(id), name);
        }
    }

    #[test]
    fn long_ids_become_truncated_and_distinct_names() {
        for unit in ["x", "é", "漢", "/"] {
            let (one, two) = (unit.repeat(300), unit.repeat(301));
            let (name, other) = (safe_name(&one), safe_name(&two));
            assert!(
                name.len() <= MAX_TRACE_NAME_BYTES && name.len() > MAX_TRACE_NAME_BYTES - 10,
                "{name}"
            );
            assert_ne!(name, other);
            let hash = name.rsplit('-').next().unwrap();
            assert_eq!(hash.len(), 32);
            let kept = name.strip_suffix(&format!("-{hash}")).unwrap();
            assert!(
                kept.split('%').skip(1).all(|escape| escape.len() == 2),
                "{name}"
            );
        }
        assert_eq!(safe_name(&"x".repeat(200)), "x".repeat(200));
    }

    #[test]
    fn hash_of_a_long_id_never_changes() {
        assert_eq!(fnv(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
