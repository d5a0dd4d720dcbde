//! The arguments of events that programs have sent: JSON in the field `args`. A sink and a filter
//! read them as fields.

use ::ctf::decode::{NumberFormat, Visitor};
use ::ctf::model::Base;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor as JsonVisitor};

use crate::ctf::RecordDecoder;
use crate::{Checked, check_str};

/// The name of the field that holds the arguments.
pub const ARGS: &str = "args";

/// Largest number of bytes of JSON that is read as fields. Objects and arrays within each other are
/// limited by `serde_json`, to 127.
const MAX_JSON_BYTES: usize = 1 << 20;

/// The format of numbers in JSON.
const PLAIN: NumberFormat<'static> = NumberFormat {
    bits: 64,
    base: Base::Decimal,
    labels: None,
};

/// Whether the events of a class have their arguments as JSON.
#[inline]
#[must_use]
pub fn has_json_args(class: Option<&str>) -> bool {
    class.is_some_and(RecordDecoder::is_known_class)
}

/// The JSON of an object as it is written, to be written as it is; `None` if it is something else,
/// too long or too deep, or does not fit on a line.
#[must_use]
pub fn object_on_a_line(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    // JSON may have line ends between its tokens, but a line of output is one event.
    let is_on_a_line = text.len() <= MAX_JSON_BYTES && !text.contains(['\n', '\r']);
    // Checked, because it is written as it is: a mistake in it would spoil the whole line.
    let is_object = is_on_a_line && matches!(check_str(text), Checked::Valid(_));
    is_object.then_some(text)
}

/// Shows the members of a JSON object as the fields of a structure, null as an optional field that
/// is absent. Returns false, and shows nothing, if it is no object, too long or too deep.
pub fn visit_object(json: &str, visitor: &mut impl Visitor) -> bool {
    // First without showing anything: it may turn out at the end that it is no JSON.
    let is_object = json.len() <= MAX_JSON_BYTES
        && json.trim_start().starts_with('{')
        && visit(json, &mut Nothing).is_ok();
    is_object && visit(json, visitor).is_ok()
}

fn visit(json: &str, visitor: &mut impl Visitor) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Value(visitor).deserialize(&mut deserializer)?;
    // Deserializing stops after the value: nothing but white space may follow it.
    deserializer.end()
}

/// A visitor that ignores all values, to check JSON without showing it.
struct Nothing;

impl Visitor for Nothing {}

/// Shows one value of JSON to a visitor of fields.
struct Value<'v, V>(&'v mut V);

/// Shows the name of one member.
struct Name<'v, V>(&'v mut V);

impl<'j, V: Visitor> DeserializeSeed<'j> for Value<'_, V> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'j>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'j, V: Visitor> JsonVisitor<'j> for Value<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.begin_optional(false);
        self.0.end_optional();
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.0.boolean(value);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.0.unsigned(value, PLAIN);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.0.signed(value, PLAIN);
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.0.float(value, 64);
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.0.text(value.as_bytes());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'j>>(self, mut elements: A) -> Result<(), A::Error> {
        // JSON does not say in advance how many elements there are.
        self.0.begin_array(0);
        let mut index = 0;
        while elements
            .next_element_seed(Element(&mut *self.0, index))?
            .is_some()
        {
            index += 1;
        }
        self.0.end_array();
        Ok(())
    }

    fn visit_map<A: MapAccess<'j>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.begin_structure();
        while members.next_key_seed(Name(&mut *self.0))?.is_some() {
            members.next_value_seed(Value(&mut *self.0))?;
        }
        self.0.end_structure();
        Ok(())
    }
}

/// Shows one element of an array, of this index.
struct Element<'v, V>(&'v mut V, u64);

impl<'j, V: Visitor> DeserializeSeed<'j> for Element<'_, V> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'j>>(self, from: D) -> Result<(), D::Error> {
        self.0.element(self.1);
        Value(self.0).deserialize(from)
    }
}

impl<'j, V: Visitor> DeserializeSeed<'j> for Name<'_, V> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'j>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl<V: Visitor> JsonVisitor<'_> for Name<'_, V> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        self.0.member(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what it is shown.
    #[derive(Default)]
    struct Trail(String);

    impl Visitor for Trail {
        fn begin_structure(&mut self) {
            self.0.push('{');
        }
        fn member(&mut self, name: &str) {
            self.0 += &format!(" {name}:");
        }
        fn end_structure(&mut self) {
            self.0.push('}');
        }
        fn begin_array(&mut self, _length: u64) {
            self.0.push('[');
        }
        fn element(&mut self, index: u64) {
            self.0 += &format!(" {index}:");
        }
        fn end_array(&mut self) {
            self.0.push(']');
        }
        fn begin_optional(&mut self, present: bool) {
            self.0 += if present { "some" } else { "none" };
        }
        fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
            self.0 += &format!("u{value}");
        }
        fn signed(&mut self, value: i64, _: NumberFormat<'_>) {
            self.0 += &format!("i{value}");
        }
        fn float(&mut self, value: f64, _: u8) {
            self.0 += &format!("f{value}");
        }
        fn boolean(&mut self, value: bool) {
            self.0 += &value.to_string();
        }
        fn text(&mut self, bytes: &[u8]) {
            self.0 += &format!("{:?}", str::from_utf8(bytes).unwrap());
        }
    }

    #[test]
    fn json_is_visited_as_the_fields_of_a_structure() {
        let json = r#" {"n":18446744073709551615,"i":-1,"f":0.5,"t":"a\nb","b":true,"0":null,"l":[1,{"x":[]}]} "#;
        let mut trail = Trail::default();
        assert!(visit_object(json, &mut trail));
        assert_eq!(
            trail.0,
            r#"{ n:u18446744073709551615 i:i-1 f:f0.5 t:"a\nb" b:true 0:none l:[ 0:u1 1:{ x:[]}]}"#
        );
    }

    #[test]
    fn malformed_deep_and_long_json_is_neither_visited_nor_an_object() {
        let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_JSON_BYTES));
        for json in [
            "",
            "1",
            "[1]",
            "{",
            r#"{"a":1"#,
            r#"{"a":1}x"#,
            r#"{"a":nan}"#,
            r#"{"a":1,}"#,
            &deep(100_000),
            &long,
        ] {
            let mut trail = Trail::default();
            assert!(!visit_object(json, &mut trail), "{:.20}", json);
            assert_eq!(trail.0, "");
            assert_eq!(object_on_a_line(json.as_bytes()), None, "{:.20}", json);
        }
        let deep = deep(127);
        assert!(visit_object(&deep, &mut Trail::default()));
        assert_eq!(object_on_a_line(deep.as_bytes()), Some(&*deep));
        assert_eq!(object_on_a_line(b"{\"a\":\n1}"), None);
        assert_eq!(object_on_a_line(b"{\"a\":\"\xFF\"}"), None);
    }

    #[test]
    fn only_classes_of_sent_events_have_json_as_arguments() {
        assert!(has_json_args(Some("tef:begin")));
        for class in [None, Some("tef:event"), Some("tef:"), Some("app:begin")] {
            assert!(!has_json_args(class), "{class:?}");
        }
    }
}
