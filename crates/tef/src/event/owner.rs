//! Ids of processes and threads as programs send them. Most are numbers of the system; others are
//! addresses (`pthread_self`), numbers that a runtime has given, or names.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::Event;
use super::decimal::integer;
use super::text::unescaped;
use crate::json::{ObjectVisitor, scan_object};

/// Number of bytes of an id to which it is compared and shown.
pub const MAX_ID_BYTES: usize = 256;

/// The id of a process or thread. Begin and end of a span have equal ones.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerId<'a> {
    /// A whole number that fits, also one that was sent as a string.
    Number(i64),
    /// Any other string, or a number that does not fit, as it was sent, to its first 256 bytes.
    Text(Cow<'a, str>),
}

impl OwnerId<'_> {
    /// Copies a text that is borrowed, so that the id outlives the event.
    #[must_use]
    pub fn into_owned(self) -> OwnerId<'static> {
        match self {
            Self::Number(number) => OwnerId::Number(number),
            Self::Text(text) => OwnerId::Text(Cow::Owned(text.into_owned())),
        }
    }

    /// The id as a number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for OwnerId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Event<'_> {
    /// The process that the event names, whether it has its place in [`pid`](Self::pid) or only in
    /// [`rest`](Self::rest).
    #[must_use]
    pub fn process(&self) -> Option<OwnerId<'_>> {
        self.owner(self.pid, "pid")
    }

    /// The thread that the event names, whether it has its place in [`tid`](Self::tid) or only in
    /// [`rest`](Self::rest). An event that names none is of the first thread of its process, which
    /// has the id of the process.
    #[must_use]
    pub fn thread(&self) -> Option<OwnerId<'_>> {
        self.owner(self.tid, "tid")
    }

    /// [`rest`](Self::rest) without the ids that [`process`](Self::process) and
    /// [`thread`](Self::thread) are.
    #[must_use]
    pub fn rest_without_owners(&self) -> Cow<'_, str> {
        let mut rest = Cow::Borrowed(&*self.rest);
        for (number, name) in [(self.pid, "pid"), (self.tid, "tid")] {
            if self.owner(number, name).is_some() && number.is_none() {
                rest = Cow::Owned(without_member(&rest, name));
            }
        }
        rest
    }

    fn owner(&self, number: Option<i32>, name: &str) -> Option<OwnerId<'_>> {
        match number {
            Some(number) => Some(OwnerId::Number(number.into())),
            // Most events have no other members: nothing is parsed.
            None if self.rest.is_empty() => None,
            None => owner_id(member_of(&self.rest, name)?),
        }
    }

    /// Gives the event this process, or this thread, in the place of the one that it names.
    pub(crate) fn set_owner(&mut self, is_thread: bool, number: i32) {
        let (place, name) = match is_thread {
            false => (&mut self.pid, "pid"),
            true => (&mut self.tid, "tid"),
        };
        *place = Some(number);
        // An id without a place is in `rest`, where it would be a second one.
        if member_of(&self.rest, name).is_some() {
            self.rest = Cow::Owned(without_member(&self.rest, name));
        }
    }
}

/// The id that a JSON value is. `None` for values that identify nothing.
fn owner_id(value: &str) -> Option<OwnerId<'_>> {
    let text = match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(string) => unescaped(string)?,
        None if value.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => {
            Cow::Borrowed(value)
        }
        None => return None,
    };
    // Programs send the same id as a number and as a string: both must be equal.
    Some(match integer(&text) {
        Some(number) => OwnerId::Number(number),
        None => OwnerId::Text(shortened(text)),
    })
}

/// The part of an id that counts.
fn shortened(text: Cow<'_, str>) -> Cow<'_, str> {
    // Not within a character, because the id is shown.
    let end = text.floor_char_boundary(MAX_ID_BYTES);
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.get(..end).unwrap_or_default()),
        Cow::Owned(mut text) => {
            text.truncate(end);
            Cow::Owned(text)
        }
    }
}

