//! Writes events to packets, by the rules that readers rely on: times never decrease, no event is
//! split, sizes and losses are right when the packet is closed.

use bytes::BufMut;
use thiserror::Error;
use wire::{Bits, ClassId, InstanceId, PacketIndex, PacketSeqNum, Timestamp};

use super::declare::{DeclaredEventClass, DeclaredStreamClass};
use super::value::{BoundedBuffer, Misfit, Value};

/// The size of a packet is a multiple of this number of bytes, as that of LTTng's packets is.
const PAGE: usize = 4096;

/// Longest packet in bytes: viewers refuse longer ones.
const MAX_PACKET_BYTES: usize = 256 << 20;

/// Bytes of the packet header and the packet context, without the fields that a stream class adds.
const HEAD_BYTES: usize = 84;

// Offsets of the fields of the head that are known only when the packet is closed.
const END_AT: usize = 40;
const CONTENT_SIZE_AT: usize = 48;
const PACKET_SIZE_AT: usize = 56;
const DISCARDED_AT: usize = 72;

/// Highest event id of the compact header.
const MAX_COMPACT_ID: u16 = 65_534;
/// The id that marks the extended header.
const EXTENDED: u16 = 65_535;

/// The limits on the size of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketSize {
    usual: usize,
    max: usize,
}

impl PacketSize {
    /// Limits in bytes, rounded up to whole pages. A packet is longer than `usual` only for one
    /// event that is, and never longer than `max`.
    #[must_use]
    pub fn new(usual: usize, max: usize) -> Self {
        let pages = |bytes: usize| bytes.clamp(PAGE, MAX_PACKET_BYTES).next_multiple_of(PAGE);
        let usual = pages(usual);
        Self {
            usual,
            max: pages(max).max(usual),
        }
    }
}

/// An event to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventRecord<'a> {
    /// The time in cycles of the trace's clock.
    pub time: Timestamp,
    /// The id of the process. (`vpid`)
    pub process: i32,
    /// The id of the thread. (`vtid`)
    pub thread: i32,
    /// The values of the fields of its class, in order.
    pub values: &'a [Value<'a>],
}

/// The result of appending an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an event that found no room is not in the packet"]
pub enum Appended {
    /// The event is in the packet.
    Written,
    /// The event is not in the packet, which is full: close it, open the next, and append the event
    /// there.
    Full,
}

/// A closed packet, borrowed from its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedPacket<'a> {
    /// The bytes of the packet, padding included.
    pub bytes: &'a [u8],
    /// The index entry of the packet, without its offset.
    pub index: PacketIndex,
}

/// The reason why a packet cannot be opened, written or closed. Nothing of what was refused is in
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PacketError {
    /// There is no packet to append to or to close.
    #[error("no packet is open")]
    NotOpen,
    /// The last packet has not been closed.
    #[error("a packet is open")]
    Open,
    /// Times may be the same, but not go back.
    #[error("{got} is before {last}")]
    TimeWentBack {
        /// Time of the packet or event.
        got: Timestamp,
        /// The time of the packet or event before.
        last: Timestamp,
    },
    /// The event's class is of another stream class.
    #[error("event class {0} is of another stream class")]
    OtherStream(u32),
    /// Too many values, or too few.
    #[error("{got} values for {want} fields")]
    Values {
        /// The number of values of the event.
        got: usize,
        /// The number of fields of its class.
        want: usize,
    },
    /// A value that its field cannot hold.
    #[error("value {0} is not what its field holds")]
    Value(usize),
    /// The event does not fit into the longest packet, which has this number of bytes. Shorten it,
    /// or count it as discarded.
    #[error("an event that does not fit into a packet of {0} bytes")]
    TooLong(usize),
}

/// Writes the packets of one stream: of one thread, or of one buffer.
///
/// Losses must be counted: a caller that drops an event calls [`discard`](Self::discard). The
/// number of a closed packet that is dropped stays missing, which readers see as a gap.
#[derive(Debug)]
pub struct StreamWriter {
    class: DeclaredStreamClass,
    instance: u64,
    cpu: u32,
    size: PacketSize,
    /// The open packet, or the one closed last.
    bytes: Vec<u8>,
    open: Option<Open>,
    /// Number of the next packet to be opened.
    sequence: u64,
    discarded: u64,
    /// The values of the fields that the stream class adds to the packet context.
    context: Vec<u64>,
    /// Time of what was written last.
    last: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    begin: Timestamp,
    is_empty: bool,
}

