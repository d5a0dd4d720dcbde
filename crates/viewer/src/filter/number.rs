//! A numeric field that is selected by `--counter [NAME=][EVENT.]FIELD`.

use ctf::decode::{Event, FieldError, NumberFormat, Visitor};
use ctf::metadata::Trace;
use ctf::model::{Labels, Scope};
use serde_json::Value;
use tef::ctf::RecordDecoder;

use super::collect::PathTracker;
use super::expression::{Comparison, Leaf, Literal, Part, Property, Test};
use super::glob::Pattern;
use super::names::UndeclaredNames;
use super::parse::parse_field;
use super::token::{Token, tokens};
use crate::attach::TraceKey;
use crate::interpret::event_name::EventNames;
use crate::sink::Number;

/// Finds the values of one counter in events.
#[derive(Debug)]
pub struct NumberSelector {
    /// The expression as it was given.
    text: String,
    /// The name of the counter.
    name: String,
    /// The comparison with the names of events that it is of. Absent if it is of all.
    event: Option<Test>,
    names: EventNames,
    tracker: PathTracker,
    /// The path within the arguments of events that were sent in Trace Event Format, which are
    /// JSON. Absent if the field is another one.
    in_args: Option<Vec<Part>>,
    undeclared: UndeclaredNames,
}

impl NumberSelector {
    /// Parses an expression. Without NAME the counter is called as the rest.
    ///
    /// # Errors
    /// What is wrong with the expression.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, selected) = split_name(text);
        let (event, field) = split_event(selected)?;
        let path = parse_field(field).map_err(|error| error.what)?;
        let in_args = match path.parts.as_slice() {
            [Part::Member(args), rest @ ..] if args == "args" && !rest.is_empty() => {
                Some(rest.to_vec())
            }
            _ => None,
        };
        // Stands for the field: the tracker follows the fields of comparisons.
        let mut leaves = vec![Leaf::Exists(path)];
        let tracker = PathTracker::new(&leaves);
        let event = event.map(|pattern| Test {
            how: Comparison::Equal,
            with: Literal::Text(pattern),
        });
        leaves.extend(
            event
                .clone()
                .map(|test| Leaf::Property(Property::Name, test)),
        );
        Ok(Self {
            text: text.to_owned(),
            name: name.to_owned(),
            event,
            names: EventNames::default(),
            tracker,
            in_args,
            undeclared: UndeclaredNames::new(&leaves),
        })
    }

    /// The name of the counter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes into account what a trace declares.
    pub fn add_declarations(&mut self, trace: &Trace) {
        self.undeclared.add_declarations(trace);
    }

    /// Says why no event has had a value.
    pub fn describe_no_match(&mut self) -> String {
        let mut descriptions = self.undeclared.take_descriptions();
        if descriptions.is_empty() {
            descriptions.push("no event that was shown has a number there".to_owned());
        }
        format!("--counter {}: {}", self.text, descriptions.join("; "))
    }

    /// The number in the field of an event; `None` if the event is another one, or has no number
    /// there.
    ///
    /// # Errors
    /// If the fields of the event cannot be decoded.
    pub fn find(
        &mut self,
        event: &Event<'_>,
        trace: TraceKey,
    ) -> Result<Option<Number>, FieldError> {
        let class = event.class();
        let name = class.name().unwrap_or_default();
        if let Some(test) = &self.event {
            let key = (trace, event.stream_class().id(), class.id());
            let names = self.names.of_class(event, key);
            let own = self.names.own_name(&names, event)?;
            if !test.names_event(&names, class.name(), own) {
                return Ok(None);
            }
        }
        self.tracker.begin_event();
        let (packet, fields) = (self.tracker.needs_packet(), self.tracker.needs_event());
        let mut finder = NumberFinder {
            tracker: &mut self.tracker,
            in_args: self
                .in_args
                .as_deref()
                .filter(|_| RecordDecoder::is_known_class(name)),
            found: None,
        };
        if packet {
            event.visit_packet_context(&mut finder)?;
        }
        if fields {
            event.visit_fields(&mut finder)?;
        }
        Ok(finder.found)
    }
}

