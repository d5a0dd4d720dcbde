//! The fields of one event, as the page shows them.
//!
//! Of an event that a program has sent these are the members that it sent. How they were recorded
//! (the class of the event, and which fields of it count) says nothing to the user.

use ctf::decode::Event;
use daemon::span_lines::SpanEvent;
use serde::Serialize;
use serde_json::Value;
use tef::Record;
use tef::ctf::{Decoded, RecordDecoder};
use tef::json_args::has_json_args;
use viewer::filter::Filter;
use viewer::interpret::environment::Environment;
use viewer::interpret::interpreted_fields::InterpretedFields;
use viewer::json_fields::{JsonFields, JsonPosition, Scopes};
use viewer::sink::{Origin, SinkError};
use viewer::time::Nanoseconds;

use super::arrows::ArrowEnd;
use super::locations::Locations;
use super::packet_log::PacketLog;
use super::replay::{Events, Replay};
use super::row::{EventPlace, Row};
use super::span_log::SpanKey;
use super::store::Store;

/// Fields of an event that are shown.
const MAX_FIELDS: usize = 500;
/// Characters of a value that are shown.
const MAX_VALUE_CHARACTERS: usize = 4096;
/// Bytes of a filter that is offered. A page sends no longer one.
const MAX_FILTER_BYTES: usize = 2000;
/// The fields that all events of spans of `tracing` have.
const OF_ALL_SPANS: [&str; 3] = ["span", "name", "parent"];
/// Bytes of the JSON of an event that a page gets.
const MAX_JSON_BYTES: usize = 256 << 10;

/// An event with its fields.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Details {
    /// Empty if the event is no longer kept.
    pub(super) fields: Vec<ShownField>,
    /// All of it as JSON; empty if that is very long.
    pub(super) json: String,
    /// The arrows that begin or end within it.
    pub(super) arrows: Vec<ShownArrow>,
    /// The names of the spans of `tracing` around it, the outermost first.
    pub(super) parents: Vec<String>,
}

/// What the packet of an event says of it.
#[derive(Debug)]
struct EventFacts {
    fields: Vec<ShownField>,
    /// How many of the fields are of the payload; these are first.
    own_fields: usize,
    json: String,
    /// The span of `tracing` that it is of.
    span: Option<SpanKey>,
}

/// What pages show of a row of a track.
pub(super) fn row_details(row: &Row, track: u32, store: &Store, log: &PacketLog) -> Details {
    let mut details = Details {
        arrows: arrows_of(store, track, row),
        ..Details::default()
    };
    let Some(facts) = event_facts(row.place, log) else {
        return details;
    };
    details.json = facts.json;
    // The event of a span of `tracing` says the id and the name only.
    if let Some(span) = facts.span {
        let known = store.spans.find(span, row.start);
        let parents = known.parents.into_iter();
        details.parents = parents.map(|name| store.name_text(name)).collect();
        for place in known.events.into_iter().filter(|place| *place != row.place) {
            let recorded = event_facts(place, log);
            details
                .fields
                .extend(recorded.into_iter().flat_map(span_fields));
            details.fields.truncate(MAX_FIELDS);
        }
    }
    details.fields.extend(facts.fields);
    details
}

/// The fields of a span of `tracing` in one of its events.
fn span_fields(facts: EventFacts) -> impl Iterator<Item = ShownField> {
    let own = facts.fields.into_iter().take(facts.own_fields);
    let own = own.filter(|field| !OF_ALL_SPANS.contains(&&*field.name));
    // A filter would not select the event that is shown.
    own.map(|field| ShownField {
        filter: None,
        ..field
    })
}

/// An arrow as pages are told of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownArrow {
    /// The number of the name: of a flow, or of the CPU on which a thread was woken.
    pub(super) name: u32,
    pub(super) is_wakeup: bool,
    /// What woke the thread, or was within the flow.
    pub(super) cause: String,
    pub(super) from: ShownEnd,
    pub(super) to: ShownEnd,
}

/// An end of an arrow as pages are told of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ShownEnd {
    pub(super) track: u32,
    pub(super) time: String,
}

