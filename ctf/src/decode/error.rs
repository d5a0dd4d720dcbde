//! What can be wrong with a packet, and where.

use thiserror::Error;

/// A packet that cannot be decoded, or not further.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The packet does not begin as packets do.
    #[error("the packet begins with {found:#010x}, not with the magic number 0xc1fc1fc1")]
    Magic {
        /// What it begins with.
        found: u64,
    },
    /// The metadata declares no such stream class.
    #[error("the packet belongs to the stream class {id}, which the metadata does not declare")]
    UnknownStreamClass {
        /// What the packet says.
        id: u64,
    },
    /// The sizes of a packet contradict each other or what there is.
    #[error("the packet says that it has {packet} bits, {content} of them used: {why}")]
    Sizes {
        /// As it says, or as it follows.
        packet: u64,
        /// As it says, or as it follows.
        content: u64,
        /// What is wrong with them.
        why: &'static str,
    },
    /// The metadata declares no such event class.
    #[error("at bit {at}: event class {id} of stream class {stream_class} is not declared")]
    UnknownEventClass {
        /// Where the event begins, from the packet's first bit.
        at: u64,
        /// What the event says.
        id: u64,
        /// Of its stream.
        stream_class: u64,
    },
    /// A field cannot be what the packet says.
    #[error("at bit {at}: {what}")]
    Field {
        /// From the packet's first bit.
        at: u64,
        /// What is wrong there.
        what: FieldError,
    },
    /// A time that is further than 292 years from the clock's origin.
    #[error("the clock value {cycles} is out of range")]
    Time {
        /// As the stream's clock has it.
        cycles: u64,
    },
}

/// What can be wrong with one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FieldError {
    /// It is not all there.
    #[error("a field of {bits} bits passes the end at bit {end}")]
    PastEnd {
        /// It should have.
        bits: u64,
        /// Of the packet's content, or of the packet.
        end: u64,
    },
    /// A text does not end.
    #[error("a text has no end before bit {end}")]
    EndlessText {
        /// Of the packet's content.
        end: u64,
    },
    /// A number of variable length has too many bytes.
    #[error("a number of variable length has more than 64 bits")]
    EndlessNumber,
    /// More elements than there can be.
    #[error("{count} elements do not fit before bit {end}")]
    TooMany {
        /// What the length says.
        count: u64,
        /// Of the packet's content.
        end: u64,
    },
    /// A selection that selects nothing.
    #[error("no option is selected by {value}")]
    NoOption {
        /// What the selector says.
        value: i128,
    },
    /// A field does not begin with a byte, and the one before has another byte order.
    #[error("the byte order changes within a byte")]
    OrderWithinByte,
    /// An event of no bits: there would be no end of them.
    #[error("an event takes no bits")]
    EmptyEvent,
}

impl DecodeError {
    /// Whether it may be that not all of the packet's bytes were there.
    pub(crate) const fn may_need_more_bytes(&self) -> bool {
        matches!(
            self,
            Self::Field {
                what: FieldError::PastEnd { .. } | FieldError::EndlessText { .. },
                ..
            }
        )
    }

    /// The same, so many bits further on in the packet.
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
