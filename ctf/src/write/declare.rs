//! What events look like.

use std::sync::Arc;

use thiserror::Error;

use crate::model::{LogLevel, Uuid};

/// Bits of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 8.
    Bits8,
    /// 16.
    Bits16,
    /// 32.
    Bits32,
    /// 64.
    Bits64,
}

impl Width {
    pub(super) const ALL: [Self; 4] = [Self::Bits8, Self::Bits16, Self::Bits32, Self::Bits64];

    /// The number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits8 => 8,
            Self::Bits16 => 16,
            Self::Bits32 => 32,
            Self::Bits64 => 64,
        }
    }

    /// The highest number without sign.
    pub(super) const fn highest(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldType {
    /// A number without sign.
    Unsigned(Width),
    /// A number with sign.
    Signed(Width),
    /// A number without sign that is shown in base 16.
    Hexadecimal(Width),
    /// A floating point number of 64 bits.
    Float,
    /// True or false.
    Boolean,
    /// UTF-8. A NUL in it would end it early, and so is replaced.
    Text,
    /// A number with names for some of its values.
    Enumeration(Enumeration),
    /// Up to 255 [`Argument`](super::Argument)s, each with key, kind and value of its own.
    Arguments,
}

/// Names for some values of a number without sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// Of the number.
    pub width: Width,
    /// At least one.
    pub labels: Vec<(String, u64)>,
}

/// An event class before it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDeclaration {
    /// Unique in its stream class. Up to 65534 it takes 2 bytes in each event, beyond that 14.
    pub id: u32,
    /// Any text.
    pub name: String,
    /// How severe.
    pub log_level: Option<LogLevel>,
    /// Where in the program: `FILE:LINE`. (`model.emf.uri`)
    pub emf_uri: Option<String>,
    /// Names, which readers see with `_` for all but ASCII letters and digits, and types.
    pub fields: Vec<(String, FieldType)>,
}

impl EventDeclaration {
    /// One without fields.
    #[must_use]
    pub fn new(id: u32, name: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            log_level: None,
            emf_uri: None,
            fields: Vec::new(),
        }
    }
}

/// A stream class that the metadata declares. Only [`MetadataText`](super::MetadataText) makes one,
/// so that no packet can name another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredStreamClass {
    pub(super) uuid: Uuid,
    pub(super) id: u32,
}

impl DeclaredStreamClass {
    /// Unique in the trace.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// An event class that the metadata declares. Only [`MetadataText`](super::MetadataText) makes one,
/// so that no event can be of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredEventClass {
    pub(super) stream: DeclaredStreamClass,
    pub(super) id: u32,
    pub(super) fields: Arc<[FieldType]>,
}

impl DeclaredEventClass {
    /// Unique in its stream class.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// Why something cannot be declared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// The stream class is there already.
    #[error("stream class {0} twice")]
    StreamTwice(u32),
    /// The stream class is of other metadata.
    #[error("stream class {0} is not declared in this metadata")]
    OtherStream(u32),
    /// The event class is there already.
    #[error("event class {id} of stream class {stream} twice")]
    EventTwice {
        /// Of the stream class.
        stream: u32,
        /// Of the event class.
        id: u32,
    },
    /// Two fields would have one name.
    #[error("field {0:?} twice")]
    FieldTwice(String),
    /// A field without name.
    #[error("a field without name")]
    Nameless,
    /// An enumeration without labels, or with one for a value that its number cannot have.
    #[error("field {0:?} has no labels, or one for a value that it cannot have")]
    Labels(String),
    /// No such log level.
    #[error("log level {0} is above 14")]
    LogLevel(u8),
    /// Every viewer reads all metadata: it stays small. Use classes that accept any record instead.
    #[error("more than {0} event classes")]
    TooMany(usize),
}