impl From<ArrowEnd> for ShownEnd {
    fn from(end: ArrowEnd) -> Self {
        Self {
            track: end.track,
            time: end.time.to_string(),
        }
    }
}

/// The arrows that begin or end within a row of a track.
fn arrows_of(store: &Store, track: u32, row: &Row) -> Vec<ShownArrow> {
    let arrows = store.arrows.of(track, row.start, row.end());
    let shown = arrows.into_iter().filter_map(|arrow| {
        let from = store.track(arrow.from.track)?;
        let mut rows = from.rows.lock();
        // A thread is known by its name, an interrupt by its span.
        let within = match arrow.is_wakeup && rows.has_states {
            true => None,
            false => rows.innermost(arrow.from.time),
        };
        drop(rows);
        let cause = match within {
            Some(name) => store.name_text(name),
            None => from.label.lock().thread.clone(),
        };
        Some(ShownArrow {
            name: arrow.name,
            is_wakeup: arrow.is_wakeup,
            cause,
            from: arrow.from.into(),
            to: arrow.to.into(),
        })
    });
    shown.collect()
}

/// A field as text.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ShownField {
    pub(super) name: String,
    pub(super) value: String,
    /// The filter that selects events with this value. Absent if there is none.
    pub(super) filter: Option<String>,
}

impl ShownField {
    /// Makes the filter that of a member that a program has sent. Most are not recorded as they are
    /// sent.
    fn select_sent(&mut self) {
        self.filter = match &*self.name {
            "name" => self.filter.take().map(|filter| format!("${filter}")),
            name if name == "cat" || name.starts_with("args.") => self.filter.take(),
            _ => None,
        };
    }
}

/// What the packet of an event says of it, first what its addresses are. `None` if the packet is no
/// longer kept.
fn event_facts(place: EventPlace, log: &PacketLog) -> Option<EventFacts> {
    let packet = log.packet(place)?;
    let mut stage = OneEvent {
        wanted: place.event,
        next: 0,
        json: Vec::new(),
        locations: &log.locations,
        fields: Vec::new(),
        own_fields: 0,
        span: None,
    };
    // A new one for each event: it stops within the packet.
    let added = Replay::new(false).add(&packet, &mut stage);
    // What cannot be decoded has been reported when it was decoded first, but the file of a
    // recording may have changed since.
    if let Err(error) = added {
        stage.fields.push(ShownField {
            name: "error".to_owned(),
            value: error.to_string(),
            filter: None,
        });
    }
    let json = String::from_utf8(stage.json).unwrap_or_default();
    Some(EventFacts {
        fields: stage.fields,
        own_fields: stage.own_fields,
        span: stage.span,
        json: Some(json)
            .filter(|json| json.len() <= MAX_JSON_BYTES)
            .unwrap_or_default(),
    })
}

/// The fields of an event that is an object of JSON.
/// Returns the number of those of the payload, too, which come first.
fn shown_fields(json: &[u8]) -> (Vec<ShownField>, usize) {
    let mut fields = Vec::new();
    let mut own_fields = 0;
    let Ok(Value::Object(members)) = serde_json::from_slice(json) else {
        fields.push(ShownField {
            name: "error".to_owned(),
            value: "the fields are too deep within each other".to_owned(),
            filter: None,
        });
        return (fields, 0);
    };
    let scopes = [
        ("fields", "", ""),
        ("event_context", "event_context", "ctx"),
        ("context", "context", "ctx"),
        ("packet", "packet", "$packet"),
    ];
    for (scope, label, path) in scopes {
        if let Some(value) = members.get(scope) {
            flatten(label, Some(path), value, &mut fields);
        }
        if scope == "fields" {
            own_fields = fields.len();
        }
    }
    if !members.contains_key("event") {
        fields.iter_mut().for_each(ShownField::select_sent);
    }
    let properties = [
        ("event", Some("$name")),
        ("loglevel", Some("$loglevel")),
        ("trace", Some("$trace")),
        ("stream", Some("$stream")),
        ("host", None),
    ];
    for (member, path) in properties {
        if let Some(value) = members.get(member).filter(|value| !value.is_null()) {
            flatten(member, path, value, &mut fields);
        }
    }
    (fields, own_fields)
}

