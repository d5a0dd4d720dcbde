//! Writes events to CTF packets of bounded size, and queues these in the session's queue.
//!
//! A packet is cut when it is full, and on a timer ([`Packetizer::flush`]), which also makes
//! beacons for streams without events. Metadata grows as event classes are declared, and is always
//! queued before the packet that needs it.
//!
//! Events are held here until their packet is cut; if this process dies, they are lost. The
//! packetizer knows no clock: times come as arguments, and never go back within a stream.
//! [`HostClock`] reads the clock for its callers.

mod clock;
mod stream;

use bytes::Bytes;
use ctf::model::Uuid;
use ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventRecord, MetadataText, PacketError,
    PacketSize, TraceDeclaration, metadata_packets,
};
use thiserror::Error;
use wire::Timestamp;

use crate::queue::{
    Activity, DeliveryReceipt, SeenActivity, SessionClosed, SessionOutcome, SessionSender, Step,
    StreamKey, TraceKey,
};

pub use clock::HostClock;
use stream::PacketStream;

/// An event was not appended.
#[derive(Debug, Error)]
pub enum PacketizeError {
    /// No packet can hold the event; the stream is unchanged.
    #[error(transparent)]
    Event(#[from] PacketError),
    /// The session has been given up.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
}

/// The writer of one trace, which is the only one of its session.
#[derive(Debug)]
pub struct Packetizer {
    uuid: Uuid,
    metadata: MetadataText,
    streams: Vec<PacketStream>,
    queue: SessionSender,
    activity: Activity,
    /// The activity of all sessions when beacons were last sent.
    beacons: SeenActivity,
}

/// The only trace of the session.
const TRACE: TraceKey = TraceKey(0);

impl Packetizer {
    /// Begins a trace. Its directory is `path`, below the directory of the session.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn new(
        trace: &TraceDeclaration,
        path: &str,
        queue: SessionSender,
        activity: Activity,
    ) -> Result<Self, SessionClosed> {
        let path = path.to_owned();
        queue.send(Step::AddTrace { path }).await?;
        Ok(Self {
            uuid: trace.uuid,
            metadata: MetadataText::new(trace),
            streams: Vec::new(),
            queue,
            activity,
            beacons: SeenActivity::default(),
        })
    }

    /// Declares a stream class.
    ///
    /// # Errors
    /// If the id is already declared.
    pub fn declare_stream_class(&mut self, id: u32) -> Result<DeclaredStreamClass, DeclareError> {
        self.metadata.stream(id)
    }

    /// Returns the metadata, in which event classes may be declared at any time.
    pub fn metadata(&mut self) -> &mut MetadataText {
        &mut self.metadata
    }

    /// Sets the values of the fields that the stream class adds to the packet context, for the
    /// packets that begin with a later event.
    ///
    /// # Panics
    /// If the stream is not one of this packetizer's.
    pub fn set_packet_context(&mut self, stream: StreamKey, values: &[u64]) {
        let place = self.index_of(stream);
        self.stream(place).set_context(values);
    }

