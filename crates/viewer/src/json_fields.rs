//! The fields of an event as JSON.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};

use super::json_text::{boolean, escaped, float, hex, integer, lossy_string, string};
use tef::json_args::{ARGS, object_on_a_line};

/// The form in which the members of a scope are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scopes {
    /// Each scope becomes a member that is an object.
    Named,
    /// The members of all scopes lie side by side; no braces around them. Enumerations are their
    /// labels only, for people.
    Flat,
}

/// The position in the JSON that is being written.
#[derive(Debug, Clone, Copy)]
pub struct JsonPosition {
    scopes: Scopes,
    /// Whether the object or array that is being written is still empty.
    first: bool,
    /// Structures and arrays that are open.
    depth: usize,
}

impl JsonPosition {
    /// At the beginning, where nothing of the object around has been written if `first`.
    pub const fn new(scopes: Scopes, first: bool) -> Self {
        Self {
            scopes,
            first,
            depth: 0,
        }
    }
}

impl Default for JsonPosition {
    /// At the beginning of members that lie side by side.
    fn default() -> Self {
        Self::new(Scopes::Flat, true)
    }
}

/// Writes the fields of an event as JSON.
#[derive(Debug)]
pub struct JsonFields<'b> {
    out: &'b mut Vec<u8>,
    position: JsonPosition,
    args: JsonArgs,
}

/// Whether the value that is written next is the arguments of an event, as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonArgs {
    /// The event has no arguments as JSON.
    None,
    /// The arguments are in the payload, which has not begun.
    Expected,
    /// The next value in this payload may be that of the arguments.
    InPayload,
    /// The arguments are the next value.
    Next,
}

impl<'b> JsonFields<'b> {
    /// A writer into `out` that continues at `position`.
    pub fn new(out: &'b mut Vec<u8>, position: JsonPosition) -> Self {
        let args = JsonArgs::None;
        Self {
            out,
            position,
            args,
        }
    }

    /// Writes the member `args` of the payload as the JSON that it is the text of.
    pub fn expect_json_args(&mut self) {
        self.args = JsonArgs::Expected;
    }

    /// The position where the writing can go on.
    pub fn position(&self) -> JsonPosition {
        self.position
    }

    fn comma(&mut self) {
        if !self.position.first {
            self.out.push(b',');
        }
        self.position.first = false;
    }

    fn name(&mut self, name: &str) {
        self.comma();
        string(name, self.out);
        self.out.push(b':');
    }

    fn open(&mut self, brace: u8) {
        // In the flat form the outermost structure is the scope, which has no braces.
        if self.position.depth > 0 || self.position.scopes == Scopes::Named {
            self.out.push(brace);
            self.position.first = true;
        }
        self.position.depth += 1;
    }

    fn close(&mut self, brace: u8) {
        self.position.depth = self.position.depth.saturating_sub(1);
        // As in `open`: what had no brace at its begin gets none at its end.
        if self.position.depth > 0 || self.position.scopes == Scopes::Named {
            self.out.push(brace);
            self.position.first = false;
        }
    }

    fn labelled<'l>(&mut self, value: impl itoa::Integer, labels: impl Iterator<Item = &'l str>) {
        if self.position.scopes == Scopes::Flat {
            return self.labels_only(value, labels);
        }
        self.out.extend_from_slice(b"{\"value\":");
        integer(value, self.out);
        self.out.extend_from_slice(b",\"labels\":[");
        for (place, label) in labels.enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            string(label, self.out);
        }
        self.out.extend_from_slice(b"]}");
    }

    /// The labels as one text; as boolean if that is what they say; the number if there is none.
    fn labels_only<'l>(
        &mut self,
        value: impl itoa::Integer,
        mut labels: impl Iterator<Item = &'l str>,
    ) {
        let Some(first) = labels.next() else {
            return integer(value, self.out);
        };
        let begin = self.out.len();
        string(first, self.out);
        let mut one = true;
        for label in labels {
            // All labels become one string: its quotation mark is taken back for the next label.
            self.out.pop();
            self.out.extend_from_slice(b" | ");
            escaped(label, self.out);
            self.out.push(b'"');
            one = false;
        }
        // Of several labels, `true` or `false` is only a part of the text.
        if one && matches!(first, "true" | "false") {
            self.out.truncate(begin);
            self.out.extend_from_slice(first.as_bytes());
        }
    }
}

/// The name of the member of an event's object that a scope becomes.
const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::PacketHeader | Scope::EventHeader => "header",
        Scope::PacketContext => "packet",
        Scope::CommonContext => "context",
        Scope::SpecificContext => "event_context",
        Scope::Payload => "fields",
    }
}