impl StreamWriter {
    /// Begins with packet 0 of this stream. `instance` is unique among the streams of its class;
    /// `cpu` is shown with every event; a stream that has no CPU uses its instance id.
    #[must_use]
    pub fn new(class: &DeclaredStreamClass, instance: u64, cpu: u32, size: PacketSize) -> Self {
        Self {
            class: class.clone(),
            instance,
            cpu,
            size,
            bytes: Vec::new(),
            open: None,
            sequence: 0,
            discarded: 0,
            context: vec![0; class.context_fields],
            last: Timestamp(0),
        }
    }

    /// Whether a packet is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the open packet has an event.
    #[must_use]
    pub fn has_events(&self) -> bool {
        self.open.is_some_and(|open| !open.is_empty)
    }

    /// Sets the values of the fields that the stream class adds to the packet context, for the
    /// packets that are opened from now on. Values are 0 until they are set; too many are ignored.
    pub fn set_context(&mut self, values: &[u64]) {
        for (place, value) in self.context.iter_mut().zip(values) {
            *place = *value;
        }
    }

    /// Opens the next packet.
    ///
    /// # Errors
    /// If one is open, or `begin` is before the end of the last.
    pub fn open(&mut self, begin: Timestamp) -> Result<(), PacketError> {
        if self.is_open() {
            return Err(PacketError::Open);
        }
        // First, so that a packet that is refused changes nothing.
        self.advance(begin)?;
        self.bytes.clear();
        // Memory of a packet that was longer than usual is released.
        self.bytes.shrink_to(self.size.usual);
        // At once, so that appending does not move what is there.
        self.bytes.reserve(self.size.usual);
        let to = &mut self.bytes;
        to.put_u32_le(0xc1fc_1fc1);
        to.put_slice(&self.class.uuid.0);
        to.put_u32_le(self.class.id);
        to.put_u64_le(self.instance);
        to.put_u64_le(begin.0);
        to.put_u64_le(0); // end
        to.put_u64_le(0); // content size
        to.put_u64_le(0); // packet size
        to.put_u64_le(self.sequence);
        to.put_u64_le(0); // events discarded
        to.put_u32_le(self.cpu);
        debug_assert_eq!(to.len(), HEAD_BYTES);
        for value in &self.context {
            to.put_u64_le(*value);
        }
        let is_empty = true;
        self.open = Some(Open { begin, is_empty });
        Ok(())
    }

    /// Appends an event to the open packet.
    ///
    /// # Errors
    /// If no packet is open, the event's time is before that of the last one, or it is not what its
    /// class says.
    pub fn append(
        &mut self,
        class: &DeclaredEventClass,
        event: &EventRecord<'_>,
    ) -> Result<Appended, PacketError> {
        let Some(open) = self.open else {
            return Err(PacketError::NotOpen);
        };
        if class.stream != self.class {
            return Err(PacketError::OtherStream(class.id));
        }
        let (got, want) = (event.values.len(), class.fields.len());
        if got != want {
            return Err(PacketError::Values { got, want });
        }
        let before = self.last;
        self.advance(event.time)?;
        let begin = self.bytes.len();
        // An event is never split: one that is longer than a usual packet gets a packet of its own.
        let max_bytes = if open.is_empty {
            self.size.max
        } else {
            self.size.usual
        };
        let bytes = &mut self.bytes;
        let refused = match write_event(
            &mut BoundedBuffer { bytes, max_bytes },
            class,
            event,
            before,
        ) {
            Ok(()) => {
                let is_empty = false;
                self.open = Some(Open { is_empty, ..open });
                return Ok(Appended::Written);
            }
            Err((_, Misfit::NoSpace)) if !open.is_empty => Ok(Appended::Full),
            Err((_, Misfit::NoSpace)) => Err(PacketError::TooLong(max_bytes)),
            Err((field, Misfit::Type)) => Err(PacketError::Value(field)),
        };
        // A part of the event may have been written before it was refused.
        self.bytes.truncate(begin);
        self.last = before;
        refused
    }

