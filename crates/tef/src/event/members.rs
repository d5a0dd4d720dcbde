//! The parsing of one line.

use std::borrow::Cow;
use std::ops::Range;

use super::decimal::{integer, nanoseconds};
use super::text::unescaped;
use super::{Event, MAX_OTHER_MEMBERS, Record};
use crate::check::Reason;
use crate::json::{ObjectVisitor, scan_object};
use crate::phase::{Field, Holds};

/// Members that are looked for: the fields, and those from which something else is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Field(Field),
    Phase,
    Id2,
}

impl Key {
    const COUNT: usize = Field::COUNT + 2;

    #[inline]
    fn of(name: &str) -> Option<Self> {
        Some(Self::Field(match name {
            "ph" => return Some(Self::Phase),
            "ts" => Field::Ts,
            "pid" => Field::Pid,
            "tid" => Field::Tid,
            "name" => Field::Name,
            "args" => Field::Args,
            "dur" => Field::Dur,
            "cat" => Field::Cat,
            "id" => Field::Id,
            "s" => Field::S,
            "tts" => Field::Tts,
            "tdur" => Field::Tdur,
            "bp" => Field::Bp,
            "id2" => return Some(Self::Id2),
            "scope" => Field::Scope,
            "bind_id" => Field::BindId,
            _ => return None,
        }))
    }

    fn place(self) -> usize {
        match self {
            Self::Field(field) => field as usize,
            Self::Phase => Field::COUNT,
            Self::Id2 => Field::COUNT + 1,
        }
    }
}

/// The members of a line.
struct Members<'a> {
    line: &'a str,
    /// Values, by the place of their key.
    found: [Option<&'a str>; Key::COUNT],
    others: Vec<Other<'a>>,
    /// Whether the line has to be kept as a whole.
    is_raw: bool,
}

/// A member without a place of its own.
struct Other<'a> {
    name: Cow<'a, str>,
    /// Name and value, as they are written.
    member: &'a str,
}

impl<'a> Members<'a> {
    fn of(line: &'a str) -> Result<Self, Reason> {
        let mut members = Self {
            line,
            found: [None; Key::COUNT],
            others: Vec::new(),
            is_raw: false,
        };
        // The scan checks the line anyway, so that it need not be looked at twice.
        scan_object(line.as_bytes(), &mut members)?;
        Ok(members)
    }

    fn get(&self, key: Key) -> Option<&'a str> {
        self.found.get(key.place()).copied().flatten()
    }

    #[inline]
    fn add(&mut self, key: Key, value: &'a str) {
        if let Some(place) = self.found.get_mut(key.place()) {
            self.is_raw |= place.is_some();
            *place = Some(value);
        }
    }

    /// Adds a member whose name is none of those that are looked for, or has escapes.
    fn add_other(&mut self, name: &'a str, member: &'a str, value: &'a str) {
        let Some(name) = unescaped(name) else {
            self.is_raw = true;
            return;
        };
        // A name with escapes may be one of those that are looked for.
        if let Some(key) = Key::of(&name) {
            self.add(key, value);
        } else if self.others.len() == MAX_OTHER_MEMBERS
            || self.others.iter().any(|other| other.name == name)
        {
            self.is_raw = true;
        } else {
            self.others.push(Other { name, member });
        }
    }
}

impl ObjectVisitor for Members<'_> {
    #[inline]
    fn member(&mut self, name: Range<usize>, value: Range<usize>) {
        let within = |range| self.line.get(range).unwrap_or_default();
        let unquoted = within(name.start + 1..name.end - 1);
        let text = within(value.clone());
        match Key::of(unquoted) {
            Some(key) => self.add(key, text),
            // The line is kept as a whole: nobody asks for its members.
            None if self.is_raw => {}
            None => self.add_other(unquoted, within(name.start..value.end), text),
        }
    }
}

