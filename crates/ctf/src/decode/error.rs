//! Errors of packets and fields, with their positions.

use thiserror::Error;

use crate::model::Uuid;

/// A packet that cannot be decoded, or not further.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The packet does not begin with the magic number.
    #[error("the packet begins with {found:#010x}, not with the magic number 0xc1fc1fc1")]
    Magic {
        /// The first 32 bits of the packet, in the byte order of the field.
        found: u64,
    },
    /// The packet of CTF 2 has the UUID of another metadata stream.
    #[error("the packet has the UUID {found}, its metadata {metadata}")]
    ForeignUuid {
        /// The UUID in the packet header.
        found: Uuid,
        /// The UUID in the preamble of the metadata.
        metadata: Uuid,
    },
    /// The metadata declares no such stream class.
    #[error("the packet belongs to the stream class {id}, which the metadata does not declare")]
    UnknownStreamClass {
        /// The id of the stream class in the packet header.
        id: u64,
    },
    /// The sizes of a packet contradict each other or the number of available bytes.
    #[error("the packet says that it has {packet} bits, {content} of them used: {why}")]
    Sizes {
        /// The packet size in bits, as the packet says, or as it follows from what the packet says.
        packet: u64,
        /// The content size in bits, as the packet says, or as it follows from what the packet
        /// says.
        content: u64,
        /// The rule that the two sizes break.
        why: &'static str,
    },
    /// The metadata declares no such event class.
    #[error("at bit {at}: event class {id} of stream class {stream_class} is not declared")]
    UnknownEventClass {
        /// The position of the event in bits from the packet's first bit.
        at: u64,
        /// The id of the event class in the event header; 0 if the header has none.
        id: u64,
        /// The id of the stream class of the packet.
        stream_class: u64,
    },
    /// A field is invalid.
    #[error("at bit {at}: {what}")]
    Field {
        /// The position of the field in bits from the packet's first bit.
        at: u64,
        /// The defect of the field.
        what: FieldError,
    },
}

/// The defects of a single field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The field passes the end of the content or of the bytes that were given.
    #[error("a field of {bits} bits passes the end at bit {end}")]
    PastEnd {
        /// The size of the field in bits.
        bits: u64,
        /// The end of the packet's content or of the bytes that were given, in bits from the
        /// packet's first bit.
        end: u64,
    },
    /// A text has no terminator before the end of the content.
    #[error("a text has no end before bit {end}")]
    EndlessText {
        /// The end of the packet's content, in bits from the packet's first bit.
        end: u64,
    },
    /// A text ends within a code unit.
    #[error("a text of {bytes} bytes, which are not whole code units of {unit} bytes")]
    CutText {
        /// The length of the text in bytes.
        bytes: u64,
        /// The number of bytes in a code unit of its encoding.
        unit: u8,
    },
    /// A number of variable length has too many bytes.
    #[error("a number of variable length has more than 64 bits")]
    EndlessNumber,
    /// An array, text or BLOB is longer than the rest of the content, or has too many elements that
    /// take no bits.
    #[error("{count} elements do not fit before bit {end}")]
    TooMany {
        /// The length in the packet or the metadata: elements of an array, bytes of a text or
        /// BLOB.
        count: u64,
        /// The end of the packet's content, in bits from the packet's first bit.
        end: u64,
    },
    /// No option of a variant has the value of the selector.
    #[error("no option is selected by {value}")]
    NoOption {
        /// The value of the selector.
        value: i128,
    },
    /// A field does not begin with a byte, and the one before has another byte order.
    #[error("the byte order changes within a byte")]
    OrderWithinByte,
    /// An event of no bits: a packet could hold any number of them.
    #[error("an event takes no bits")]
    EmptyEvent,
}

impl DecodeError {
    /// Returns this error as it is in a packet that has `bits` more bits before the position.
    pub(crate) fn shifted_by(mut self, bits: u64) -> Self {
        match &mut self {
            Self::UnknownEventClass { at, .. } => *at += bits,
            Self::Field { at, what } => {
                *at += bits;
                match what {
                    FieldError::PastEnd { end, .. }
                    | FieldError::EndlessText { end }
                    | FieldError::TooMany { end, .. } => *end += bits,
                    _ => {}
                }
            }
            _ => {}
        }
        self
    }
}
