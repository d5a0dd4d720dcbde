//! Calls of recordings of CodeTracer: a span for each, with the arguments by name.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use codetracer::events::{EventDecoder, Item};
use codetracer::record::{Json, Record};
use ctf::decode::{Event, FieldError};
use serde::Deserialize;
use serde_json::Value;

use super::super::json_text::string;
use crate::attach::TraceKey;

/// Bytes of names of variables that are kept for one trace. Later ones are shown by number.
const MAX_NAME_BYTES: usize = 16 << 20;
/// Open calls of one trace. Calls within are shown as points in time.
const MAX_OPEN_CALLS: usize = 1 << 20;

/// What an event of a recording becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallRecord {
    /// A call of a function, with the members of `args`.
    Begin(String, Vec<u8>),
    /// The end of the innermost call of this function, with the members of `args`.
    End(String, Vec<u8>),
    /// No record: the event defines something.
    None,
    /// A point in time with its fields, like any other event.
    Instant,
}

/// The recordings that are being shown.
#[derive(Debug, Default)]
pub struct Recordings {
    decoder: EventDecoder,
    traces: HashMap<TraceKey, Recording>,
}

#[derive(Debug, Default)]
struct Recording {
    program: String,
    functions: Names,
    variables: Names,
    /// The functions of the open calls, the innermost last.
    open: Vec<String>,
    /// Open calls that are not shown.
    unshown: u64,
}

#[derive(Debug, Default)]
struct Names {
    names: Vec<String>,
    bytes: usize,
}

impl Names {
    fn add(&mut self, name: &str) {
        // Empty names take memory too.
        self.bytes += name.len() + size_of::<String>();
        if self.bytes <= MAX_NAME_BYTES {
            self.names.push(name.to_owned());
        }
    }

    fn get(&self, id: u64) -> Option<&str> {
        let id = usize::try_from(id).ok()?;
        self.names.get(id).map(String::as_str)
    }
}

#[derive(Deserialize)]
struct Argument {
    variable_id: u64,
    value: Value,
}

impl Recordings {
    /// What an event becomes. `None` if it is not of a recording.
    pub fn record(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
    ) -> Result<Option<CallRecord>, FieldError> {
        let class = event.class().name().unwrap_or_default();
        if !EventDecoder::is_known_class(class) {
            return Ok(None);
        }
        self.decoder.clear();
        event.visit_fields(&mut self.decoder)?;
        let recording = self.traces.entry(trace).or_default();
        Ok(Some(match self.decoder.decode(class) {
            Some(Item::Record(record)) => recording.record(&record),
            Some(Item::Metadata(metadata)) => {
                recording.program = metadata.program;
                CallRecord::None
            }
            Some(Item::FileChunk(_) | Item::End { .. }) => CallRecord::None,
            None => CallRecord::Instant,
        }))
    }

    /// The program of a trace, if it is a recording; empty if it is not known.
    pub fn program(&self, trace: TraceKey) -> Option<&str> {
        self.traces.get(&trace).map(|recording| &*recording.program)
    }

    /// Forgets a trace that has ended.
    pub fn forget_trace(&mut self, trace: TraceKey) {
        self.traces.remove(&trace);
    }
}

impl Recording {
    fn record(&mut self, record: &Record<'_>) -> CallRecord {
        match record {
            Record::Function { name, .. } => self.functions.add(name),
            Record::Variable { name, .. } => self.variables.add(name),
            Record::Path(_) | Record::Type(_) => {}
            Record::Call { function_id, args } => return self.begin(*function_id, args),
            Record::Return(value) => return self.end(value),
            _ => return CallRecord::Instant,
        }
        CallRecord::None
    }

    fn begin(&mut self, function_id: u64, args: &Json<'_>) -> CallRecord {
        if self.open.len() >= MAX_OPEN_CALLS {
            // Counted, so that the ends of these calls do not end other ones.
            self.unshown += 1;
            return CallRecord::Instant;
        }
        let name = match self.functions.get(function_id) {
            Some(name) => name.to_owned(),
            None => format!("function {function_id}"),
        };
        self.open.push(name.clone());
        CallRecord::Begin(name, self.arguments(args))
    }

    fn end(&mut self, value: &Json<'_>) -> CallRecord {
        if let Some(unshown) = self.unshown.checked_sub(1) {
            self.unshown = unshown;
            return CallRecord::Instant;
        }
        // The top level is not always called.
        let Some(name) = self.open.pop() else {
            return CallRecord::Instant;
        };
        let mut members = Vec::new();
        if let Ok(value) = serde_json::from_str(value.as_str()) {
            write_member("return", value, &mut members);
        }
        CallRecord::End(name, members)
    }

    /// The arguments as members of an object, by the names of their variables.
    fn arguments(&self, args: &Json<'_>) -> Vec<u8> {
        // Arguments that cannot be read are left out: the call itself is known.
        let args: Vec<Argument> = serde_json::from_str(args.as_str()).unwrap_or_default();
        let mut members = Vec::new();
        let mut names = HashSet::new();
        for Argument { variable_id, value } in args {
            let mut name: Cow<'_, str> = match self.variables.get(variable_id) {
                Some(name) => name.into(),
                None => format!("variable {variable_id}").into(),
            };
            // Readers of JSON keep only one of two members of the same name.
            while !names.insert(name.clone()) {
                name.to_mut().push('\'');
            }
            write_member(&name, value, &mut members);
        }
        members
    }
}

