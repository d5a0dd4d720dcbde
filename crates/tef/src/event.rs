//! An event as values, and back to JSON.
//!
//! What a program understands of an event has a place of its own; everything else is kept as it is
//! written, so that nothing is lost: the JSON that comes out has the members that went in, with
//! equal values. Their order, blanks and the spelling of texts and times may differ.

mod decimal;
mod members;
mod owner;
mod text;
mod write;

use std::borrow::Cow;

use crate::check::Reason;
use crate::phase::{Family, Field, family};

pub(crate) use decimal::rounded_nanoseconds;
pub use owner::{MAX_ID_BYTES, OwnerId};
pub(crate) use owner::{member_of, without_member};
pub use write::{write_microseconds, write_text};

/// Largest number of members without a place of their own. A line with more of them is kept as a
/// raw record.
pub const MAX_OTHER_MEMBERS: usize = 64;

/// The content of a line.
#[expect(clippy::large_enum_variant, reason = "nearly all are events")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// A line that is an event.
    Event(Event<'a>),
    /// An object that is no event, or one with two members of one name, of which readers take
    /// whichever they like: kept as it is written.
    Raw(&'a str),
}

/// An event. What is absent, or not of the type that is expected, or does not fit here, is `None`
/// and, if there is any, in `rest`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event<'a> {
    /// The phase, which is the kind of event: one character. (`ph`)
    pub phase: &'a str,
    /// The begin, in nanoseconds on the program's clock. (`ts`)
    pub ts: Option<i64>,
    /// The duration, in nanoseconds. (`dur`)
    pub dur: Option<i64>,
    /// [`ts`](Self::ts) by the clock of the thread. (`tts`)
    pub tts: Option<i64>,
    /// [`dur`](Self::dur) by the clock of the thread. (`tdur`)
    pub tdur: Option<i64>,
    /// The number of the process, if it fits; [`process`](Self::process) knows any. (`pid`)
    pub pid: Option<i32>,
    /// The number of the thread, if it fits; [`thread`](Self::thread) knows any. (`tid`)
    pub tid: Option<i32>,
    /// The name, without NUL, as all texts here. (`name`)
    pub name: Option<Cow<'a, str>>,
    /// The categories, with commas between them. (`cat`)
    pub cat: Option<Cow<'a, str>>,
    /// The scope in which `id` is unique. (`scope`)
    pub scope: Option<Cow<'a, str>>,
    /// The scope of an instant: `g` for global, `p` for the process, `t` for the thread. (`s`)
    pub s: Option<Cow<'a, str>>,
    /// The binding point of a flow: `e` is the slice around it. (`bp`)
    pub bp: Option<Cow<'a, str>>,
    /// The number that related events share, as it is written, so that `1`, `"1"` and `"0x1"` stay
    /// apart. (`id`)
    pub id: Option<&'a str>,
    /// The number that related events of the process share. (`id2.local`)
    pub id2_local: Option<&'a str>,
    /// The number that related events of all processes share. (`id2.global`)
    pub id2_global: Option<&'a str>,
    /// The flow that a slice belongs to. (`bind_id`) As it is written.
    pub bind_id: Option<&'a str>,
    /// Anything else that the program has to say: an object as it is written. (`args`)
    pub args: Option<&'a str>,
    /// All other members as one object. Empty if there are none.
    pub rest: Cow<'a, str>,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'e> {
    /// Nanoseconds, or the number of a process or thread.
    Number(i64),
    /// A text, or JSON as it is written.
    Text(&'e str),
}

impl<'a> Event<'a> {
    /// An event that has a phase and no other member.
    #[must_use]
    pub fn new(phase: &'a str) -> Self {
        Self {
            phase,
            ..Self::default()
        }
    }

    /// The events that have the same members.
    #[must_use]
    pub fn family(&self) -> &'static Family {
        family(self.phase)
    }

    /// The end, when programs send the event: nanoseconds on the program's clock.
    #[must_use]
    pub fn end(&self) -> Option<i64> {
        // Programs send a complete event (`X`) at its end, all others when they happen.
        let took = if self.phase == "X" { self.dur } else { None };
        self.ts?.checked_add(took.unwrap_or(0))
    }

    /// The value of this field. Absent if the event has none.
    #[must_use]
    pub fn get(&self, field: Field) -> Option<Value<'_>> {
        match field {
            Field::Ts => self.ts.map(Value::Number),
            Field::Dur => self.dur.map(Value::Number),
            Field::Tts => self.tts.map(Value::Number),
            Field::Tdur => self.tdur.map(Value::Number),
            Field::Pid => self.pid.map(|pid| Value::Number(pid.into())),
            Field::Tid => self.tid.map(|tid| Value::Number(tid.into())),
            Field::Name => self.name.as_deref().map(Value::Text),
            Field::Cat => self.cat.as_deref().map(Value::Text),
            Field::Scope => self.scope.as_deref().map(Value::Text),
            Field::S => self.s.as_deref().map(Value::Text),
            Field::Bp => self.bp.as_deref().map(Value::Text),
            Field::Id => self.id.map(Value::Text),
            Field::Id2Local => self.id2_local.map(Value::Text),
            Field::Id2Global => self.id2_global.map(Value::Text),
            Field::BindId => self.bind_id.map(Value::Text),
            Field::Args => self.args.map(Value::Text),
        }
    }

    /// The bits of all fields that are there.
    #[must_use]
    pub fn present(&self) -> u32 {
        let there = Field::ALL
            .iter()
            .filter(|field| self.get(**field).is_some());
        there.fold(0, |bits, field| bits | field.bit())
    }

    /// Puts a number into its field; the number of a process or thread may not fit.
    pub(crate) fn set_number(&mut self, field: Field, number: i64) -> bool {
        match field {
            Field::Ts => self.ts = Some(number),
            Field::Dur => self.dur = Some(number),
            Field::Tts => self.tts = Some(number),
            Field::Tdur => self.tdur = Some(number),
            Field::Pid => self.pid = i32::try_from(number).ok(),
            Field::Tid => self.tid = i32::try_from(number).ok(),
            _ => return false,
        }
        self.get(field).is_some()
    }

    /// Puts a text into its field.
    pub(crate) fn set_text(&mut self, field: Field, text: Cow<'a, str>) -> bool {
        let place = match field {
            Field::Name => &mut self.name,
            Field::Cat => &mut self.cat,
            Field::Scope => &mut self.scope,
            Field::S => &mut self.s,
            Field::Bp => &mut self.bp,
            _ => return false,
        };
        *place = Some(text);
        true
    }

    /// Puts JSON as it is written into its field.
    pub(crate) fn set_json(&mut self, field: Field, json: &'a str) -> bool {
        let place = match field {
            Field::Id => &mut self.id,
            Field::Id2Local => &mut self.id2_local,
            Field::Id2Global => &mut self.id2_global,
            Field::BindId => &mut self.bind_id,
            Field::Args => &mut self.args,
            _ => return false,
        };
        *place = Some(json);
        true
    }
}

impl<'a> Record<'a> {
    /// Parses a line that [`check`](fn@crate::check) calls valid. Copies only members without a
    /// place, and texts that have escapes.
    ///
    /// # Errors
    /// If it is not one JSON object.
    pub fn parse(line: &'a str) -> Result<Self, Reason> {
        members::parse(line)
    }
}

#[cfg(test)]
pub(crate) mod tests;
