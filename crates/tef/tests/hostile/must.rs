//! What must hold of any line. Used by the tests here and by the fuzz target.
#![allow(unreachable_pub, reason = "the fuzz target uses it too")]

use serde::de::IgnoredAny;
use tef::check::Fault;
use tef::{Checked, Record, check, check_str};

/// Checks a line and, if it can be, takes it apart and puts it together again.
pub fn line(line: &[u8]) {
    let is_json = serde_json::from_slice::<IgnoredAny>(line).is_ok();
    let is_object = is_json && line.trim_ascii_start().starts_with(b"{");
    match check(line) {
        Checked::Valid(text) => {
            assert!(is_object, "valid only to us");
            assert_eq!(text.as_bytes(), line);
            record(text);
        }
        Checked::Repaired(text, repairs) => {
            assert!(repairs.total() > 0);
            assert_eq!(check_str(&text), Checked::Valid(&text));
            record(&text);
        }
        Checked::Rejected(reason) => {
            assert!(!is_object || reason.fault == Fault::Depth, "{reason}");
            assert!(reason.at <= line.len());
        }
    }
}

fn record(line: &str) {
    let record = Record::parse(line).expect("it is one object");
    let mut json = Vec::new();
    record.write_json(&mut json);
    let json = std::str::from_utf8(&json).expect("of texts only texts are made");
    assert_eq!(check_str(json), Checked::Valid(json));
    assert_eq!(Record::parse(json).expect("just written"), record);
}