/// The span of `tracing` that an event is of.
fn span_of(event: &Event<'_>, origin: Origin<'_>) -> Result<Option<SpanKey>, SinkError> {
    if SpanEvent::of(event.class().name().unwrap_or_default()).is_none() {
        return Ok(None);
    }
    let mut fields = InterpretedFields::default();
    event.visit_packet_context(&mut fields)?;
    event.visit_fields(&mut fields)?;
    Ok(SpanKey::of(&fields, origin.trace.key))
}

/// Appends the members of a value. `path` is what filters call it.
fn flatten(name: &str, path: Option<&str>, value: &Value, out: &mut Vec<ShownField>) {
    if out.len() >= MAX_FIELDS {
        return;
    }
    let text = match value {
        Value::Object(members) => match labelled(value) {
            Some(text) => text,
            None => {
                for (member, value) in members {
                    // No filter has a name with a backquote.
                    let path = path.filter(|_| !member.contains('`'));
                    let path = path.map(|path| joined(path, &quoted(member)));
                    flatten(&joined(name, member), path.as_deref(), value, out);
                }
                return;
            }
        },
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    out.push(ShownField {
        name: name.to_owned(),
        value: shortened(&text),
        filter: path
            .zip(literal(value))
            .map(|(path, literal)| format!("{path} == {literal}")),
    });
}

fn joined(path: &str, member: &str) -> String {
    match path {
        "" => member.to_owned(),
        path => format!("{path}.{member}"),
    }
}

/// An enumeration or bit map as text: its labels, and its number.
fn labelled(value: &Value) -> Option<String> {
    let labels = value.get("labels")?.as_array()?;
    let number = value
        .get("value")
        .filter(|_| value.as_object().map_or(0, |of| of.len()) == 2)?;
    let labels: Option<Vec<&str>> = labels.iter().map(Value::as_str).collect();
    Some(match labels?.join(" | ") {
        labels if labels.is_empty() => number.to_string(),
        labels => format!("{labels} ({number})"),
    })
}

/// A name as filters write it.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = name.starts_with(|c: char| !c.is_ascii_digit());
    let is_word = ["ctx", "true", "false", "exists"].contains(&name);
    match begins && !is_word && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("`{name}`"),
    }
}

/// A value as filters write it; `None` of what they do not compare.
fn literal(value: &Value) -> Option<String> {
    match value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if text.chars().count() <= MAX_VALUE_CHARACTERS => {
            let mut literal = String::from('"');
            for character in text.chars() {
                match character {
                    '"' | '\\' | '*' | '?' => literal.extend(['\\', character]),
                    '\n' => literal.push_str("\\n"),
                    '\t' => literal.push_str("\\t"),
                    _ => literal.push(character),
                }
            }
            literal.push('"');
            Some(literal)
        }
        Value::Object(_) => value.get("value").and_then(literal),
        _ => None,
    }
}

/// The part of a value that is shown.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_VALUE_CHARACTERS).collect()
}

/// Finds one event of a packet.
struct OneEvent<'a> {
    wanted: u32,
    next: u32,
    /// An object with the scopes of the event, its name and its origin.
    json: Vec<u8>,
    locations: &'a Locations,
    fields: Vec<ShownField>,
    own_fields: usize,
    span: Option<SpanKey>,
}

impl Events for OneEvent<'_> {
    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        if self.next == self.wanted {
            let located = self.locations.locate(event, origin)?.unwrap_or_default();
            let function = located.function_name();
            let function = function.map(|function| ("function", function));
            let located = function.into_iter().chain(located.fields());
            self.fields.extend(located.map(|(name, text)| ShownField {
                name: name.to_owned(),
                value: shortened(text),
                filter: None,
            }));
            self.json = match sent(event)? {
                Some(sent) => json_of_sent(event, &sent),
                None => json_of_recorded(event, origin)?,
            };
            let (mut fields, own_fields) = shown_fields(&self.json);
            self.own_fields = self.fields.len() + own_fields;
            self.span = span_of(event, origin)?;
            for field in &mut fields {
                // Some values have no filter, such as those that are not exact as text.
                let selects = |filter: &String| {
                    filter.len() <= MAX_FILTER_BYTES
                        && Filter::parse(filter).is_ok_and(|mut of| of.matches(event, origin))
                };
                field.filter = field.filter.take().filter(selects);
            }
            self.fields.append(&mut fields);
        }
        self.next += 1;
        Ok(self.next <= self.wanted)
    }
}

