//! The check compared with an oracle: valid is what `serde_json` takes for JSON.

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{Checked, check, check_str};

/// Bytes by which JSON is right or wrong.
const TELLING: &[u8] = b"{}[]\",:\\ \t\n0123456789-+.eEtruefalsnuldD\x00\x1f\x7f\x80\xff";

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "[a-z\"\\\\\u{1}-\u{1f}é😀]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map("[a-z_A-Z\\\\]{0,10}", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Vec<u8>> {
    let members = prop::collection::hash_map("[a-z]{0,9}", json(), 0..6);
    (members, any::<bool>()).prop_map(|(members, pretty)| {
        let value = Value::Object(members.into_iter().collect());
        if pretty {
            serde_json::to_vec_pretty(&value).unwrap()
        } else {
            serde_json::to_vec(&value).unwrap()
        }
    })
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let mutations = prop::collection::vec(
        (any::<prop::sample::Index>(), 0..4_u8, 0..TELLING.len()),
        0..3,
    );
    (object(), mutations).prop_map(|(mut line, mutations)| {
        for (at, how, byte) in mutations {
            if line.is_empty() {
                break;
            }
            let at = at.index(line.len());
            match how {
                0 => line[at] = TELLING[byte],
                1 => line.insert(at, TELLING[byte]),
                2 => drop(line.remove(at)),
                _ => line.truncate(at),
            }
        }
        line
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn check_accepts_exactly_the_objects_that_serde_json_accepts(line in mutated()) {
        let is_json = serde_json::from_slice::<IgnoredAny>(&line).is_ok();
        // Which accepts any bytes in strings that it ignores.
        let is_object = is_json && line.trim_ascii_start().starts_with(b"{");
        let is_text = std::str::from_utf8(&line).is_ok();
        match check(&line) {
            Checked::Valid(text) => {
                prop_assert!(is_object && is_text);
                prop_assert_eq!(text.as_bytes(), &*line);
            }
            Checked::Repaired(text, repairs) => {
                prop_assert!(repairs.total() > 0);
                prop_assert!(matches!(check_str(&text), Checked::Valid(_)), "{}", text);
                serde_json::from_str::<IgnoredAny>(&text).unwrap();
            }
            Checked::Rejected(reason) => {
                prop_assert!(!is_object, "{}", reason);
                prop_assert!(reason.at <= line.len());
            }
        }
    }

    #[test]
    fn check_answers_any_bytes(line in prop::collection::vec(prop::sample::select(TELLING), 0..40)) {
        let mut line = line;
        let _ = check(&line);
        line.splice(0..0, *b"{\"a\":");
        line.push(b'}');
        let _ = check(&line);
    }

    #[test]
    fn a_repaired_line_is_valid_to_serde_json(text in r#"[\\"ud8Dc0-9fe3d/n]{0,60}"#, word in "[+-]?(nan|inf|NaN|Infinity)") {
        let line = format!(r#"{{"a":"{text}","b":[{word},{{"c":{word}}}]}},"#);
        if let Checked::Repaired(text, repairs) = check(line.as_bytes()) {
            prop_assert_eq!((repairs.not_finite, repairs.commas), (2, 1));
            serde_json::from_str::<Value>(&text).unwrap();
        }
    }
}