/// The name of a counter and what is selected: the parts on both sides of the first `=` that is not
/// within quotation marks.
fn split_name(text: &str) -> (&str, &str) {
    let mut open = None;
    for (at, char) in text.char_indices() {
        match (open, char) {
            (None, '"' | '`') => open = Some(char),
            (Some(quote), char) if quote == char => open = None,
            (None, '=') => {
                let (name, selected) = text.split_at(at);
                let name = name.trim();
                let unquoted = name
                    .strip_prefix('"')
                    .and_then(|name| name.strip_suffix('"'));
                let selected = selected.get(1..).unwrap_or_default();
                return (unquoted.unwrap_or(name), selected.trim());
            }
            _ => {}
        }
    }
    (text.trim(), text.trim())
}

/// The event and the field: an event is a text between quotation marks, or has a colon in its name.
fn split_event(selected: &str) -> Result<(Option<Pattern>, &str), String> {
    let (event, rest) = if selected.starts_with('"') {
        let end = selected
            .char_indices()
            .skip(1)
            .scan(false, |escaped, (at, char)| {
                let is_end = char == '"' && !*escaped;
                *escaped = char == '\\' && !*escaped;
                Some((at, is_end))
            });
        let end = end.into_iter().find(|(_, is_end)| *is_end);
        let Some((end, _)) = end else {
            return Err("the name of the event has no end: expected \"".to_owned());
        };
        let (event, rest) = selected.split_at(end + 1);
        (event.to_owned(), rest)
    } else {
        let plain = selected.split(['`', '.', '[']).next().unwrap_or_default();
        if !plain.contains(':') {
            return Ok((None, selected));
        }
        let (event, rest) = selected.split_at(plain.len());
        (format!("\"{event}\""), rest)
    };
    let field = rest.trim_start().strip_prefix('.');
    let field = field.ok_or_else(|| format!("expected a field after the event: {event}.FIELD"))?;
    match tokens(&event).map_err(|error| error.what)?.as_slice() {
        [(_, Token::Text(pattern))] => Ok((Some(pattern.clone()), field)),
        _ => Err(format!("{event} is not the name of an event")),
    }
}

/// The visitor that finds the number at a path. Of several scopes that have it, the last one
/// counts.
struct NumberFinder<'t> {
    tracker: &'t mut PathTracker,
    /// The path within the JSON of the arguments, if they are JSON.
    in_args: Option<&'t [Part]>,
    found: Option<Number>,
}

impl NumberFinder<'_> {
    #[inline]
    fn value(&mut self, value: Option<Number>) {
        if self.tracker.is_at_target() {
            self.found = value;
        }
    }
}

impl Visitor for NumberFinder<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.tracker.begin_scope(scope);
    }

    fn begin_structure(&mut self) {
        self.value(None);
        self.tracker.open();
    }

    fn member(&mut self, name: &str) {
        self.tracker
            .step(|part| matches!(part, Part::Member(known) if known == name));
    }

    fn end_structure(&mut self) {
        self.tracker.close();
    }

    fn begin_array(&mut self, _length: u64) {
        self.begin_structure();
    }

    fn element(&mut self, index: u64) {
        self.tracker.step(|part| *part == Part::Element(index));
    }

    fn end_array(&mut self) {
        self.end_structure();
    }

    fn unsigned(&mut self, value: u64, _format: NumberFormat<'_>) {
        self.value(Some(Number::Unsigned(value)));
    }

    fn signed(&mut self, value: i64, _format: NumberFormat<'_>) {
        self.value(Some(Number::Signed(value)));
    }

    fn float(&mut self, value: f64, _bits: u8) {
        // No viewer draws the others.
        self.value(value.is_finite().then_some(Number::Float(value)));
    }

    fn boolean(&mut self, value: bool) {
        self.value(Some(Number::Unsigned(value.into())));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, _flags: Option<&Labels>) {
        self.value(Some(Number::Unsigned(value)));
    }

    fn text(&mut self, bytes: &[u8]) {
        if let Some(path) = self.in_args.filter(|_| self.tracker.is_at_first_part()) {
            self.found = number_in_json(bytes, path);
        }
        // Any other text at the path hides a number that an earlier scope had there.
        self.value(None);
    }

    fn blob(&mut self, _bytes: &[u8], _media_type: &str) {
        self.value(None);
    }
}

/// The number at a path in a JSON object.
fn number_in_json(json: &[u8], path: &[Part]) -> Option<Number> {
    let whole: Value = serde_json::from_slice(json).ok()?;
    let mut value = &whole;
    for part in path {
        value = match part {
            Part::Member(name) => value.get(name)?,
            Part::Element(index) => value.get(usize::try_from(*index).ok()?)?,
        };
    }
    let unsigned = value.as_u64().or_else(|| value.as_bool().map(u64::from));
    let integer = unsigned.map(Number::Unsigned);
    let integer = integer.or_else(|| value.as_i64().map(Number::Signed));
    integer.or_else(|| value.as_f64().map(Number::Float))
}

