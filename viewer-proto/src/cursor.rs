//! One viewer's position in one stream, and the watermark that the viewer knows of it.

use bytes::BytesMut;
use wire::{ClassId, Field, Timestamp};

use crate::index::{IndexStatus, NextIndex};
use crate::metadata::{MetadataHead, MetadataStatus};
use crate::packet::{GetPacket, PacketHead, PacketStatus};
use crate::relay::{Ahead, Metadata, Next, Stream};

/// A viewer's position in a stream of packets.
pub(crate) struct PacketCursor<S> {
    stream: S,
    /// The viewer knows from the relay that no event before this time will follow, in cycles. Never
    /// decreases.
    watermark: Timestamp,
    /// Whether the watermark comes from a beacon, so that an inactive index may repeat it.
    is_inactive: bool,
    wait: WaitState,
}

/// Whether a reply may wait for the next packet, if that is arriving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitState {
    /// Not before the viewer was told that there is none: some viewers request indexes of one
    /// stream until that, and only then those of the others.
    NotYet,
    Allowed,
    /// A reply has waited for it.
    Over,
}

/// Whether later beacons may be sent to a viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatermarkState {
    /// The watermark follows the stream's beacons.
    Advancing,
    /// The watermark may not advance: some streams have not been announced to the viewer, and may
    /// begin before the beacons of the streams that it knows.
    Held {
        /// Whether the viewer may be given an empty index as a hint to those streams.
        hint: bool,
    },
}

/// A reply to `GET_NEXT_INDEX`, without its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexReply {
    /// The index of a packet, or that there is none now.
    Index(NextIndex),
    /// An empty index, as a hint to new streams.
    Hint(NextIndex),
    /// The stream is over.
    Over,
}

impl<S: Stream> PacketCursor<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            watermark: Timestamp(0),
            is_inactive: false,
            wait: WaitState::NotYet,
        }
    }

    /// The reply to `GET_NEXT_INDEX`. `watermark_state` is called after the stream has been asked:
    /// a stream is published before the beacons that follow it.
    pub(crate) fn next_index(
        &mut self,
        watermark_state: impl FnOnce() -> WatermarkState,
    ) -> IndexReply {
        let until = match self.stream.next() {
            Next::Packet { offset, index } => {
                // A packet may end before a beacon that the viewer has been sent.
                self.watermark = index.end.max(self.watermark);
                self.is_inactive = false;
                self.wait = WaitState::NotYet;
                let mut ready = NextIndex::without_packet(IndexStatus::Ready, 0);
                ready.offset = offset;
                ready.packet = index.into();
                return IndexReply::Index(ready);
            }
            Next::Over => return IndexReply::Over,
            Next::Quiet { until } => until,
        };
        // This reply says that there is no packet, so that the next one may wait.
        if self.wait == WaitState::NotYet {
            self.wait = WaitState::Allowed;
        }
        let retry = IndexReply::Index(NextIndex::without_packet(IndexStatus::Retry, 0));
        // An index needs the stream's class: viewers fail at one that changes later.
        let Some(class) = self.stream.class() else {
            return retry;
        };
        match watermark_state() {
            WatermarkState::Held { hint: true } => IndexReply::Hint(hint_at_new_streams(class)),
            // The watermark may not advance, but the last beacon stays true, and is repeated.
            WatermarkState::Held { hint: false } if self.is_inactive => {
                IndexReply::Index(NextIndex::inactive(self.watermark, class, 0))
            }
            WatermarkState::Held { hint: false } => retry,
            WatermarkState::Advancing => match until {
                // The watermark never decreases: an older beacon is ignored.
                Some(until) if until >= self.watermark => {
                    self.watermark = until;
                    self.is_inactive = true;
                    IndexReply::Index(NextIndex::inactive(until, class, 0))
                }
                _ => retry,
            },
        }
    }

    /// Whether the reply to `GET_NEXT_INDEX` is to wait for a packet that is arriving: at most once
    /// for each packet. If so, changes of the stream are reported from now on.
    pub(crate) fn begin_wait(&mut self) -> bool {
        let is_quiet = |stream: &S| matches!(stream.ahead(), Ahead::Quiet { .. });
        if self.wait != WaitState::Allowed || !self.stream.is_arriving() || !is_quiet(&self.stream)
        {
            return false;
        }
        // Before the stream is asked again, so that no change comes between.
        self.stream.set_subscribed(true);
        // Asked again: the packet may have been published before the subscription.
        if !is_quiet(&self.stream) {
            self.stream.set_subscribed(false);
            return false;
        }
        self.wait = WaitState::Over;
        true
    }

    /// Returns what the next index would be, without moving.
    pub(crate) fn ahead(&self) -> Ahead {
        self.stream.ahead()
    }

    /// Whether a beacon is later than the viewer's watermark.
    pub(crate) fn is_past_watermark(&self, until: Timestamp) -> bool {
        until > self.watermark
    }

    /// Advances the watermark to a beacon that is pushed to the viewer.
    pub(crate) fn advance_watermark(&mut self, until: Timestamp) {
        // The caller has checked that the beacon is later.
        self.watermark = until;
        self.is_inactive = true;
    }

    /// Sets whether changes of the stream are reported.
    pub(crate) fn set_subscribed(&mut self, on: bool) {
        self.stream.set_subscribed(on);
    }

    /// The reply to `GET_PACKET`, and the bytes to send after its head.
    pub(crate) fn packet(&self, ask: &GetPacket) -> (PacketHead, Option<S::Packet>) {
        // Viewers fail at a successful reply without bytes.
        let packet = (ask.len > 0)
            .then(|| self.stream.packet(ask.offset, ask.len))
            .flatten();
        let mut head = failed_packet(0);
        if packet.is_some() {
            (head.status, head.len) = (PacketStatus::Ok, ask.len);
        }
        (head, packet)
    }
}

