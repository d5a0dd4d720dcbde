//! Decodes the header and context of a packet.

use super::error::{DecodeError, FieldError};
use super::run::{Cursor, DecodeState};
use crate::metadata::{StreamClass, Trace};
use crate::model::{Role, Uuid};

/// First word of each packet that has one.
const MAGIC: u64 = 0xC1FC_1FC1;

/// Longest packet in bits, bounded so that aligning a position cannot overflow.
const MAX_PACKET_BITS: u64 = 1 << 62;

/// The contents of a packet's header and context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHead {
    /// The id of the packet's stream class; that of the first stream class if the packet does not
    /// say.
    pub stream_class: u64,
    /// The number of the stream in its class; `None` if packets do not say. (`stream_instance_id`)
    pub stream_id: Option<u64>,
    /// The time of the packet's beginning, in cycles of the stream's clock; `None` if packets do
    /// not say. (`timestamp_begin`)
    pub begin: Option<u64>,
    /// The time of the packet's end, in cycles of the stream's clock; `None` if packets do not say.
    /// (`timestamp_end`)
    pub end: Option<u64>,
    /// The size in bits with header and context, without padding. (`content_size`)
    pub content_bits: u64,
    /// The size in bits with padding, a multiple of 8. (`packet_size`)
    pub packet_bits: u64,
    /// The number of the packet in its stream; `None` if packets are not numbered.
    /// (`packet_seq_num`)
    pub sequence: Option<Counter>,
    /// Events of the stream that were lost until the packet's end.
    pub discarded: Option<Counter>,
    /// The UUID of the trace to which the packet belongs, if that is another trace. `babeltrace2`
    /// 2.0.4 decodes such packets, so that they are no error here. `None` if the UUID is that of
    /// the trace, or not given.
    pub foreign_uuid: Option<Uuid>,
    /// The position of the packet context in bits, before its alignment.
    pub(crate) context_at: u64,
    /// The position of the first event in bits, before its alignment.
    pub(crate) events_at: u64,
}

/// A count that may pass its largest value and begin again at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The count, below 2 to the power of `bits`.
    pub value: u64,
    /// The width of the field in bits, 1 to 64.
    pub bits: u8,
}

/// Fewest bits of a counter that is not taken to have wrapped around if it goes back by less than
/// half of its range.
const MIN_RESET_BITS: u8 = 16;

impl Counter {
    /// The steps from `before` to this value, if it has wrapped around at most once. `None` if it
    /// has begun again: if it goes back, and wrapping around would have taken more than half of its
    /// range. Of a narrow counter that cannot be known, and it has wrapped around.
    #[must_use]
    pub const fn since(self, before: u64) -> Option<u64> {
        // Wraps like the field itself, which has only `bits` bits.
        let steps = self.value.wrapping_sub(before) & self.largest();
        let is_far = steps > self.largest() / 2;
        let is_reset = self.value < before && is_far && self.bits >= MIN_RESET_BITS;
        if is_reset { None } else { Some(steps) }
    }

    /// The largest value that the field can have.
    pub(crate) const fn largest(self) -> u64 {
        // `bits` is public, and a caller may set it to 0: without the mask that would be a shift by
        // 64.
        u64::MAX >> ((64 - self.bits as u32) & 63)
    }
}

impl PacketHead {
    /// Reads the head of the packet at the front of `bytes`, which may end anywhere after the
    /// packet's context. `available` is the number of bytes from the packet's first to the end of
    /// its file, also if `bytes` are fewer; a packet that does not give its size extends to that
    /// end.
    ///
    /// # Errors
    /// If `bytes` do not begin with a packet of `trace`, or if its size is more than `available`.
    pub fn read(trace: &Trace, bytes: &[u8], available: u64) -> Result<Self, DecodeError> {
        let mut state = DecodeState::default();
        Self::decode(trace, bytes, available, &mut state).map(|(head, _)| head)
    }

