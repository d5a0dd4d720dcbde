//! Warnings: what is unusual in metadata and no reason to refuse it.

use std::fmt;

use crate::error::place;
use crate::model::Position;

/// Warnings that are kept until they are taken; further ones are dropped.
const MAX_WARNINGS: usize = 1_000;

/// A rule of the specification that metadata breaks and that this reader does not insist on: others
/// read the trace too, and what the metadata means is clear. Sections are those of CTF 1.8.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Deviation {
    /// Too few bytes for another packet follow the last metadata packet. They are ignored. (7.1)
    TrailingBytes,
    /// White space comes before the signature of metadata that lies in no packets. (7.1)
    LeadingSpace,
    /// The definition of a structure, a variant or an enumeration outside of blocks has no
    /// semicolon. (C.2.2)
    MissingSemicolon,
    /// A semicolon ends nothing. (C)
    ExtraSemicolon,
    /// An escape of a text is none of C, or is a number above 255. The character after the
    /// backslash is taken, and at most three digits, of which the low 8 bits count. (C.1.6)
    Escape,
    /// A number is binary, as in `0b101`. (C.1.5)
    BinaryNumber,
    /// `encoding` of a `string` is `none`, which only integers may have. It is UTF-8. (4.2.5)
    StringEncoding,
    /// The offset of a clock in cycles is below 0. (8)
    NegativeOffset,
    /// An option of a variant is no label of its tag, so that it is never selected. (4.2.2)
    OptionWithoutLabel,
}

/// Something unusual in the metadata of a trace that is no reason to refuse it. It is shown with
/// its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    deviation: Option<Deviation>,
    text: String,
}

impl Warning {
    /// The rule of the specification that the metadata breaks; `None` if it breaks none, as with an
    /// attribute that is not known. There is one warning of each deviation, for its first place.
    #[must_use]
    pub const fn deviation(&self) -> Option<Deviation> {
        self.deviation
    }
}

impl Warning {
    /// A warning that concerns no place in one metadata.
    pub(crate) fn of_traces(text: impl Into<String>) -> Self {
        let (deviation, text) = (None, text.into());
        Self { deviation, text }
    }

    /// Returns this warning with the name of its trace in front.
    pub(crate) fn in_trace(self, name: &str) -> Self {
        match name {
            // The only one of its directory.
            "" => self,
            _ => Self {
                text: format!("trace {name}: {}", self.text),
                ..self
            },
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The warnings that have not been taken yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    waiting: Vec<Warning>,
    /// The deviations that there has been a warning of.
    known: Vec<Deviation>,
}

impl Warnings {
    /// Adds a warning of something that breaks no rule.
    pub(super) fn add(&mut self, at: Position, what: &str) {
        self.push(None, format!("{}: {what}", place(at)));
    }

    /// Adds a warning of a deviation, unless there has been one of its kind: a tracer deviates in
    /// the same way again and again.
    pub(super) fn add_deviation(&mut self, deviation: Deviation, at: Position, what: &str) {
        self.add_placed(deviation, || format!("{}: {what}", place(at)));
    }

    /// Adds a warning of a deviation whose text says where it is, unless there has been one of its
    /// kind.
    pub(super) fn add_placed(&mut self, deviation: Deviation, text: impl FnOnce() -> String) {
        if !self.known.contains(&deviation) {
            self.known.push(deviation);
            self.push(Some(deviation), text());
        }
    }

    /// Takes all warnings since the last call.
    pub(super) fn take_all(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.waiting)
    }

    fn push(&mut self, deviation: Option<Deviation>, text: String) {
        if self.waiting.len() < MAX_WARNINGS {
            self.waiting.push(Warning { deviation, text });
        }
    }
}