impl Visitor for JsonFields<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.position.depth = 0;
        if self.args == JsonArgs::Expected && scope == Scope::Payload {
            self.args = JsonArgs::InPayload;
        }
        if self.position.scopes == Scopes::Named {
            self.name(scope_name(scope));
        }
    }

    fn begin_structure(&mut self) {
        self.open(b'{');
    }

    fn member(&mut self, name: &str) {
        // Only a member of the payload itself: a structure in it may have one of the same name.
        if self.args == JsonArgs::InPayload && self.position.depth == 1 && name == ARGS {
            self.args = JsonArgs::Next;
        }
        self.name(name);
    }

    fn end_structure(&mut self) {
        self.close(b'}');
    }

    fn begin_array(&mut self, _length: u64) {
        self.open(b'[');
    }

    fn element(&mut self, _index: u64) {
        self.comma();
    }

    fn end_array(&mut self) {
        self.close(b']');
    }

    fn begin_optional(&mut self, present: bool) {
        if !present {
            self.out.extend_from_slice(b"null");
        }
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        match format.labels {
            Some(labels) => self.labelled(value, labels.of(i128::from(value))),
            None => integer(value, self.out),
        }
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        match format.labels {
            Some(labels) => self.labelled(value, labels.of(i128::from(value))),
            None => integer(value, self.out),
        }
    }

    fn float(&mut self, value: f64, bits: u8) {
        float(value, bits, self.out);
    }

    fn boolean(&mut self, value: bool) {
        boolean(value, self.out);
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        match flags {
            Some(flags) => self.labelled(value, flags.of_bits(value)),
            None => integer(value, self.out),
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.args == JsonArgs::Next {
            self.args = JsonArgs::None;
            return match object_on_a_line(bytes) {
                Some(object) => self.out.extend_from_slice(object.trim().as_bytes()),
                None if bytes.is_empty() => self.out.extend_from_slice(b"null"),
                None => lossy_string(bytes, self.out),
            };
        }
        lossy_string(bytes, self.out);
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.out.push(b'"');
        hex(bytes, self.out);
        self.out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{labels, plain};

    fn written(scopes: Scopes, walk: impl FnOnce(&mut JsonFields<'_>)) -> String {
        let mut out = Vec::new();
        walk(&mut JsonFields::new(
            &mut out,
            JsonPosition::new(scopes, true),
        ));
        String::from_utf8(out).unwrap()
    }

    fn nested(fields: &mut JsonFields<'_>) {
        fields.begin_scope(Scope::Payload);
        fields.begin_structure();
        fields.member("a");
        fields.unsigned(u64::MAX, plain());
        fields.member("list");
        fields.begin_array(2);
        fields.element(0);
        fields.begin_structure();
        fields.member("x");
        fields.signed(-1, plain());
        fields.end_structure();
        fields.element(1);
        fields.begin_variant(Some("v"));
        fields.text(b"t\"\\\n\x01\x7F\xFF!");
        fields.end_variant();
        fields.end_array();
        fields.member("nothing");
        fields.begin_optional(false);
        fields.end_optional();
        fields.member("empty");
        fields.begin_structure();
        fields.end_structure();
        fields.member("blob");
        fields.blob(&[0, 0xAB], "x/y");
        fields.end_structure();
        fields.end_scope();
    }

    #[test]
    fn structures_arrays_and_texts_become_json() {
        let body = concat!(
            r#""a":18446744073709551615,"list":[{"x":-1},"t\"\\\n\u0001\u007f"#,
            "\u{fffd}",
            r#"!"],"nothing":null,"empty":{},"blob":"00ab""#
        );
        let named = format!("{{{}}}", written(Scopes::Named, nested));
        assert_eq!(named, format!(r#"{{"fields":{{{body}}}}}"#));
        assert_eq!(written(Scopes::Flat, nested), body);
        serde_json::from_str::<serde_json::Value>(&named).unwrap();
    }

    #[test]
    fn arguments_of_sent_events_are_the_json_that_they_are_the_text_of() {
        let args = |args: &str| {
            written(Scopes::Named, |fields| {
                fields.expect_json_args();
                for scope in [Scope::CommonContext, Scope::Payload] {
                    fields.begin_scope(scope);
                    fields.begin_structure();
                    fields.member("args");
                    fields.text(args.as_bytes());
                    fields.member("rest");
                    fields.text(args.as_bytes());
                    fields.end_structure();
                    fields.end_scope();
                }
            })
        };
        for (text, want) in [
            (r#"{"n":3}"#, r#"{"n":3}"#),
            (r#" {"n":[1, 2]} "#, r#"{"n":[1, 2]}"#),
            ("", "null"),
            (r#"{"n":"#, r#""{\"n\":""#),
            ("{\"n\":\n3}", r#""{\"n\":\n3}""#),
            ("3", r#""3""#),
        ] {
            let mut string = Vec::new();
            lossy_string(text.as_bytes(), &mut string);
            let string = String::from_utf8(string).unwrap();
            assert_eq!(
                args(text),
                format!(
                    r#""context":{{"args":{string},"rest":{string}}},"fields":{{"args":{want},"rest":{string}}}"#
                )
            );
        }
    }

    #[test]
    fn enumerations_show_value_and_labels() {
        let labels = labels(&[("low", 0, 9), ("five", 5, 5)]);
        let format = NumberFormat {
            labels: Some(&labels),
            ..plain()
        };
        assert_eq!(
            written(Scopes::Named, |fields| fields.unsigned(5, format)),
            r#"{"value":5,"labels":["low","five"]}"#
        );
        assert_eq!(
            written(Scopes::Named, |fields| fields.signed(-5, format)),
            r#"{"value":-5,"labels":[]}"#
        );
        assert_eq!(
            written(Scopes::Named, |fields| fields.bit_array(
                1 << 5,
                8,
                Some(&labels)
            )),
            r#"{"value":32,"labels":["low","five"]}"#
        );
    }

    #[test]
    fn enumerations_are_written_as_labels_only_for_people() {
        let labels = labels(&[("low", 0, 9), ("five", 5, 5), ("true", 11, 11)]);
        let format = NumberFormat {
            labels: Some(&labels),
            ..plain()
        };
        for (value, want) in [
            (5, r#""low | five""#),
            (4, r#""low""#),
            (10, "10"),
            (11, "true"),
        ] {
            assert_eq!(
                written(Scopes::Flat, |fields| fields.unsigned(value, format)),
                want
            );
        }
    }
}
