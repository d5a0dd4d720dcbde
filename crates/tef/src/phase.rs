//! The kinds of events, and which members mean something in which: one table.

/// A member of an event that has a place of its own. The number is its bit in `present`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Field {
    /// The begin of the event. (`ts`)
    Ts = 0,
    /// The duration of the event. (`dur`)
    Dur = 1,
    /// The begin by the clock of the thread. (`tts`)
    Tts = 2,
    /// The duration by the clock of the thread. (`tdur`)
    Tdur = 3,
    /// The number of the process. (`pid`)
    Pid = 4,
    /// The number of the thread. (`tid`)
    Tid = 5,
    /// The name of the event. (`name`)
    Name = 6,
    /// The categories, with commas between them. (`cat`)
    Cat = 7,
    /// The scope in which `id` is unique. (`scope`)
    Scope = 8,
    /// The scope of an instant: `g`, `p` or `t`. (`s`)
    S = 9,
    /// The binding point of a flow: `e` is the slice around it. (`bp`)
    Bp = 10,
    /// The number that related events share. (`id`)
    Id = 11,
    /// The number that related events of the process share. (`id2.local`)
    Id2Local = 12,
    /// The number that related events of all processes share. (`id2.global`)
    Id2Global = 13,
    /// The flow that a slice belongs to. (`bind_id`)
    BindId = 14,
    /// Anything else that the program has to say. (`args`)
    Args = 15,
}

/// The type of the value that a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A time in microseconds, kept as nanoseconds.
    Time,
    /// A number that fits where readers look for processes and threads.
    Owner,
    /// A text without NUL.
    Text,
    /// A string or a number, kept as it is written.
    Token,
    /// An object, kept as it is written.
    Object,
}

impl Field {
    /// The number of fields.
    pub(crate) const COUNT: usize = 16;
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Ts,
        Self::Dur,
        Self::Tts,
        Self::Tdur,
        Self::Pid,
        Self::Tid,
        Self::Name,
        Self::Cat,
        Self::Scope,
        Self::S,
        Self::Bp,
        Self::Id,
        Self::Id2Local,
        Self::Id2Global,
        Self::BindId,
        Self::Args,
    ];

    /// The name in JSON and in CTF; those of `id2` are not members of the event itself in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ts => "ts",
            Self::Dur => "dur",
            Self::Tts => "tts",
            Self::Tdur => "tdur",
            Self::Pid => "pid",
            Self::Tid => "tid",
            Self::Name => "name",
            Self::Cat => "cat",
            Self::Scope => "scope",
            Self::S => "s",
            Self::Bp => "bp",
            Self::Id => "id",
            Self::Id2Local => "id2_local",
            Self::Id2Global => "id2_global",
            Self::BindId => "bind_id",
            Self::Args => "args",
        }
    }

    /// The bit of the field in `present`.
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << self as u8
    }

    pub(crate) fn holds(self) -> Holds {
        match self {
            Self::Ts | Self::Dur | Self::Tts | Self::Tdur => Holds::Time,
            Self::Pid | Self::Tid => Holds::Owner,
            Self::Name | Self::Cat | Self::Scope | Self::S | Self::Bp => Holds::Text,
            Self::Id | Self::Id2Local | Self::Id2Global | Self::BindId => Holds::Token,
            Self::Args => Holds::Object,
        }
    }
}

/// Phases whose events have the same members.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The name of the event class, without prefix.
    pub class: &'static str,
    /// One, or several that the event has to tell apart; none for all that no other family has.
    pub phases: &'static str,
    /// The fields in the order in which they are shown. `pid`, `tid` and `args` are in all of them.
    pub fields: &'static [Field],
}

/// The family of an event of this phase.
#[must_use]
pub fn family(phase: &str) -> &'static Family {
    let place = place(phase).and_then(|place| FAMILIES.get(place));
    place.unwrap_or(&OTHER)
}

/// The index into [`FAMILIES`] of the family of this phase.
pub(crate) fn place(phase: &str) -> Option<usize> {
    let [phase] = phase.as_bytes() else {
        return None;
    };
    let place = *PLACES.get(usize::from(*phase))?;
    (place != NOWHERE).then_some(place.into())
}

impl Family {
    /// Whether the events have to say which of its phases they are of.
    #[must_use]
    pub fn says_phase(&self) -> bool {
        self.phases.len() != 1
    }

