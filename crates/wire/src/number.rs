//! Ids and units. A number that counts or identifies something has a type of its own, so that a
//! stream cannot be taken for a session, nor bits for bytes.

use std::fmt;
use std::time::Duration;

use bytes::BufMut;

use crate::{DecodeError, Field};

/// A 64-bit number on the wire where 2^64-1 says "none", which is `None` here.
pub trait Number: Copy {
    /// The number without its unit.
    fn get(self) -> u64;
    /// The value with this number.
    fn new(number: u64) -> Self;
}

/// On the wire, 2^64-1 says "not known" or "none": an `Option` makes that visible.
impl<T: Number> Field for Option<T> {
    const SIZE: usize = 8;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(match u64::read(from)? {
            u64::MAX => None,
            number => Some(T::new(number)),
        })
    }

    fn write(&self, to: &mut impl BufMut) {
        to.put_u64(self.map_or(u64::MAX, T::get));
    }
}

macro_rules! wire_u64 {
    ($( $(#[$meta:meta])* $name:ident = $word:literal; )*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }

        impl Number for $name {
            fn get(self) -> u64 {
                self.0
            }

            fn new(number: u64) -> Self {
                Self(number)
            }
        }

        impl Field for $name {
            const SIZE: usize = 8;

            fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(Self(u64::read(from)?))
            }

            fn write(&self, to: &mut impl BufMut) {
                to.put_u64(self.0);
            }
        }
    )*};
}

wire_u64! {
    /// One producer's recording at the relay. Never reused while the relay runs.
    SessionId = "session";
    /// One stream of a session. Never reused while the relay runs.
    StreamId = "stream";
    /// The streams of a session that one metadata stream describes. Never reused while the relay
    /// runs.
    TraceId = "trace";
    /// One viewer connection. Never reused while the relay runs.
    ViewerId = "viewer";
    /// A chunk of a recording: 0 is the first, each rotation or clear makes the next.
    ChunkId = "chunk";
    /// A packet's place in its stream as sent: each is one more than the one before, unlike
    /// [`PacketSeqNum`].
    SeqNum = "packet";
    /// The tracer's own count of packets. Packets that the tracer overwrote or cleared leave gaps.
    PacketSeqNum = "tracer packet";
    /// The instance of a channel that a stream is: with LTTng, the number of the CPU.
    InstanceId = "instance";
    /// The trace's own number for the stream class (LTTng: the channel) of a stream.
    ClassId = "stream class";
    /// Cycles of the trace's own clock, not nanoseconds.
    Timestamp = "cycle";
    /// Seconds since 1970-01-01 00:00 UTC.
    EpochSeconds = "second";
    /// A length in bits.
    Bits = "bit";
    /// A length or position in bytes.
    Bytes = "byte";
}

impl Bits {
    /// Returns this length in bytes; `None` if it is not a whole number of them.
    #[must_use]
    pub const fn to_bytes(self) -> Option<Bytes> {
        if self.0.is_multiple_of(8) {
            Some(Bytes(self.0 / 8))
        } else {
            None
        }
    }
}

impl Bytes {
    /// Returns this length in bits; `None` if that does not fit 64 bits.
    #[must_use]
    pub const fn to_bits(self) -> Option<Bits> {
        match self.0.checked_mul(8) {
            Some(bits) => Some(Bits(bits)),
            None => None,
        }
    }
}

/// A period in microseconds, 32 bits on the wire. 0 says that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u32);

impl Micros {
    /// The period, unless there is none.
    #[must_use]
    pub fn period(self) -> Option<Duration> {
        // 0 is no period of no length: a timer of 0 would fire all the time.
        (self.0 != 0).then(|| Duration::from_micros(u64::from(self.0)))
    }
}

impl Field for Micros {
    const SIZE: usize = 4;

    fn read(from: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(u32::read(from)?))
    }

    fn write(&self, to: &mut impl BufMut) {
        to.put_u32(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_lengths_convert_to_bytes_only_in_whole_bytes() {
        assert_eq!(Bits(32768).to_bytes(), Some(Bytes(4096)));
        assert_eq!(Bits(12).to_bytes(), None);
        assert_eq!(Bytes(1 << 61).to_bits(), None);
    }

    #[test]
    fn a_typed_number_displays_its_unit() {
        assert_eq!(StreamId(7).to_string(), "stream 7");
        assert_eq!(SeqNum(41).to_string(), "packet 41");
    }
}
