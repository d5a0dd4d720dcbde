//! The traits that [`server`](crate::server) calls: what a relay must provide for viewers. The
//! values hold one viewer's positions in the streams.

use bytes::BytesMut;
use wire::{Bytes, ClassId, PacketIndex, SessionId, Timestamp, ViewerId};

use crate::command::Command;
use crate::session::{ListedSession, Seek, TraceFormat};
use crate::stream::StreamRecord;

/// A relay, as one viewer sees it.
pub trait Relay {
    /// A session that the viewer is attached to. Dropping it detaches.
    type Session: Session;

    /// Whether something has to be looked up before a command is handled. False if that has failed,
    /// too. By default, nothing is.
    fn must_await(&self, awaited: Awaited) -> bool {
        let _ = awaited;
        false
    }

    /// The sessions to which viewers may attach, in the order of their ids.
    fn sessions(&self) -> Vec<ListedSession>;

    /// The properties of a session that attaching depends on. None if it is unknown or its producer
    /// has disconnected.
    fn find(&self, session: SessionId) -> Option<SessionFacts>;

    /// Attaches to a session. None if the session has ended since it was found.
    fn attach(&self, session: SessionId, seek: Seek) -> Option<Self::Session>;

    /// An id for a new viewer, which must not be guessable.
    fn next_viewer(&self) -> ViewerId;

    /// Sets whether sessions that are added or removed are reported, as
    /// [`Sessions`](crate::server::Change::Sessions).
    fn set_subscribed(&self, on: bool);

    /// Sets whether beacons of subscribed streams are reported, as other changes are. Initially
    /// they are. After this has returned, [`ahead`](Stream::ahead) includes all beacons that were
    /// not reported.
    fn set_beacon_interest(&self, on: bool);
}

/// What a relay may have to look up before a command is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// The list of sessions.
    Sessions,
    /// A session that a viewer attaches to, at this position.
    Session(SessionId, Seek),
}

impl Awaited {
    /// What a command may have to wait for.
    pub(crate) fn by(command: &Command) -> Option<Self> {
        match command {
            Command::ListSessions => Some(Self::Sessions),
            Command::AttachSession(attach) => {
                let seek = Seek::from_code(attach.seek).ok()?;
                Some(Self::Session(attach.session, seek))
            }
            _ => None,
        }
    }
}

/// The properties of a session that attaching depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFacts {
    /// Whether the session has a live timer.
    pub is_live: bool,
    /// Format of its trace.
    pub trace_format: TraceFormat,
}

/// A session that a viewer is attached to.
pub trait Session {
    /// The viewer's position in a stream of packets.
    type Stream: Stream;
    /// The viewer's position in a metadata stream.
    type Metadata: Metadata;

    /// Whether there are streams that [`new_streams`](Self::new_streams) has not given.
    fn has_new_streams(&self) -> bool;

    /// The streams that have not been given before, in the order of their publication. The metadata
    /// stream of a trace is given together with the trace's first streams, or before.
    fn new_streams(&mut self) -> Vec<NewStream<Self::Stream, Self::Metadata>>;

    /// Whether the session is rotating to another chunk, so that its streams cannot be read now.
    fn is_rotating(&self) -> bool;

    /// Whether the producer has disconnected, so that no streams will be added.
    fn is_over(&self) -> bool;

    /// Sets whether new streams and the end of the session are reported, as
    /// [`Session`](crate::server::Change::Session). Initially they are not.
    fn set_subscribed(&mut self, on: bool);

    /// Notes that the viewer needs the session no more: it detaches, or has been told that it has
    /// read everything. A session that is dropped before that has lost its viewer's connection.
    fn leave(&mut self);
}

/// A new stream, with the viewer's position in it.
#[derive(Debug)]
pub struct NewStream<S, M> {
    /// The record that announces the stream.
    pub record: StreamRecord,
    /// The viewer's position in the stream.
    pub position: Position<S, M>,
}

/// A viewer's position in a stream of either sort.
#[derive(Debug)]
pub enum Position<S, M> {
    /// Position in a stream of packets.
    Packets(S),
    /// Position in a metadata stream.
    Metadata(M),
}

/// A viewer's position in a stream of packets.
pub trait Stream {
    /// Bytes of the stream that can be read.
    type Packet;

    /// Returns the next packet and moves past it, or says why there is none.
    fn next(&mut self) -> Next;

    /// Returns what [`next`](Self::next) would give, without moving.
    fn ahead(&self) -> Ahead;

    /// Whether a part of a packet that [`next`](Self::next) does not give yet has arrived, so that
    /// it probably will soon.
    fn is_arriving(&self) -> bool;

    /// Sets whether changes of what is [`ahead`](Self::ahead) are reported, as
    /// [`Stream`](crate::server::Change::Stream). Initially they are not.
    fn set_subscribed(&mut self, on: bool);

    /// The class of the stream. None before the first index or beacon.
    fn class(&self) -> Option<ClassId>;

    /// The bytes of a packet, `len` from `offset` on. None unless all of them belong to packets
    /// that were given by [`next`](Self::next). They are available in the tracefile of the last
    /// index, and in older tracefiles whose last given packet has not been requested.
    fn packet(&self, offset: Bytes, len: u32) -> Option<Self::Packet>;
}

/// The result of moving a position in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next packet of the stream.
    Packet {
        /// Offset in bytes from the beginning of the stream, which is unique over all its
        /// tracefiles.
        offset: Bytes,
        /// The index of the packet.
        index: PacketIndex,
    },
    /// There is no packet that the viewer may be given now. No event before `until` will follow.
    Quiet {
        /// Time of the last beacon, in cycles. None if there was none.
        until: Option<Timestamp>,
    },
    /// The stream is over: no packets will arrive.
    Over,
}

/// The packets that there are from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Packets, by their number from the beginning of the stream.
    Packets {
        /// Number of the next packet.
        position: u64,
        /// Number of the first packet that has not arrived; greater than `position`.
        end: u64,
    },
    /// Packets that the viewer may not be given before other streams are announced to it, which is
    /// not possible yet. When it is, that is reported as a change of the session.
    Withheld,
    /// No packet that the viewer may be given now, as with [`Next::Quiet`].
    Quiet {
        /// Time of the last beacon, in cycles. None if there was none.
        until: Option<Timestamp>,
    },
    /// The stream is over.
    Over,
}

/// A viewer's position in a metadata stream.
pub trait Metadata {
    /// Whether [`read`](Self::read) would give any bytes.
    fn has_unread(&self) -> bool;

    /// Appends metadata that has not been read, all or a piece of it, and moves past it. A piece
    /// ends inside of what the producer sent at once only if the rest can be read at once.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&mut self, to: &mut BytesMut) -> std::io::Result<()>;

    /// Whether no more metadata will arrive.
    fn is_over(&self) -> bool;

    /// Sets whether new metadata is reported, as [`Stream`](crate::server::Change::Stream).
    /// Initially it is not.
    fn set_subscribed(&mut self, on: bool);
}
