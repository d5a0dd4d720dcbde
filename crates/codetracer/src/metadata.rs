//! What is recorded: `trace_metadata.json`.

use std::collections::HashMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::record::{Json, write_text};

/// The program of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordingMetadata {
    /// The directory in which the program runs; empty if it is not known.
    pub workdir: String,
    /// The path or name of the program.
    pub program: String,
    /// The arguments of the program, without its own name.
    pub args: Vec<String>,
    /// All other members, such as the `recording_id` that newer readers need: names and values, in
    /// their order.
    pub others: Vec<(String, Json<'static>)>,
}

impl RecordingMetadata {
    /// Parses the content of `trace_metadata.json`. Of the members with fields here, those that are
    /// missing are empty.
    ///
    /// # Errors
    /// If the text is not an object, or a member is not of its type.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The content of `trace_metadata.json`. Members are in the order in which the published writer
    /// writes them, and the others follow.
    #[must_use]
    pub fn to_json(&self) -> String {
        object(self.fields().iter().chain(&self.others))
    }

    /// Returns the content of `trace_metadata.json` without the members that no reader could parse:
    /// one of them would make the file unreadable.
    #[must_use]
    pub fn to_readable_json(&self) -> String {
        let readable = self.others.iter().filter(|(_, value)| value.is_readable());
        object(self.fields().iter().chain(readable))
    }

    /// The members without a field in an event, as an object: all others, and texts that an event
    /// cannot hold.
    pub(crate) fn to_other_json(&self) -> String {
        let fields = self.fields();
        let [workdir, program, _] = &fields;
        let escaped = [(workdir, &self.workdir), (program, &self.program)];
        // A string of CTF ends at a NUL.
        let escaped = escaped.into_iter().filter(|(_, text)| text.contains('\0'));
        object(escaped.map(|(member, _)| member).chain(&self.others))
    }

    /// The arguments as a JSON array.
    pub(crate) fn args_json(&self) -> String {
        serde_json::to_string(&self.args).expect("texts are written without error")
    }

    fn fields(&self) -> [(String, Json<'static>); 3] {
        let json = |text: &str| Json::parse(text).expect("it is valid").into_owned();
        let text = |text: &str| {
            let mut quoted = Vec::new();
            write_text(&mut quoted, text);
            json(&String::from_utf8_lossy(&quoted))
        };
        [
            ("workdir".to_owned(), text(&self.workdir)),
            ("program".to_owned(), text(&self.program)),
            ("args".to_owned(), json(&self.args_json())),
        ]
    }
}

/// A JSON object of these members.
fn object<'m>(members: impl Iterator<Item = &'m (String, Json<'static>)>) -> String {
    let mut object = b"{".to_vec();
    for (name, value) in members {
        if object.len() > 1 {
            object.push(b',');
        }
        write_text(&mut object, name);
        object.push(b':');
        object.extend_from_slice(value.as_str().as_bytes());
    }
    object.push(b'}');
    String::from_utf8(object).expect("all parts are text")
}

impl<'de> Deserialize<'de> for RecordingMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetadataVisitor)
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = RecordingMetadata;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object that says what is recorded")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = RecordingMetadata::default();
        let mut others: Vec<(String, Json<'static>)> = Vec::new();
        // A list in their order, with a map beside it: a search for each name would take time that
        // grows with the square of their number.
        let mut places = HashMap::new();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "workdir" => metadata.workdir = map.next_value()?,
                "program" => metadata.program = map.next_value()?,
                "args" => metadata.args = map.next_value()?,
                _ => {
                    let value = Json::of_raw(map.next_value()?).into_owned();
                    // Of members with one name the last counts, as for most readers.
                    match places.get(&name).and_then(|place| others.get_mut(*place)) {
                        Some((_, earlier)) => *earlier = value,
                        None => {
                            places.insert(name.clone(), others.len());
                            others.push((name, value));
                        }
                    }
                }
            }
        }
        Ok(RecordingMetadata { others, ..metadata })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_without_a_field_of_their_own_are_kept_in_their_order() {
        let text = r#"{ "recording_id": "r", "args": ["a"], "extra": {"x": [1, "\u0000 b"]}, "program": "p", "n": null }"#;
        let metadata = RecordingMetadata::parse(text).unwrap();
        let whole = r#"{"workdir":"","program":"p","args":["a"],"recording_id":"r","extra":{"x":[1,"\u0000 b"]},"n":null}"#;
        assert_eq!(metadata.to_json(), whole);
        assert_eq!(metadata.to_readable_json(), whole);
        assert_eq!(RecordingMetadata::parse(whole).unwrap(), metadata);
    }

    #[test]
    fn of_members_with_one_name_the_last_is_kept() {
        let text = r#"{"id":1,"program":"p","program":"q","id":2}"#;
        let metadata = RecordingMetadata::parse(text).unwrap();
        let last = r#"{"workdir":"","program":"q","args":[],"id":2}"#;
        assert_eq!(metadata.to_json(), last);
    }

    #[test]
    fn members_that_no_reader_could_parse_are_not_written_for_readers() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        for unreadable in [&*deep, "1e999", r#""\ud800""#] {
            let text = format!(r#"{{"a":1,"x":{unreadable},"b":{{"c":2}}}}"#);
            let metadata = RecordingMetadata::parse(&text).unwrap();
            let readable = metadata.to_readable_json();
            assert_eq!(
                readable,
                r#"{"workdir":"","program":"","args":[],"a":1,"b":{"c":2}}"#
            );
            assert!(serde_json::from_str::<serde_json::Value>(&metadata.to_json()).is_err());
        }
    }
}
