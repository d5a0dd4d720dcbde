//! A record -> one element of `trace.json`.

use std::fmt;

use super::{Json, Record};

impl Record<'_> {
    /// Appends the record as one element, in the form and the order of members of the published
    /// writer: without white space, values as they are.
    pub fn write_json(&self, to: &mut Vec<u8>) {
        match self {
            Self::Path(path) => write_text_element(to, "Path", path),
            Self::Variable { name, .. } => write_text_element(to, self.kind(), name),
            Self::Function {
                path_id,
                line,
                name,
            } => {
                write_number(to, br#"{"Function":{"path_id":"#, *path_id);
                write_number(to, br#","line":"#, *line);
                to.extend_from_slice(br#","name":"#);
                write_text(to, name);
                to.extend_from_slice(b"}}");
            }
            Self::Type(json) => write_element(to, r#"{"Type":"#, json, "}"),
            Self::Step { path_id, line } => {
                write_number(to, br#"{"Step":{"path_id":"#, *path_id);
                write_number(to, br#","line":"#, *line);
                to.extend_from_slice(b"}}");
            }
            Self::Call { function_id, args } => {
                write_number(to, br#"{"Call":{"function_id":"#, *function_id);
                write_element(to, r#","args":"#, args, "}}");
            }
            Self::Return(value) => write_element(to, r#"{"Return":{"return_value":"#, value, "}}"),
            Self::Value { variable_id, value } => {
                write_number(to, br#"{"Value":{"variable_id":"#, *variable_id);
                write_element(to, r#","value":"#, value, "}}");
            }
            Self::Log {
                kind,
                metadata,
                content,
            } => {
                write_number(to, br#"{"Event":{"kind":"#, *kind);
                to.extend_from_slice(br#","metadata":"#);
                write_text(to, metadata);
                to.extend_from_slice(br#","content":"#);
                write_text(to, content);
                to.extend_from_slice(b"}}");
            }
            Self::DropLastStep => to.extend_from_slice(br#""DropLastStep""#),
            Self::Other { kind, payload } => {
                to.push(b'{');
                write_text(to, kind);
                write_element(to, ":", payload, "}");
            }
        }
    }
}

impl fmt::Display for Record<'_> {
    /// Writes what [`write_json`](Record::write_json) does.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut json = Vec::new();
        self.write_json(&mut json);
        to.write_str(&String::from_utf8_lossy(&json))
    }
}

fn write_number(to: &mut Vec<u8>, before: &[u8], number: impl itoa::Integer) {
    to.extend_from_slice(before);
    // Steps and values are most of a recording: `itoa` writes their numbers without `fmt`.
    to.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn write_element(to: &mut Vec<u8>, before: &str, json: &Json<'_>, after: &str) {
    for part in [before, json.as_str(), after] {
        to.extend_from_slice(part.as_bytes());
    }
}

fn write_text_element(to: &mut Vec<u8>, kind: &str, text: &str) {
    to.push(b'{');
    write_text(to, kind);
    to.push(b':');
    write_text(to, text);
    to.push(b'}');
}

/// Appends a text with quotation marks and escapes, as the published writer does.
pub(crate) fn write_text(to: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(&mut *to, text).expect("a write to memory does not fail");
}
