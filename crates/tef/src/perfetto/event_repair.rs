//! The members of one event as Perfetto understands them.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::event::{Event, rounded_nanoseconds};

/// Names of the records that name processes and threads.
const NAMES: [&str; 2] = ["process_name", "thread_name"];

/// Rounds the times that are kept as they were written, finer than a nanosecond or as strings, to
/// whole nanoseconds, so that they can be counted from another origin. What is no number would end
/// the import and is dropped; metadata needs none.
pub fn round_times(event: &mut Event<'_>) {
    let mut rest = Rest::of(event);
    rest.round_times(event);
    rest.put_back(event);
}

/// Changes what Perfetto would reject or take for something else of an event that has
/// [numbers](super::owner_numbers) of its process and thread, but no ids of asynchronous events.
/// `now` is the time of an event without one. Returns whether anything is left to write.
pub(super) fn repair(event: &mut Event<'_>, now: i64) -> bool {
    let mut rest = Rest::of(event);
    rest.round_times(event);
    if event.name.is_none() {
        rest.take_name(event);
    }
    if rest.get("cat").is_some_and(|value| !value.is_string()) {
        rest.remove("cat");
    }
    rest.wrap_arguments();
    rest.repair_flow(event);
    let is_kept = event.phase != "M" || repair_metadata(event, &mut rest);
    repair_phase(event, &mut rest);
    rest.put_back(event);
    if event.phase != "M" {
        event.ts = event.ts.or(Some(now));
    }
    is_kept
}

/// A number of 64 bits for something, not 0.
pub(super) fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish().max(1)
}

/// Whether Perfetto reads a JSON value as the id of a flow: a whole number, or a hexadecimal one in
/// a string.
fn is_flow_id(token: &str) -> bool {
    match token.strip_prefix('"').and_then(|id| id.strip_suffix('"')) {
        Some(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).is_ok(),
        None => !token.contains(['.', 'e', 'E']),
    }
}

/// An id of a flow that Perfetto reads, for something.
fn flow_id(of: impl Hash) -> Value {
    Value::String(format!("{:#x}", hash(of)))
}

/// The phase of an old asynchronous event as the present ones have it.
fn phase(phase: &str) -> &str {
    match phase {
        "S" => "b",
        "T" | "p" => "n",
        "F" => "e",
        other => other,
    }
}

/// Whether this is the state of a thread, and not a step of an old asynchronous event.
fn is_thread_state(event: &Event<'_>) -> bool {
    let categories = event.cat.as_deref().unwrap_or_default();
    let is_of_state = categories.split(',').any(|of| of == "thread_state");
    event.phase == "T" && event.dur.is_some() && is_of_state
}

/// Gives an event the phase of an instant where Perfetto rejects its own, and what its phase needs.
fn repair_phase(event: &mut Event<'_>, rest: &mut Rest) {
    if is_thread_state(event) {
        return;
    }
    event.phase = phase(event.phase);
    let has_id = |id: Option<&str>| id.is_some_and(|id| id != "\"\"");
    let is_instant = match event.phase {
        "X" => event.dur.is_none(),
        "b" | "e" | "n" => ![event.id, event.id2_local, event.id2_global]
            .into_iter()
            .any(has_id),
        "s" | "t" | "f" => !rest.repair_flow_id(event),
        "C" => !keep_numbers(event, rest),
        _ => false,
    };
    if is_instant {
        event.phase = "i";
    }
    match event.phase {
        "X" => event.dur = event.dur.map(|dur| dur.max(0)),
        // With a duration, Perfetto would put it before others of its time.
        "B" | "E" | "b" | "e" | "n" | "i" | "I" | "R" | "s" | "t" | "f" | "C" => event.dur = None,
        _ => {}
    }
    match event.phase {
        "b" | "e" | "n" => event.pid = event.pid.or(Some(0)),
        "i" | "I" | "R" => match event.s.as_deref() {
            Some("g") => {}
            Some("p") => event.pid = event.pid.or(Some(0)),
            // The first thread of its process, which has the id of the process.
            _ => event.tid = event.tid.or(event.pid).or(Some(0)),
        },
        _ => {}
    }
}

/// Keeps only the values of a counter that are numbers. Returns whether there are any.
fn keep_numbers(event: &mut Event<'_>, rest: &mut Rest) -> bool {
    let Some(Ok(args)) = event.args.map(serde_json::from_str::<Map<String, Value>>) else {
        return false;
    };
    let is_number = |value: &Value| match value {
        Value::Number(_) => true,
        Value::String(text) => text.parse::<f64>().is_ok_and(f64::is_finite),
        _ => false,
    };
    let count = args.values().filter(|value| is_number(value)).count();
    if count > 0 && count < args.len() {
        event.args = None;
        let numbers = args.into_iter().filter(|(_, value)| is_number(value));
        rest.insert("args", Value::Object(numbers.collect()));
    }
    count > 0
}

