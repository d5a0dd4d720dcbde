//! Events into packets of bounded size, and these into the session's queue.
//!
//! A packet is cut when it is full, and when it is time ([`Packetizer::flush`]): what has happened is
//! then with the relay, and streams on which nothing has say so by a beacon. Metadata grows as event
//! classes appear, and is always queued before the packet that needs it.
//!
//! Until a packet is cut its events are here; if this process dies they are lost. Knows no clock: times
//! come in as arguments, and never go back within a stream.

mod activity;
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

use crate::queue::{SessionClosed, SessionOutcome, SessionSender, Step, StreamKey, TraceKey};

pub use activity::Activity;
pub use clock::HostClock;
use stream::PacketStream;

/// Why an event is in no packet.
#[derive(Debug, Error)]
pub enum PacketizeError {
    /// No packet can hold it; the stream is as it was.
    #[error(transparent)]
    Event(#[from] PacketError),
    /// Nobody takes packets any more.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
}

/// Writes one trace, alone in its session.
#[derive(Debug)]
pub struct Packetizer {
    uuid: Uuid,
    metadata: MetadataText,
    streams: Vec<PacketStream>,
    queue: SessionSender,
    activity: Activity,
    /// What had happened anywhere when beacons were sent last.
    beacons: activity::SeenActivity,
}

/// The one trace of the session.
const TRACE: TraceKey = TraceKey(0);

impl Packetizer {
    /// Begins a trace whose files lie at `path` below the session's directory.
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
            beacons: activity::SeenActivity::default(),
        })
    }

    /// Declares a class of streams.
    ///
    /// # Errors
    /// If there is one of this id.
    pub fn declare_stream_class(&mut self, id: u32) -> Result<DeclaredStreamClass, DeclareError> {
        self.metadata.stream(id)
    }

    /// Where event classes are declared, at any time.
    pub fn metadata(&mut self) -> &mut MetadataText {
        &mut self.metadata
    }

    /// Adds a stream, whose tracefile has that name.
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

    /// Puts an event into the stream's packet. One whose time is before that of what was written last
    /// is taken to be of then. Waits while the queue is full and a packet has to go.
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
        // It is full up to there, and nothing is lost if it takes long to be queued.
        let time = event.time;
        self.cut_packet(place, time).await?;
        self.stream(place).append(class, event)?;
        Ok(())
    }

    /// Counts events of a stream that are lost.
    ///
    /// # Panics
    /// If the stream is not one of this packetizer's.
    pub fn discard(&mut self, stream: StreamKey, events: u64) {
        let place = self.index_of(stream);
        self.stream(place).discard(events);
    }

    /// Cuts all packets with events in them. If anything has been cut anywhere since the last time,
    /// other streams say that nothing happened on them. `even_if_idle`: they do in any case, for
    /// viewers who merge them with streams of other hosts.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn flush(&mut self, now: Timestamp, even_if_idle: bool) -> Result<(), SessionClosed> {
        for place in 0..self.streams.len() {
            if self.stream(place).has_changes() {
                self.cut_packet(place, now).await?;
            }
        }
        let wanted = self.activity.has_changed_since(&mut self.beacons) || even_if_idle;
        if !wanted {
            return Ok(());
        }
        for place in 0..self.streams.len() {
            let Some(until) = self.stream(place).advance_watermark(now) else {
                continue;
            };
            self.queue_metadata().await?;
            let stream = stream_key(place);
            self.queue.send(Step::Beacon { stream, until }).await?;
        }
        Ok(())
    }

    /// Ends the session with all that is in it, and waits until it is with the relay or given up.
    pub async fn finish(mut self, now: Timestamp) -> SessionOutcome {
        // Whether it has been given up is told by the outcome.
        let _ = self.close_streams(now).await;
        self.queue.finish().await
    }

    async fn close_streams(&mut self, now: Timestamp) -> Result<(), SessionClosed> {
        for place in 0..self.streams.len() {
            if self.stream(place).has_changes() {
                self.cut_packet(place, now).await?;
            }
            let stream = stream_key(place);
            self.queue.send(Step::CloseStream { stream }).await?;
        }
        self.queue_metadata().await
    }

    /// Closes a stream's packet and queues it.
    async fn cut_packet(&mut self, place: usize, now: Timestamp) -> Result<(), SessionClosed> {
        let Some((content, index)) = self.stream(place).close_packet(now) else {
            return Ok(());
        };
        self.queue_metadata().await?;
        self.activity.record_packet();
        let step = Step::Packet {
            stream: stream_key(place),
            bytes: content.into(),
            index,
        };
        self.queue.send(step).await
    }

    /// Queues what is new of the metadata.
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

fn stream_key(place: usize) -> StreamKey {
    StreamKey(u32::try_from(place).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