/// An empty index that is ready: a hint to new streams for viewers that read the flags of ready
/// indexes only (babeltrace2 2.0). They do not fetch an empty packet. Other viewers (babeltrace 1)
/// fail at such an index.
fn hint_at_new_streams(class: ClassId) -> NextIndex {
    let mut hint = NextIndex::without_packet(IndexStatus::Ready, 0);
    hint.packet.class = class;
    hint
}

/// A viewer's position in a metadata stream.
pub(crate) struct MetadataCursor<M> {
    metadata: M,
    /// Whether the viewer has been sent some of it.
    is_read: bool,
    /// Whether the viewer has been answered once since it has all metadata of a stream that is
    /// over.
    is_end_reported: bool,
}

impl<M: Metadata> MetadataCursor<M> {
    pub(crate) fn new(metadata: M) -> Self {
        Self {
            metadata,
            is_read: false,
            is_end_reported: false,
        }
    }

    /// Whether the viewer has been sent some of the metadata.
    pub(crate) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Whether there is metadata that the viewer has not been sent.
    pub(crate) fn has_unread(&self) -> bool {
        self.metadata.has_unread()
    }

    /// Sets whether changes of the stream are reported.
    pub(crate) fn set_subscribed(&mut self, on: bool) {
        self.metadata.set_subscribed(on);
    }

    /// Appends the reply to `GET_METADATA`, and returns its status.
    pub(crate) fn write_next(&mut self, replies: &mut BytesMut) -> MetadataStatus {
        // Asked before looking for metadata: none is added after the end.
        let is_over = self.metadata.is_over();
        if !self.metadata.has_unread() {
            // At the end, `NoNew` is replied once before `Failed`: viewers take the latter for an
            // error while they still wait for metadata.
            let was_reported = std::mem::replace(&mut self.is_end_reported, is_over);
            let status = if is_over && was_reported {
                MetadataStatus::Failed
            } else {
                MetadataStatus::NoNew
            };
            MetadataHead { len: 0, status }.write(replies);
            return status;
        }
        // The head is written after the bytes have been read: with a wrong length the viewer could
        // not find the next reply.
        let start = replies.len();
        failed_metadata().write(replies);
        let body = replies.len();
        let read = self.metadata.read(replies);
        let len = replies.len() - body;
        let mut head = failed_metadata();
        if read.is_ok() && len > 0 {
            (head.status, head.len) = (MetadataStatus::Ok, len as u64);
            self.is_read = true;
        } else {
            replies.truncate(body);
        }
        if let Some(mut space) = replies.get_mut(start..body) {
            head.write(&mut space);
        }
        head.status
    }
}

/// The reply for bytes that the viewer may not be given.
pub(crate) fn failed_packet(flags: u32) -> PacketHead {
    PacketHead {
        status: PacketStatus::Failed,
        len: 0,
        flags,
    }
}

/// The reply for an unknown stream, or one that will have no more metadata.
pub(crate) fn failed_metadata() -> MetadataHead {
    MetadataHead {
        len: 0,
        status: MetadataStatus::Failed,
    }
}
