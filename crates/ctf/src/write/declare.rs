//! Event classes and field types to be declared.

use std::sync::Arc;

use thiserror::Error;

use crate::model::{LogLevel, Uuid};

/// The width of an integer in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// An integer of 8 bits, 1 byte.
    Bits8,
    /// An integer of 16 bits, 2 bytes.
    Bits16,
    /// An integer of 32 bits, 4 bytes.
    Bits32,
    /// An integer of 64 bits, 8 bytes.
    Bits64,
}

impl Width {
    pub(super) const ALL: [Self; 4] = [Self::Bits8, Self::Bits16, Self::Bits32, Self::Bits64];

    /// The width as a number, 8 to 64.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits8 => 8,
            Self::Bits16 => 16,
            Self::Bits32 => 32,
            Self::Bits64 => 64,
        }
    }

    /// The largest unsigned number of this width.
    pub(super) const fn highest(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldType {
    /// An unsigned integer that is shown in base 10.
    Unsigned(Width),
    /// A signed integer that is shown in base 10.
    Signed(Width),
    /// A number without sign that is shown in base 16.
    Hexadecimal(Width),
    /// A floating point number of 64 bits.
    Float,
    /// A boolean: an enumeration of 8 bits with the labels `false` and `true`.
    Boolean,
    /// A text in UTF-8. A NUL would end it early, and is replaced.
    Text,
    /// A number with names for some of its values.
    Enumeration(Enumeration),
    /// Up to 255 [`Argument`](super::Argument)s, each with key, kind and value of its own.
    Arguments,
    /// Bytes, as a sequence of unsigned integers of 8 bits.
    Bytes,
}

/// Names for some values of a number without sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// The width of the number.
    pub width: Width,
    /// The labels with their values: at least one, and each value must fit the width.
    pub labels: Vec<(String, u64)>,
}

/// An event class before it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDeclaration {
    /// Unique in its stream class. Up to 65534 it takes 2 bytes in each event, beyond that 14.
    pub id: u32,
    /// The name, any text.
    pub name: String,
    /// The log level; `None` if it is not to be declared. (`loglevel`)
    pub log_level: Option<LogLevel>,
    /// The place in the program, `FILE:LINE`; `None` if it is not to be declared. (`model.emf.uri`)
    pub emf_uri: Option<String>,
    /// Names, which readers see with `_` for all but ASCII letters and digits, and types.
    pub fields: Vec<(String, FieldType)>,
}

impl EventDeclaration {
    /// An event class without fields, log level and place.
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
    /// The number of fields that its packet context has beside those of all stream classes.
    pub(super) context_fields: usize,
}

impl DeclaredStreamClass {
    /// The id of the stream class, unique in the trace.
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
    /// The id of the event class, unique in its stream class.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The reason why something cannot be declared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeclareError {
    /// The id of the stream class is in use.
    #[error("stream class {0} twice")]
    StreamTwice(u32),
    /// The stream class is of other metadata.
    #[error("stream class {0} is not declared in this metadata")]
    OtherStream(u32),
    /// The id of the event class is in use.
    #[error("event class {id} of stream class {stream} twice")]
    EventTwice {
        /// The id of the stream class.
        stream: u32,
        /// The id of the event class.
        id: u32,
    },
    /// Two fields would have one name.
    #[error("field {0:?} twice")]
    FieldTwice(String),
    /// A field has an empty name.
    #[error("a field without name")]
    Nameless,
    /// An enumeration without labels, or with one for a value that its number cannot have.
    #[error("field {0:?} has no labels, or one for a value that it cannot have")]
    Labels(String),
    /// The log level is above 14.
    #[error("log level {0} is above 14")]
    LogLevel(u8),
    /// Every viewer reads all metadata: it stays small. Use classes that accept any record instead.
    #[error("more than {0} event classes")]
    TooMany(usize),
}