/// Makes the name of a process or thread a text. Returns whether there is one.
fn repair_metadata(event: &mut Event<'_>, rest: &mut Rest) -> bool {
    if !NAMES.contains(&event.name.as_deref().unwrap_or_default()) {
        return true;
    }
    let Some(Ok(mut args)) = event.args.map(serde_json::from_str::<Map<String, Value>>) else {
        return false;
    };
    match args.get("name") {
        Some(Value::String(name)) => !name.is_empty(),
        Some(name @ (Value::Number(_) | Value::Bool(_))) => {
            let name = name.to_string();
            args.insert("name".to_owned(), Value::String(name));
            event.args = None;
            rest.insert("args", Value::Object(args));
            true
        }
        _ => false,
    }
}

/// The members of an event that have no place of their own.
struct Rest {
    /// Absent if there are none, as of nearly all events.
    members: Option<Map<String, Value>>,
    is_changed: bool,
}

impl Rest {
    fn of(event: &Event<'_>) -> Self {
        Self {
            // An empty text is no JSON.
            members: serde_json::from_str(&event.rest).ok(),
            is_changed: false,
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.members.as_ref()?.get(name)
    }

    fn remove(&mut self, name: &str) -> Option<Value> {
        let value = self.members.as_mut()?.remove(name)?;
        self.is_changed = true;
        Some(value)
    }

    fn insert(&mut self, name: &str, value: Value) {
        let members = self.members.get_or_insert_default();
        members.insert(name.to_owned(), value);
        self.is_changed = true;
    }

    fn put_back(self, event: &mut Event<'_>) {
        let Some(members) = self.members.filter(|_| self.is_changed) else {
            return;
        };
        event.rest = match members.is_empty() {
            true => "".into(),
            false => Value::Object(members).to_string().into(),
        };
    }

    fn round_times(&mut self, event: &mut Event<'_>) {
        // The numbers as they are written: a value has not all of their digits.
        let written = |rest: &str, name| crate::event::member_of(rest, name).map(str::to_owned);
        for (name, place) in [
            ("ts", &mut event.ts),
            ("dur", &mut event.dur),
            ("tts", &mut event.tts),
            ("tdur", &mut event.tdur),
        ] {
            if self.get(name).is_none() {
                continue;
            }
            let token = written(&event.rest, name).unwrap_or_default();
            self.remove(name);
            if event.phase != "M" {
                *place = rounded_nanoseconds(token.trim_matches('"'));
            }
        }
    }

    /// Makes a name that is no text one.
    fn take_name(&mut self, event: &mut Event<'_>) {
        match self.get("name") {
            Some(Value::String(_)) | None => {}
            Some(name @ (Value::Number(_) | Value::Bool(_))) => {
                event.name = Some(name.to_string().into());
                self.remove("name");
            }
            Some(_) => {
                self.remove("name");
            }
        }
    }

    /// Makes arguments that are no object one.
    fn wrap_arguments(&mut self) {
        match self.remove("args") {
            None | Some(Value::Null) => {}
            Some(args) => self.insert("args", serde_json::json!({ "value": args })),
        }
    }

    /// Makes the flow of a slice one that Perfetto knows, if the event says where it goes.
    fn repair_flow(&mut self, event: &mut Event<'_>) {
        let token = match (event.bind_id, self.get("bind_id")) {
            (Some(token), _) => token.to_owned(),
            (None, Some(id)) => id.to_string(),
            (None, None) => return,
        };
        let is_true = |name| self.get(name) == Some(&Value::Bool(true));
        let has_direction = is_true("flow_in") || is_true("flow_out");
        if has_direction && is_flow_id(&token) {
            return;
        }
        event.bind_id = None;
        self.remove("bind_id");
        if has_direction {
            self.insert("bind_id", flow_id(token.trim_matches('"')));
        }
    }

    /// Makes the id of a flow one that Perfetto knows. Returns whether the event has any.
    fn repair_flow_id(&mut self, event: &mut Event<'_>) -> bool {
        if event.id.is_some_and(is_flow_id) {
            return true;
        }
        let of = |name| self.get("id2")?.get(name).filter(|id| !id.is_null());
        let id = match (event.id, of("global"), of("local")) {
            (Some(token), ..) => flow_id(token.trim_matches('"')),
            (None, Some(id), _) => flow_id(id.to_string().trim_matches('"')),
            (None, None, Some(id)) => flow_id((id.to_string().trim_matches('"'), event.pid)),
            (None, None, None) => return false,
        };
        event.id = None;
        self.insert("id", id);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    #[test]
    fn times_for_perfetto_finer_than_nanoseconds_or_in_strings_are_rounded() {
        let mut event = Event::new("X");
        event.rest = r#"{"ts":"12.5","dur":1.23456,"tts":"soon","cname":"good"}"#.into();
        round_times(&mut event);
        let want = Event {
            ts: Some(12_500),
            dur: Some(1235),
            rest: r#"{"cname":"good"}"#.into(),
            ..Event::new("X")
        };
        assert_eq!(event, want);
        let mut event = Event::new("M");
        event.rest = r#"{"ts":0}"#.into();
        round_times(&mut event);
        assert_eq!(event, Event::new("M"));
    }

    #[test]
    fn members_that_perfetto_would_reject_are_repaired_or_left_out() {
        for (line, want) in [
            (
                r#"{"ph":"T","cat":"thread_state","dur":5,"ts":1}"#,
                r#"{"ph":"T","ts":1,"dur":5,"cat":"thread_state"}"#,
            ),
            (
                r#"{"ph":"T","ts":1,"id":3,"pid":1}"#,
                r#"{"ph":"n","ts":1,"pid":1,"id":3}"#,
            ),
            (
                r#"{"ph":"b","ts":1,"id":3}"#,
                r#"{"ph":"b","ts":1,"pid":0,"id":3}"#,
            ),
            (
                r#"{"ph":"b","ts":1,"tid":3}"#,
                r#"{"ph":"i","ts":1,"tid":3}"#,
            ),
            (
                r#"{"ph":"X","pid":4}"#,
                r#"{"ph":"i","ts":7,"pid":4,"tid":4}"#,
            ),
            (
                r#"{"ph":"X","ts":1,"dur":-5}"#,
                r#"{"ph":"X","ts":1,"dur":0}"#,
            ),
            (
                r#"{"ph":"i","ts":1,"pid":4}"#,
                r#"{"ph":"i","ts":1,"pid":4,"tid":4}"#,
            ),
            (r#"{"ph":"i","ts":1}"#, r#"{"ph":"i","ts":1,"tid":0}"#),
            (
                r#"{"ph":"i","ts":1,"s":"p"}"#,
                r#"{"ph":"i","ts":1,"pid":0,"s":"p"}"#,
            ),
            (
                r#"{"ph":"i","ts":1,"s":"g"}"#,
                r#"{"ph":"i","ts":1,"s":"g"}"#,
            ),
            (
                r#"{"ph":"C","ts":1,"args":{"a":1,"b":"2.5","c":null,"d":"x","e":"inf"}}"#,
                r#"{"ph":"C","ts":1,"args":{"a":1,"b":"2.5"}}"#,
            ),
            (
                r#"{"ph":"C","ts":1,"tid":2,"args":[]}"#,
                r#"{"ph":"i","ts":1,"tid":2,"args":{"value":[]}}"#,
            ),
            (
                r#"{"ph":"B","ts":1,"name":5,"cat":7}"#,
                r#"{"ph":"B","ts":1,"name":"5"}"#,
            ),
            (
                r#"{"ph":"B","ts":1,"dur":5,"args":"x"}"#,
                r#"{"ph":"B","ts":1,"args":{"value":"x"}}"#,
            ),
            (r#"{"ph":"B","ts":1,"bind_id":5}"#, r#"{"ph":"B","ts":1}"#),
            (
                r#"{"ph":"B","ts":1,"bind_id":"0x5","flow_in":true}"#,
                r#"{"ph":"B","ts":1,"bind_id":"0x5","flow_in":true}"#,
            ),
            (
                r#"{"ph":"M","name":"thread_name","args":{"name":7}}"#,
                r#"{"ph":"M","name":"thread_name","args":{"name":"7"}}"#,
            ),
            (r#"{"ph":"M","name":"thread_name","args":{"name":""}}"#, ""),
            (r#"{"ph":"M","name":"process_name"}"#, ""),
        ] {
            let Ok(Record::Event(mut event)) = Record::parse(line) else {
                panic!("{line}");
            };
            let mut repaired = Vec::new();
            if repair(&mut event, 7000) {
                event.write_json(&mut repaired);
            }
            let of = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
            assert_eq!(of(&repaired), of(want.as_bytes()), "{line}");
        }
    }
}