    /// Counts events that have been lost since the last call.
    pub fn discard(&mut self, events: u64) {
        self.discarded = self.discarded.saturating_add(events);
    }

    /// Closes the packet. `end` is the time of closing, not that of the last event: until then a
    /// live viewer need not wait for this stream. A packet without events has no other purpose.
    ///
    /// # Errors
    /// If none is open, or `end` is before its last event.
    pub fn close(&mut self, end: Timestamp) -> Result<ClosedPacket<'_>, PacketError> {
        let index = self.seal(end)?;
        self.bytes
            .resize(self.bytes.len().next_multiple_of(PAGE), 0);
        let bytes = &self.bytes;
        Ok(ClosedPacket { bytes, index })
    }

    /// Closes the packet and hands its content over, for where padding need not be written: the
    /// rest of the packet, by the size in the index, is zeros.
    ///
    /// # Errors
    /// As for [`close`](Self::close).
    pub fn close_content(&mut self, end: Timestamp) -> Result<(Vec<u8>, PacketIndex), PacketError> {
        let index = self.seal(end)?;
        // The buffer has room for a full packet: a short one is copied, so that its holder does not
        // keep memory that it does not need.
        let content = if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.clone()
        } else {
            std::mem::take(&mut self.bytes)
        };
        Ok((content, index))
    }

    /// Closes the packet: all but its padding.
    fn seal(&mut self, end: Timestamp) -> Result<PacketIndex, PacketError> {
        let Some(open) = self.open else {
            return Err(PacketError::NotOpen);
        };
        self.advance(end)?;
        self.open = None;
        let content_size = Bits(self.bytes.len() as u64 * 8);
        let packet_size = Bits(self.bytes.len().next_multiple_of(PAGE) as u64 * 8);
        self.patch(END_AT, end.0);
        self.patch(CONTENT_SIZE_AT, content_size.0);
        self.patch(PACKET_SIZE_AT, packet_size.0);
        self.patch(DISCARDED_AT, self.discarded);
        let index = PacketIndex {
            packet_size,
            content_size,
            begin: open.begin,
            end,
            events_discarded: self.discarded,
            class: ClassId(self.class.id.into()),
            instance: Some(InstanceId(self.instance)),
            packet_seq: Some(PacketSeqNum(self.sequence)),
        };
        self.sequence += 1;
        Ok(index)
    }

    fn advance(&mut self, to: Timestamp) -> Result<(), PacketError> {
        let last = self.last;
        if to < last {
            return Err(PacketError::TimeWentBack { got: to, last });
        }
        self.last = to;
        Ok(())
    }

    fn patch(&mut self, at: usize, number: u64) {
        if let Some(place) = self.bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// Writes an event after one of the time `before`. Fails with the number of the field that does
/// not fit.
fn write_event(
    to: &mut BoundedBuffer<'_>,
    class: &DeclaredEventClass,
    event: &EventRecord<'_>,
    before: Timestamp,
) -> Result<(), (usize, Misfit)> {
    let head = |misfit| (0, misfit);
    // The compact time has 32 bits: readers take the next time with these low bits, so that a
    // longer gap needs the extended header.
    let compact_id = u16::try_from(class.id)
        .ok()
        .filter(|id| *id <= MAX_COMPACT_ID);
    // No underflow: `advance` has refused a time that goes back.
    let is_near = event.time.0 - before.0 <= u64::from(u32::MAX);
    let [a, b, c, d, ..] = event.time.0.to_le_bytes();
    if let Some(id) = compact_id
        && is_near
    {
        to.put(&id.to_le_bytes()).map_err(head)?;
        to.put(&[a, b, c, d]).map_err(head)?;
    } else {
        to.put(&EXTENDED.to_le_bytes()).map_err(head)?;
        to.put(&class.id.to_le_bytes()).map_err(head)?;
        to.put(&event.time.0.to_le_bytes()).map_err(head)?;
    }
    to.put(&event.process.to_le_bytes()).map_err(head)?;
    to.put(&event.thread.to_le_bytes()).map_err(head)?;
    let fields = class.fields.iter().zip(event.values).enumerate();
    for (number, (of, value)) in fields {
        to.field(of, *value).map_err(|misfit| (number, misfit))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