pub(super) fn parse(line: &str) -> Result<Record<'_>, Reason> {
    let members = Members::of(line)?;
    let phase = members.get(Key::Phase).and_then(one_character);
    let Some(phase) = phase.filter(|_| !members.is_raw) else {
        return Ok(Record::Raw(line));
    };
    let mut event = Event::new(phase);
    let mut rest = Rest::default();
    for other in &members.others {
        rest.add(other.member);
    }
    // A member that means nothing in this phase has no field in its class, and goes to `rest`.
    let wanted = event.family().mask();
    for field in Field::ALL {
        if let Some(value) = members.get(Key::Field(field)) {
            let fits = wanted & field.bit() != 0 && set_field(&mut event, field, value);
            if !fits {
                rest.add_named(field.name(), value);
            }
        }
    }
    if let Some(value) = members.get(Key::Id2) {
        let fits = wanted & Field::Id2Local.bit() != 0 && set_id2(&mut event, value);
        if !fits {
            rest.add_named("id2", value);
        }
    }
    event.rest = rest.text();
    Ok(Record::Event(event))
}

/// The phase that a value is: one character. One with an escape is none, so that what it stands for
/// need not be kept.
fn one_character(value: &str) -> Option<&str> {
    let text = quoted(value)?;
    let mut characters = text.chars();
    let is_one = characters.next()? != '\\' && characters.next().is_none();
    is_one.then_some(text)
}

/// The text between the quotation marks of a string.
fn quoted(value: &str) -> Option<&str> {
    value.strip_prefix('"')?.strip_suffix('"')
}

/// Sets a field if the value is of the kind that it holds. Returns whether it is.
#[inline]
fn set_field<'a>(event: &mut Event<'a>, field: Field, value: &'a str) -> bool {
    let first = value.bytes().next().unwrap_or_default();
    let is_number = matches!(first, b'-' | b'0'..=b'9');
    match field.holds() {
        Holds::Time if is_number => {
            nanoseconds(value).is_some_and(|time| event.set_number(field, time))
        }
        Holds::Owner if is_number => {
            integer(value).is_some_and(|number| event.set_number(field, number))
        }
        Holds::Text => match quoted(value).and_then(unescaped) {
            Some(text) if !has_nul(&text, matches!(text, Cow::Owned(_))) => {
                event.set_text(field, text)
            }
            _ => false,
        },
        Holds::Token if is_number || first == b'"' => event.set_json(field, value),
        Holds::Object if first == b'{' => event.set_json(field, value),
        _ => false,
    }
}

/// Whether a text has a NUL, which in JSON only an escape can stand for.
fn has_nul(text: &str, is_escaped: bool) -> bool {
    is_escaped && text.contains('\0')
}

/// Sets the fields of `id2` if it is an object of `local`, `global` or both, and nothing else.
/// Returns whether it is.
fn set_id2<'a>(event: &mut Event<'a>, value: &'a str) -> bool {
    let mut parts = Parts {
        value,
        local: None,
        global: None,
        is_odd: false,
    };
    if !value.starts_with('{') || scan_object(value.as_bytes(), &mut parts).is_err() {
        return false;
    }
    let is_some = parts.local.is_some() || parts.global.is_some();
    if parts.is_odd || !is_some {
        return false;
    }
    let fields = [
        (Field::Id2Local, parts.local),
        (Field::Id2Global, parts.global),
    ];
    let fits = fields
        .iter()
        .all(|(field, part)| part.is_none_or(|part| set_field(event, *field, part)));
    // Both or none, because `id2` is written back as one member.
    if !fits {
        event.id2_local = None;
        event.id2_global = None;
    }
    fits
}

struct Parts<'a> {
    value: &'a str,
    local: Option<&'a str>,
    global: Option<&'a str>,
    is_odd: bool,
}

impl ObjectVisitor for Parts<'_> {
    fn member(&mut self, name: Range<usize>, value: Range<usize>) {
        let place = match self.value.get(name) {
            Some("\"local\"") => &mut self.local,
            Some("\"global\"") => &mut self.global,
            _ => {
                self.is_odd = true;
                return;
            }
        };
        self.is_odd |= place.is_some();
        *place = self.value.get(value);
    }
}

/// An object of members that have no place, as it grows.
#[derive(Default)]
struct Rest(String);

impl Rest {
    fn add(&mut self, member: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(member);
    }

    fn add_named(&mut self, name: &str, value: &str) {
        self.add("\"");
        for part in [name, "\":", value] {
            self.0.push_str(part);
        }
    }

    fn text<'a>(mut self) -> Cow<'a, str> {
        if self.0.is_empty() {
            return Cow::Borrowed("");
        }
        self.0.push('}');
        Cow::Owned(self.0)
    }
}