    /// Reads the head of a packet as [`read`](Self::read) does, and leaves in `state` what its
    /// events need.
    pub(crate) fn decode<'t>(
        trace: &'t Trace,
        bytes: &[u8],
        available: u64,
        state: &mut DecodeState,
    ) -> Result<(Self, &'t StreamClass), DecodeError> {
        let available = available.saturating_mul(8).min(MAX_PACKET_BITS);
        let mut cursor = Cursor {
            bytes,
            position: 0,
            end: available,
            shift: 0,
        };
        state.begin_packet();
        // Until the header is read the stream class is unknown. The slots of the header and of any
        // packet context are below this number.
        state.need_slots(crate::metadata::STREAM_SLOTS_END);
        trace.header_plan.run(&mut cursor, state)?;
        check_magic(state)?;
        let foreign_uuid = foreign_uuid(trace, state)?;
        let id = state.roles.value(Role::StreamClassId);
        let stream = match id {
            Some(id) => trace.streams.get(&id),
            None => trace.stream_without_id(),
        };
        let Some(stream) = stream else {
            let id = id.unwrap_or(0);
            return Err(DecodeError::UnknownStreamClass { id });
        };
        state.need_slots(stream.slots);
        state.shared_slots = trace.shared_slots(stream);
        let context_at = cursor.position;
        stream.context_plan.run(&mut cursor, state)?;
        let value = |role| state.roles.value(role);
        // Without either size the packet extends to the end of its file.
        let (content_bits, packet_bits) = match (value(Role::ContentSize), value(Role::PacketSize))
        {
            (Some(content), Some(packet)) => (content, packet),
            (Some(content), None) => (content, content),
            // Without a content size the packet has no padding (CTF 1.8.3, section 5.2).
            (None, Some(packet)) => (packet, packet),
            (None, None) => (available, available),
        };
        // A packet of no bytes would be found again at the same place, without end.
        let why = if content_bits > packet_bits {
            Some("the content is larger than the packet")
        } else if packet_bits % 8 != 0 {
            Some("that is not a whole number of bytes")
        } else if content_bits < cursor.position || packet_bits == 0 {
            Some("its header and context are longer")
        } else if packet_bits > available {
            Some("it is truncated")
        } else {
            None
        };
        if let Some(why) = why {
            return Err(DecodeError::Sizes {
                packet: packet_bits,
                content: content_bits,
                why,
            });
        }
        let counter = |role| {
            let found = state.roles.get(role);
            found.map(|(value, bits)| Counter { value, bits })
        };
        let head = Self {
            stream_class: stream.id,
            stream_id: value(Role::StreamId),
            // Not the value of the field: a narrow timestamp has the low bits of the time only.
            begin: value(Role::Timestamp).map(|_| state.cycles),
            // As it is, whatever its width, like babeltrace2: it is the time when the packet was
            // closed, and moves the clock only after the last event.
            end: value(Role::PacketEnd),
            content_bits,
            packet_bits,
            sequence: counter(Role::PacketSequence),
            discarded: counter(Role::DiscardedEvents),
            foreign_uuid,
            context_at,
            events_at: cursor.position,
        };
        Ok((head, stream))
    }

    /// The size of the packet in bytes, with padding.
    #[must_use]
    pub const fn packet_bytes(&self) -> u64 {
        self.packet_bits / 8
    }
}

fn check_magic(state: &DecodeState) -> Result<(), DecodeError> {
    match state.roles.get(Role::PacketMagic) {
        Some((found, _)) if found != MAGIC => Err(DecodeError::Magic { found }),
        _ => Ok(()),
    }
}

/// The UUID of the packet, if it is not that of the trace.
fn foreign_uuid(trace: &Trace, state: &DecodeState) -> Result<Option<Uuid>, DecodeError> {
    let Some(found) = state.uuid.map(Uuid) else {
        return Ok(None);
    };
    // A CTF 2 packet that names another metadata stream is an error; in CTF 1 the UUID is that of
    // the trace, and babeltrace2 decodes such packets.
    match trace.stream_uuid {
        Some(metadata) if metadata != found => Err(DecodeError::ForeignUuid { found, metadata }),
        _ => Ok(trace.uuid.filter(|uuid| *uuid != found).map(|_| found)),
    }
}

impl DecodeError {
    /// Whether the bytes that were given may have ended too early: with more bytes of the packet
    /// there may be no error.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        matches!(
            self,
            Self::Field {
                what: FieldError::PastEnd { .. },
                ..
            }
        )
    }
}