#[cfg(test)]
mod tests {
    use ctf::Metadata;
    use ctf::decode::StreamDecoder;

    use super::*;

    const METADATA: &str = "/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 8; align = 8; signed = true; } := i8;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { event.header := struct { u8 id; }; event.context := struct { u8 depth; u8 _vpid; }; };
        event { id = 1; name = \"tp:queue.push\"; fields := struct {
            i8 _depth; struct { u8 _len; } _state; u8 _list[2]; string _text; }; };
        event { id = 2; name = tick; fields := struct {}; };";

    /// What a counter has of an event of each of the two classes.
    fn found(text: &str) -> [Option<Number>; 2] {
        let metadata = Metadata::read(METADATA.as_bytes()).unwrap();
        let mut selector = NumberSelector::parse(text).unwrap();
        let packet = [1, 10, 100, 0xFF, 7, 4, 5, b'9', 0, 2, 11, 101];
        let (trace, mut decoder) = (metadata.trace(), StreamDecoder::new());
        decoder.begin_packet(trace, &packet).unwrap();
        [(); 2].map(|()| {
            assert!(decoder.advance(trace, &packet).unwrap());
            let event = decoder.event(trace, &packet).unwrap();
            selector.find(&event, TraceKey(0)).unwrap()
        })
    }

    #[test]
    fn a_counter_selects_a_field_of_all_events_or_of_events_with_a_name() {
        let (unsigned, signed) = (Number::Unsigned, Number::Signed);
        for (text, want) in [
            ("depth", [Some(signed(-1)), Some(unsigned(11))]),
            ("$ctx.depth", [Some(unsigned(10)), Some(unsigned(11))]),
            ("name = vpid", [Some(unsigned(100)), Some(unsigned(101))]),
            ("state.len", [Some(unsigned(7)), None]),
            ("list[1]", [Some(unsigned(5)), None]),
            ("text", [None, None]),
            ("state", [None, None]),
            ("\"tp:queue.push\".depth", [Some(signed(-1)), None]),
            ("\"tp:*\".depth", [Some(signed(-1)), None]),
            ("tick=\"tick\".vpid", [None, Some(unsigned(101))]),
            ("tp:queue.depth", [None, None]),
            ("tp:*.depth", [Some(signed(-1)), None]),
        ] {
            assert_eq!(found(text), want, "{text}");
        }
    }

    #[test]
    fn a_counter_is_called_as_it_was_written_unless_it_gets_a_name() {
        for (text, name) in [
            ("state.len", "state.len"),
            ("tp:queue.depth", "tp:queue.depth"),
            ("queue depth = tp:queue.depth", "queue depth"),
            ("\"a=b\"=depth", "a=b"),
            ("\"a=b\".depth", "\"a=b\".depth"),
        ] {
            assert_eq!(NumberSelector::parse(text).unwrap().name(), name, "{text}");
        }
    }

    #[test]
    fn a_counter_that_names_no_field_is_refused() {
        for (text, why) in [
            ("", "expected a field"),
            ("depth=", "expected a field"),
            ("7", "expected the name of a field"),
            ("depth > 3", "expected the end"),
            ("$name", "expected the name of a field"),
            ("tp:queue", "expected a field after the event"),
            ("\"tick\"", "expected a field after the event"),
            ("\"tick", "has no end"),
        ] {
            let error = NumberSelector::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_counter_without_values_is_described_with_similar_names() {
        let metadata = Metadata::read(METADATA.as_bytes()).unwrap();
        for (text, want) in [
            (
                "dept",
                "--counter dept: no event has a field dept; did you mean depth?",
            ),
            (
                "tp:queu.push.depth",
                "--counter tp:queu.push.depth: no event has a field push.depth; did you mean depth?; \
                 no event is named \"tp:queu\"; did you mean tp:queue.push?",
            ),
            (
                "text",
                "--counter text: no event that was shown has a number there",
            ),
        ] {
            let mut selector = NumberSelector::parse(text).unwrap();
            selector.add_declarations(metadata.trace());
            assert_eq!(selector.describe_no_match(), want);
        }
    }
}