    /// Bits of all fields, those of all families too.
    pub(crate) fn mask(&self) -> u32 {
        let always = [Field::Pid, Field::Tid, Field::Args];
        let all = self.fields.iter().chain(&always);
        all.fold(0, |mask, field| mask | field.bit())
    }
}

const fn row(class: &'static str, phases: &'static str, fields: &'static [Field]) -> Family {
    Family {
        class,
        phases,
        fields,
    }
}

use Field::{BindId, Bp, Cat, Dur, Id, Id2Global, Id2Local, Name, S, Scope, Tdur, Ts, Tts};

const EDGE: &[Field] = &[Name, Cat, Ts, Tts, BindId];
const INSTANT: &[Field] = &[Name, Cat, Ts, S];
const WITH_ID: &[Field] = &[Name, Cat, Ts, Id];
const ASYNC: &[Field] = &[Name, Cat, Ts, Id, Id2Local, Id2Global, Scope];
const FLOW: &[Field] = &[Name, Cat, Ts, Id, Bp];
const OBJECT: &[Field] = &[Name, Cat, Ts, Id, Scope];
const POINT: &[Field] = &[Name, Cat, Ts];

/// The families of all documented phases: all but [`OTHER`].
pub const FAMILIES: [Family; 22] = [
    row("begin", "B", EDGE),
    row("end", "E", EDGE),
    row("complete", "X", &[Name, Cat, Ts, Dur, Tts, Tdur, BindId]),
    row("instant", "iI", INSTANT),
    row("mark", "R", INSTANT),
    row("counter", "C", WITH_ID),
    row("async_begin", "b", ASYNC),
    row("async_instant", "n", ASYNC),
    row("async_end", "e", ASYNC),
    row("flow_start", "s", FLOW),
    row("flow_step", "t", FLOW),
    row("flow_end", "f", FLOW),
    row("object_new", "N", OBJECT),
    row("object_snapshot", "O", OBJECT),
    row("object_delete", "D", OBJECT),
    // Usually without time.
    row("metadata", "M", &[Name, Cat]),
    row("sample", "P", WITH_ID),
    row("memory_dump", "Vv", WITH_ID),
    row("clock_sync", "c", POINT),
    row("context_enter", "(", WITH_ID),
    row("context_leave", ")", WITH_ID),
    // Start, step into, step past, finish.
    row("old_async", "STpF", OBJECT),
];

/// Phases that are not documented.
pub const OTHER: Family = row(
    "other",
    "",
    &[
        Name, Cat, Ts, Dur, Tts, Tdur, Id, Id2Local, Id2Global, BindId, Scope, S, Bp,
    ],
);

const NOWHERE: u8 = u8::MAX;

/// The index into [`FAMILIES`] of each phase, or [`NOWHERE`].
#[expect(clippy::indexing_slicing, reason = "worked out by the compiler")]
const PLACES: [u8; 128] = {
    // A table by the byte, because the phase of every line is looked up.
    let mut places = [NOWHERE; 128];
    let mut family = 0;
    while family < FAMILIES.len() {
        let phases = FAMILIES[family].phases.as_bytes();
        let mut phase = 0;
        while phase < phases.len() {
            assert!(places[phases[phase] as usize] == NOWHERE, "one family each");
            #[expect(clippy::cast_possible_truncation, reason = "there are 22")]
            let place = family as u8;
            places[phases[phase] as usize] = place;
            phase += 1;
        }
        family += 1;
    }
    places
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_family_and_an_unknown_phase_has_the_last() {
        for family_of in &FAMILIES {
            for phase in family_of.phases.chars() {
                assert_eq!(family(&phase.to_string()), family_of);
            }
        }
        for phase in ["x", "\u{1}", "é", "😀"] {
            assert_eq!(family(phase), &OTHER);
        }
    }

    #[test]
    fn the_bits_of_fields_never_change() {
        // Traces are kept: a field may be added, never moved.
        let bits: Vec<_> = Field::ALL
            .iter()
            .map(|field| (field.name(), field.bit().trailing_zeros()))
            .collect();
        let names = [
            "ts",
            "dur",
            "tts",
            "tdur",
            "pid",
            "tid",
            "name",
            "cat",
            "scope",
            "s",
            "bp",
            "id",
            "id2_local",
            "id2_global",
            "bind_id",
            "args",
        ];
        assert!(bits.into_iter().eq(names.into_iter().zip(0..)));
    }
}
