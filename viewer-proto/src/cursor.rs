//! What one viewer has been told of one stream, and what it may be told next.

use bytes::BytesMut;
use wire::{ClassId, Field, Timestamp};

use crate::index::{IndexStatus, NextIndex};
use crate::metadata::{MetadataHead, MetadataStatus};
use crate::packet::{GetPacket, PacketHead, PacketStatus};
use crate::relay::{Ahead, Metadata, Next, Stream};

/// A stream of packets.
pub(crate) struct PacketCursor<S> {
    stream: S,
    /// No event from before this will come: the viewer has been told.
    promised: Timestamp,
    /// The promise was made by a beacon, so that it can be repeated.
    is_inactive: bool,
}

/// Whether a viewer's time may move on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// It may.
    Flows,
    /// There are streams that the viewer has not been told of, which may begin before the beacons of
    /// those it knows.
    Stands {
        /// It may be given an index of nothing, as a hint to them.
        hint: bool,
    },
}

/// An answer to `GET_NEXT_INDEX`, but for its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// A packet, or that there is none now.
    Index(NextIndex),
    /// Nothing but that streams are waiting.
    Hint(NextIndex),
    /// That there will be none.
    Over,
}

impl<S: Stream> PacketCursor<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            promised: Timestamp(0),
            is_inactive: false,
        }
    }

    /// The next index. `time` is asked after the stream: a stream is published before the beacons
    /// that come after it.
    pub(crate) fn next(&mut self, time: impl FnOnce() -> Time) -> Told {
        let until = match self.stream.next() {
            Next::Packet { offset, index } => {
                self.promised = index.end.max(self.promised);
                self.is_inactive = false;
                let mut ready = NextIndex::bare(IndexStatus::Ready, 0);
                ready.offset = offset;
                ready.packet = index.into();
                return Told::Index(ready);
            }
            Next::Over => return Told::Over,
            Next::Quiet { until } => until,
        };
        let retry = Told::Index(NextIndex::bare(IndexStatus::Retry, 0));
        // Viewers do not survive a class that changes later.
        let Some(class) = self.stream.class() else {
            return retry;
        };
        match time() {
            Time::Stands { hint: true } => Told::Hint(hint_at_new_streams(class)),
            Time::Stands { hint: false } if self.is_inactive => {
                Told::Index(NextIndex::inactive(self.promised, class, 0))
            }
            Time::Stands { hint: false } => retry,
            Time::Flows => match until {
                // What has been promised stays: a beacon from before it says nothing.
                Some(until) if until >= self.promised => {
                    self.promised = until;
                    self.is_inactive = true;
                    Told::Index(NextIndex::inactive(until, class, 0))
                }
                _ => retry,
            },
        }
    }

    /// What there is, without moving.
    pub(crate) fn ahead(&self) -> Ahead {
        self.stream.ahead()
    }

    /// Whether a beacon says more than the viewer has been told.
    pub(crate) fn is_beyond_promise(&self, until: Timestamp) -> bool {
        until > self.promised
    }

    /// The viewer is told unasked that no event from before `until` will come.
    pub(crate) fn promise(&mut self, until: Timestamp) {
        self.promised = until;
        self.is_inactive = true;
    }

    /// Whether changes of the stream are to be reported.
    pub(crate) fn set_subscribed(&mut self, on: bool) {
        self.stream.set_subscribed(on);
    }

    /// Bytes of a packet.
    pub(crate) fn packet(&self, ask: &GetPacket) -> (PacketHead, Option<S::Packet>) {
        // No bytes at all would be an answer that viewers do not survive.
        let packet = (ask.len > 0)
            .then(|| self.stream.packet(ask.offset, ask.len))
            .flatten();
        let (status, len) = match packet {
            Some(_) => (PacketStatus::Ok, ask.len),
            None => (PacketStatus::Failed, 0),
        };
        (
            PacketHead {
                status,
                len,
                flags: 0,
            },
            packet,
        )
    }
}

/// Says that streams are waiting to viewers that only look at the flags of an index that is ready
/// (babeltrace2 2.0): an index of nothing at all, which they then do not fetch. Other viewers
/// (babeltrace 1) are lost at it.
fn hint_at_new_streams(class: ClassId) -> NextIndex {
    let mut hint = NextIndex::bare(IndexStatus::Ready, 0);
    hint.packet.class = class;
    hint
}

/// A metadata stream.
pub(crate) struct MetadataCursor<M> {
    metadata: M,
    /// The viewer knows that it has everything of a stream that has ended.
    told_end: bool,
}

impl<M: Metadata> MetadataCursor<M> {
    pub(crate) fn new(metadata: M) -> Self {
        Self {
            metadata,
            told_end: false,
        }
    }

    /// Whether the viewer has not had everything.
    pub(crate) fn has_unread(&self) -> bool {
        self.metadata.has_unread()
    }

    /// Whether changes of the stream are to be reported.
    pub(crate) fn set_subscribed(&mut self, on: bool) {
        self.metadata.set_subscribed(on);
    }

    /// Appends the answer to `GET_METADATA`, and gives its status.
    pub(crate) fn next(&mut self, replies: &mut BytesMut) -> MetadataStatus {
        // Asked before looking for metadata: none comes after the end.
        let is_over = self.metadata.is_over();
        if !self.metadata.has_unread() {
            // At the end "none now" comes before "none ever": viewers take the latter for an
            // error while they still wait for some.
            let knows = std::mem::replace(&mut self.told_end, is_over);
            let status = if is_over && knows {
                MetadataStatus::Failed
            } else {
                MetadataStatus::NoNew
            };
            MetadataHead { len: 0, status }.write(replies);
            return status;
        }
        // The length is announced after the bytes have been read: a promise that cannot be kept
        // would cost the connection its rhythm.
        let start = replies.len();
        no_metadata().write(replies);
        let body = replies.len();
        let read = self.metadata.read(replies);
        let len = replies.len() - body;
        let head = if read.is_ok() && len > 0 {
            MetadataHead {
                len: len as u64,
                status: MetadataStatus::Ok,
            }
        } else {
            replies.truncate(body);
            no_metadata()
        };
        if let Some(mut place) = replies.get_mut(start..body) {
            head.write(&mut place);
        }
        head.status
    }
}

/// There is no such metadata, or no more.
pub(crate) fn no_metadata() -> MetadataHead {
    MetadataHead {
        len: 0,
        status: MetadataStatus::Failed,
    }
}