    /// Adds a stream with tracefiles of the name `channel`.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn add_stream(
        &mut self,
        class: &DeclaredStreamClass,
        channel: &str,
        size: PacketSize,
    ) -> Result<StreamKey, SessionClosed> {
        let number = u32::try_from(self.streams.len()).unwrap_or(u32::MAX);
        let step = Step::AddStream {
            trace: TRACE,
            channel: channel.to_owned(),
            class: wire::ClassId(class.id().into()),
        };
        self.queue.send(step).await?;
        self.streams.push(PacketStream::new(class, number, size));
        Ok(StreamKey(number))
    }

    /// Appends an event to the stream's packet. An event from before the stream's watermark gets
    /// the time of the watermark. Waits while the queue is full and a full packet has to be queued.
    ///
    /// # Errors
    /// If no packet can hold the event, or the session has been given up.
    ///
    /// # Panics
    /// If the stream is not one of this packetizer's.
    pub async fn append(
        &mut self,
        stream: StreamKey,
        class: &DeclaredEventClass,
        event: EventRecord<'_>,
    ) -> Result<(), PacketizeError> {
        let place = self.index_of(stream);
        let stream = self.stream(place);
        if stream.append(class, event)? {
            return Ok(());
        }
        // The packet is full. It ends where the event begins, however long queueing it takes.
        let time = event.time;
        self.cut_packet(place, time).await?;
        self.stream(place).append(class, event)?;
        Ok(())
    }

    /// Counts lost events of a stream: they are added to its packets' counter of discarded events.
    ///
    /// # Panics
    /// If the stream is not one of this packetizer's.
    pub fn discard(&mut self, stream: StreamKey, events: u64) {
        let place = self.index_of(stream);
        self.stream(place).discard(events);
    }

    /// Cuts an empty packet if the stream has none yet: readers know the number of discarded events
    /// only from the difference between two packets.
    ///
    /// # Errors
    /// If the session has been given up.
    ///
    /// # Panics
    /// If the stream is not one of this packetizer's.
    pub async fn cut_first_packet(
        &mut self,
        stream: StreamKey,
        now: Timestamp,
    ) -> Result<(), SessionClosed> {
        let place = self.index_of(stream);
        if self.stream(place).has_packets() {
            return Ok(());
        }
        self.cut_packet(place, now).await
    }

    /// Sets the receipt for the packets that are cut from now on.
    pub fn set_receipt(&mut self, receipt: Option<DeliveryReceipt>) {
        self.queue.set_receipt(receipt);
    }

    /// Cuts all packets with events in them. Sends beacons for the other streams if any session has
    /// cut a packet since the last beacons, or if `even_if_idle`, for viewers that merge them with
    /// streams of other hosts.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn flush(&mut self, now: Timestamp, even_if_idle: bool) -> Result<(), SessionClosed> {
        for place in 0..self.streams.len() {
            if self.stream(place).has_changes() {
                self.cut_packet(place, now).await?;
            }
        }
        // Evaluated first, so that it is updated even if the beacons are sent anyway.
        let has_activity = self.activity.has_changed_since(&mut self.beacons);
        if !has_activity && !even_if_idle {
            return Ok(());
        }
        for place in 0..self.streams.len() {
            let Some(until) = self.stream(place).advance_watermark(now) else {
                continue;
            };
            self.queue_metadata().await?;
            let stream = StreamKey::from_index(place);
            self.queue.send(Step::Beacon { stream, until }).await?;
        }
        Ok(())
    }

    /// Waits until any session has cut a packet since the last beacons, so that beacons are due.
    pub async fn wait_for_activity(&self) {
        self.activity.wait_for_change(&self.beacons).await;
    }

    /// Ends the session, and waits until the relay has acknowledged everything or the session is
    /// given up.
    pub async fn finish(mut self, now: Timestamp) -> SessionOutcome {
        // If the session has been given up, the outcome says so.
        let _ = self.cut_last_packets(now).await;
        self.queue.finish().await
    }

    /// Cuts all packets with events in them, and leaves the streams open until the session is
    /// closed: a viewer of `lttng-relayd` gets the rest of streams that leave the trace chunk
    /// before they are closed, and nothing more of those that are closed before.
    async fn cut_last_packets(&mut self, now: Timestamp) -> Result<(), SessionClosed> {
        for place in 0..self.streams.len() {
            if self.stream(place).has_changes() {
                self.cut_packet(place, now).await?;
            }
        }
        self.queue_metadata().await
    }

    /// Closes a stream's packet and queues it.
    async fn cut_packet(&mut self, place: usize, now: Timestamp) -> Result<(), SessionClosed> {
        let Some((content, index)) = self.stream(place).close_packet(now) else {
            return Ok(());
        };
        // Before the packet: a viewer cannot read an event of a class that is not declared yet.
        self.queue_metadata().await?;
        self.activity.record_packet();
        let step = Step::Packet {
            stream: StreamKey::from_index(place),
            bytes: content.into(),
            index,
        };
        self.queue.send(step).await
    }

    /// Queues the metadata that was declared since the last call.
    async fn queue_metadata(&mut self) -> Result<(), SessionClosed> {
        let text = self.metadata.take_new();
        if text.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::from(metadata_packets(self.uuid, text));
        let trace = TRACE;
        self.queue.send(Step::Metadata { trace, bytes }).await
    }

    fn index_of(&self, StreamKey(number): StreamKey) -> usize {
        let place = number as usize;
        assert!(place < self.streams.len(), "a stream of another packetizer");
        place
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "places are checked, or counted from the streams themselves"
    )]
    fn stream(&mut self, place: usize) -> &mut PacketStream {
        &mut self.streams[place]
    }
}

#[cfg(test)]
mod tests;