/// What a program has sent, as JSON; `None` if the event is of another source.
fn sent(event: &Event<'_>) -> Result<Option<Vec<u8>>, SinkError> {
    let class = event.class().name().unwrap_or_default();
    if !RecordDecoder::is_known_class(class) {
        return Ok(None);
    }
    let mut decoder = RecordDecoder::default();
    event.visit(&mut decoder)?;
    Ok(match decoder.decode(class) {
        Some(Decoded::Record {
            record: Record::Event(sent),
            ..
        }) => {
            let mut json = Vec::new();
            sent.write_json(&mut json);
            Some(json)
        }
        _ => None,
    })
}

fn json_of_sent(event: &Event<'_>, sent: &[u8]) -> Vec<u8> {
    let mut json = b"{\"fields\":".to_vec();
    json.extend_from_slice(sent);
    json.extend_from_slice(b",\"host\":");
    json.extend_from_slice(
        Value::from(Environment::of(event.trace()).host)
            .to_string()
            .as_bytes(),
    );
    json.push(b'}');
    json
}

fn json_of_recorded(event: &Event<'_>, origin: Origin<'_>) -> Result<Vec<u8>, SinkError> {
    let head = serde_json::json!({
        "event": event.class().name(), "loglevel": event.class().log_level().map(|level| level.0),
        "trace": origin.trace.name, "stream": origin.stream.name, "host": Environment::of(event.trace()).host,
    });
    let mut json = head.to_string().into_bytes();
    // The scopes of the event are further members of the object.
    json.pop();
    let position = JsonPosition::new(Scopes::Named, false);
    let mut fields = JsonFields::new(&mut json, position);
    if has_json_args(event.class().name()) {
        fields.expect_json_args();
    }
    event.visit(&mut fields)?;
    json.push(b'}');
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_shown_with_the_filters_that_select_them() {
        let value = serde_json::json!({
            "size": 3, "odd name": -1, "text": "a*\"b\\\n", "list": [1, 2], "none": null, "is": true,
            "state": {"value": 7, "labels": ["RUNNING", "HOT"]}, "bits": {"value": 0, "labels": []},
            "inner": {"x": 1.5, "ctx": 2}, "value": {"value": 5},
        });
        let mut fields = Vec::new();
        flatten("", Some(""), &value, &mut fields);
        flatten(
            "context",
            Some("ctx"),
            &serde_json::json!({"vpid": 1}),
            &mut fields,
        );
        let shown: Vec<_> = fields
            .iter()
            .map(|field| (&*field.name, &*field.value, field.filter.as_deref()))
            .collect();
        let mut expected = vec![
            ("size", "3", Some("size == 3")),
            ("odd name", "-1", Some("`odd name` == -1")),
            ("text", "a*\"b\\\n", Some(r#"text == "a\*\"b\\\n""#)),
            ("list", "[1,2]", None),
            ("none", "null", None),
            ("is", "true", Some("is == true")),
            ("state", "RUNNING | HOT (7)", Some("state == 7")),
            ("bits", "0", Some("bits == 0")),
            ("inner.x", "1.5", Some("inner.x == 1.5")),
            ("inner.ctx", "2", Some("inner.`ctx` == 2")),
            ("value.value", "5", Some("value.value == 5")),
            ("context.vpid", "1", Some("ctx.vpid == 1")),
        ];
        let mut found = shown.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for filter in fields.iter().filter_map(|field| field.filter.as_deref()) {
            assert!(Filter::parse(filter).is_ok(), "{filter}");
        }
    }
}
