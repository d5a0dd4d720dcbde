//! Names of objects in a bucket, and the objects that are JSON.
#![no_main]

use archive::document::{CreatedDocument, EndedDocument, OwnerDocument};
use archive::name::{DayObject, parse_commit, parse_session_object};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let _ = serde_json::from_slice::<CreatedDocument>(input);
    let _ = serde_json::from_slice::<EndedDocument>(input);
    if let Some(owner) = OwnerDocument::parse(input) {
        let _ = owner.boot();
    }
    let Ok(name) = std::str::from_utf8(input) else {
        return;
    };
    // A name that is accepted is the only one of its object.
    if let Ok((boot, number)) = parse_commit(name) {
        assert_eq!(boot.commit(number), name);
    }
    if let Ok((session, object)) = parse_session_object(name) {
        assert_eq!(session.object(object), name);
    }
    if let Ok(day) = name.parse::<DayObject>() {
        assert_eq!(day.to_string(), name);
    }
});
