//! One stream: its open packet and its watermark.

use ctf::write::{
    Appended, DeclaredEventClass, DeclaredStreamClass, EventRecord, PacketError, PacketSize,
    StreamWriter,
};
use wire::{PacketIndex, Timestamp};

/// A stream of the trace, with its open packet.
#[derive(Debug)]
pub(super) struct PacketStream {
    writer: StreamWriter,
    /// The watermark: the time of the last event or beacon, before which no event may be written.
    earliest: Timestamp,
    /// Whether events were lost since the last packet was closed.
    has_loss: bool,
    has_packets: bool,
}

impl PacketStream {
    pub(super) fn new(class: &DeclaredStreamClass, number: u32, size: PacketSize) -> Self {
        Self {
            writer: StreamWriter::new(class, number.into(), number, size),
            earliest: Timestamp(0),
            has_loss: false,
            has_packets: false,
        }
    }

    /// Whether there are events or losses that no packet has reported.
    pub(super) fn has_changes(&self) -> bool {
        self.writer.has_events() || self.has_loss
    }

    /// Whether a packet of the stream has been closed.
    pub(super) fn has_packets(&self) -> bool {
        self.has_packets
    }

    /// Appends an event to the open packet, or opens one. Returns false if the packet is full.
    pub(super) fn append(
        &mut self,
        class: &DeclaredEventClass,
        event: EventRecord<'_>,
    ) -> Result<bool, PacketError> {
        // Viewers merge streams by time, and have shown what was before the watermark.
        let time = event.time.max(self.earliest);
        if !self.writer.is_open() {
            self.writer.open(time)?;
        }
        let appended = self.writer.append(class, &EventRecord { time, ..event })?;
        // Only now: an event that no packet can hold does not move the watermark.
        self.earliest = time;
        Ok(appended == Appended::Written)
    }

    /// Sets the values of the fields that the stream class adds to the packet context, for later
    /// packets.
    pub(super) fn set_context(&mut self, values: &[u64]) {
        self.writer.set_context(values);
    }

    pub(super) fn discard(&mut self, events: u64) {
        self.writer.discard(events);
        self.has_loss |= events > 0;
    }

    /// Closes the open packet. If none is open, an empty packet is made, which reports losses.
    pub(super) fn close_packet(&mut self, now: Timestamp) -> Option<(Vec<u8>, PacketIndex)> {
        let end = now.max(self.earliest);
        if !self.writer.is_open() {
            self.writer.open(end).ok()?;
        }
        let closed = self.writer.close_content(end).ok()?;
        self.earliest = end;
        self.has_loss = false;
        self.has_packets = true;
        Some(closed)
    }

    /// Advances the watermark to `now`. Returns the time for a beacon; none if the last packet or
    /// beacon ends at `now` or later.
    pub(super) fn advance_watermark(&mut self, now: Timestamp) -> Option<Timestamp> {
        if now <= self.earliest {
            return None;
        }
        self.earliest = now;
        Some(now)
    }
}