fn write_member(name: &str, value: Value, to: &mut Vec<u8>) {
    if !to.is_empty() {
        to.push(b',');
    }
    string(name, to);
    to.push(b':');
    to.extend_from_slice(plain(value).to_string().as_bytes());
}

/// JSON of a record as JSON that says the same to people; `None` if it cannot be read.
#[must_use]
pub fn plain_json(json: &str) -> Option<String> {
    let value: Value = serde_json::from_str(json).ok()?;
    Some(match value {
        // The members of a record, some of which are values.
        Value::Object(members) if !members.contains_key("kind") => {
            let members = members.into_iter();
            let members = members.map(|(name, value)| (name, plain(value)));
            Value::Object(members.collect()).to_string()
        }
        value => plain(value).to_string(),
    })
}

/// A value of a recording as JSON that says the same to people. What is not known stays as it is.
fn plain(value: Value) -> Value {
    let Value::Object(mut members) = value else {
        return value;
    };
    let kind = members.get("kind").and_then(Value::as_str);
    let plain_name = match kind.unwrap_or_default() {
        "Int" => "i",
        "Float" => "f",
        "Bool" => "b",
        "String" => "text",
        "Sequence" | "Tuple" => "elements",
        "Struct" => "field_values",
        "Reference" => "dereferenced",
        "Raw" => "r",
        "Error" => "msg",
        "Char" => "c",
        "None" => return Value::Null,
        "Variant" => {
            let contents = plain(members.remove("contents").unwrap_or_default());
            return match members.remove("discriminator") {
                Some(Value::String(name)) => {
                    Value::Object([(name, contents)].into_iter().collect())
                }
                _ => contents,
            };
        }
        _ => return Value::Object(members),
    };
    match members.remove(plain_name) {
        Some(Value::Array(elements)) => elements.into_iter().map(plain).collect(),
        Some(value) => plain(value),
        None => Value::Object(members),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(recording: &mut Recording, element: &str) -> CallRecord {
        recording.record(&Record::parse(element).unwrap())
    }

    fn members(members: &[u8]) -> Value {
        let object = [b"{", members, b"}"].concat();
        serde_json::from_slice(&object).unwrap()
    }

    #[test]
    fn a_call_is_a_span_named_by_its_function_with_arguments_by_name() {
        let mut recording = Recording::default();
        let defined = [
            r#"{"Path":"/a"}"#,
            r#"{"Function":{"path_id":0,"line":1,"name":"sum"}}"#,
            r#"{"VariableName":"xs"}"#,
        ];
        for element in defined {
            assert_eq!(call(&mut recording, element), CallRecord::None);
        }
        let none = r#"{"Return":{"return_value":{"kind":"None","type_id":0}}}"#;
        assert_eq!(call(&mut recording, none), CallRecord::Instant);
        let int = r#"{"kind":"Int","i":5,"type_id":1}"#;
        let list = format!(r#"{{"kind":"Tuple","elements":[{int}],"type_id":1}}"#);
        let arguments = format!(
            r#"{{"variable_id":0,"value":{list}}},{{"variable_id":0,"value":{int}}},{{"variable_id":7,"value":{int}}}"#
        );
        let element = format!(r#"{{"Call":{{"function_id":0,"args":[{arguments}]}}}}"#);
        let CallRecord::Begin(name, args) = call(&mut recording, &element) else {
            panic!("no begin");
        };
        assert_eq!(name, "sum");
        assert_eq!(
            members(&args),
            json!({"xs": [5], "xs'": 5, "variable 7": 5})
        );
        let CallRecord::End(name, args) = call(&mut recording, none) else {
            panic!("no end");
        };
        assert_eq!(
            (name.as_str(), members(&args)),
            ("sum", json!({"return": null}))
        );
    }

    #[test]
    fn values_are_shown_as_plain_json() {
        let int = json!({"kind": "Int", "i": 1, "type_id": 0});
        for (value, want) in [
            (
                json!({"kind": "Float", "f": "NaN", "type_id": 0}),
                json!("NaN"),
            ),
            (
                json!({"kind": "Struct", "field_values": [int], "type_id": 0}),
                json!([1]),
            ),
            (
                json!({"kind": "Variant", "discriminator": "Some", "contents": int, "type_id": 0}),
                json!({"Some": 1}),
            ),
            (json!({"kind": "Reference", "dereferenced": int}), json!(1)),
            (
                json!({"kind": "Cell", "place": 3}),
                json!({"kind": "Cell", "place": 3}),
            ),
            (
                json!({"kind": "New", "x": 3}),
                json!({"kind": "New", "x": 3}),
            ),
            (json!({"kind": "Int"}), json!({"kind": "Int"})),
        ] {
            assert_eq!(plain(value.clone()), want, "{value}");
        }
    }
}