/// The members of an object as they are written. `None` if it is no object: that of a foreign
/// producer may be anything.
fn members(object: &str) -> Option<Vec<(&str, &str)>> {
    struct Members<'a>(&'a str, Vec<(&'a str, &'a str)>);

    impl ObjectVisitor for Members<'_> {
        fn member(&mut self, name: Range<usize>, value: Range<usize>) {
            let name = self.0.get(name.start + 1..name.end - 1);
            let value = self.0.get(value);
            self.1.extend(name.zip(value));
        }
    }

    let mut found = Members(object, Vec::new());
    scan_object(object.as_bytes(), &mut found).ok()?;
    Some(found.1)
}

/// The value of a member of an object.
pub(crate) fn member_of<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let members = members(object)?;
    let found = members.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| value)
}

/// An object without a member; nothing if that was the only one.
pub(crate) fn without_member(object: &str, name: &str) -> String {
    let mut text = String::new();
    for (known, value) in members(object).unwrap_or_default() {
        if known != name {
            text.push(if text.is_empty() { '{' } else { ',' });
            for part in ["\"", known, "\":", value] {
                text.push_str(part);
            }
        }
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::event;
    use super::*;

    #[test]
    fn threads_and_processes_have_ids_of_64_bits_and_names() {
        let number = |number| Some(OwnerId::Number(number));
        let text = |text: &'static str| Some(OwnerId::Text(text.into()));
        for (id, want) in [
            ("7", number(7)),
            ("0", number(0)),
            ("-2", number(-2)),
            ("4000000000", number(4_000_000_000)),
            ("140589156634432", number(140_589_156_634_432)),
            ("\"140589156634432\"", number(140_589_156_634_432)),
            ("\"7\"", number(7)),
            ("18446744073709551615", text("18446744073709551615")),
            ("1.5", text("1.5")),
            ("\"main\"", text("main")),
            (r#""m\u00e9""#, text("mé")),
            ("\"\"", text("")),
            ("null", None),
            ("true", None),
            ("[1]", None),
        ] {
            let line = format!(r#"{{"ph":"B","pid":{id},"tid":{id},"x":{{"tid":5}}}}"#);
            let event = event(&line);
            assert_eq!(
                (event.process(), event.thread()),
                (want.clone(), want),
                "{id}"
            );
        }
        for character in ["é", r"\u00e9"] {
            let line = format!(r#"{{"ph":"B","tid":"{}"}}"#, character.repeat(1000));
            let id = event(&line).thread().map(|id| id.to_string());
            assert_eq!(id, Some("é".repeat(MAX_ID_BYTES / 2)));
        }
        let neither = event(r#"{"ph":"B","ts":1.23456}"#);
        assert_eq!((neither.process(), neither.thread()), (None, None));
        // A trace may have anything there.
        let foreign = Event {
            rest: "tid".into(),
            ..Event::new("B")
        };
        assert_eq!(foreign.thread(), None);
    }

    #[test]
    fn other_members_of_an_event_are_those_that_do_not_identify_its_owner() {
        for (line, want) in [
            (r#"{"ph":"B","tid":"main","x":1}"#, r#"{"x":1}"#),
            (r#"{"ph":"B","tid":null,"pid":"p"}"#, r#"{"tid":null}"#),
            (r#"{"ph":"B","tid":5}"#, ""),
        ] {
            assert_eq!(event(line).rest_without_owners(), want, "{line}");
        }
    }

    #[test]
    fn an_event_that_is_given_another_thread_keeps_its_other_members() {
        let mut event = event(r#"{"ph":"B","tid":"main","pid":5000000000,"x":"1","y":2}"#);
        event.set_owner(true, 8);
        assert_eq!(
            (event.tid, &*event.rest),
            (Some(8), r#"{"x":"1","y":2,"pid":5000000000}"#)
        );
        event.set_owner(false, 9);
        assert_eq!((event.pid, &*event.rest), (Some(9), r#"{"x":"1","y":2}"#));
        event.rest = r#"{"tid":1}"#.into();
        event.set_owner(true, 3);
        assert_eq!(event.rest, "");
    }
}
