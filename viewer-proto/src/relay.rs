//! What a relay must know for a viewer to follow its sessions. Each viewer has its own position in
//! each stream: the values here hold them.

use bytes::BytesMut;
use wire::{Bytes, ClassId, PacketIndex, SessionId, Timestamp, ViewerId};

use crate::session::{ListedSession, Seek, TraceFormat};
use crate::stream::StreamRecord;

/// The relay, as a viewer sees it.
pub trait Relay {
    /// A session that this viewer is attached to. Dropping it detaches.
    type Session: Session;

    /// The sessions whose producers are connected, by number.
    fn sessions(&self) -> Vec<ListedSession>;

    /// What attaching depends on. `None` if there is no such session or its producer is gone.
    fn find(&self, session: SessionId) -> Option<SessionFacts>;

    /// Attaches. `None` if the session has gone since it was found.
    fn attach(&self, session: SessionId, seek: Seek) -> Option<Self::Session>;

    /// A number for a new connection, which nobody else can guess.
    fn next_viewer(&self) -> ViewerId;

    /// Whether sessions that come and go are to be reported, as
    /// [`Sessions`](crate::server::Change::Sessions).
    fn set_subscribed(&self, on: bool);

    /// Whether beacons are to be reported of the streams that this viewer listens to, as other
    /// changes are. At first they are. After this has returned, what is
    /// [`ahead`](Stream::ahead) has all beacons in it that were not reported.
    fn set_beacon_interest(&self, on: bool);
}

/// What attaching to a session depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionFacts {
    /// It has a live timer.
    pub is_live: bool,
    /// What its trace is written in.
    pub trace_format: TraceFormat,
}

/// A session that a viewer is attached to.
pub trait Session {
    /// Position in a stream of packets.
    type Stream: Stream;
    /// Position in a metadata stream.
    type Metadata: Metadata;

    /// Whether there are streams that [`new_streams`](Self::new_streams) has not given.
    fn has_new_streams(&self) -> bool;

    /// The streams that it has not given before, in the order in which they were published. The
    /// metadata stream of a trace comes with its first streams or before.
    fn new_streams(&mut self) -> Vec<NewStream<Self::Stream, Self::Metadata>>;

    /// Whether the recording is going over to another chunk, so that nothing can be said of its
    /// streams now.
    fn is_rotating(&self) -> bool;

    /// Whether the producer is gone, so that no streams will be added.
    fn is_over(&self) -> bool;

    /// Whether new streams and the end are to be reported, as
    /// [`Session`](crate::server::Change::Session). At first they are not.
    fn set_subscribed(&mut self, on: bool);
}

/// A stream and this viewer's position in it.
#[derive(Debug)]
pub struct NewStream<S, M> {
    /// What the viewer is told.
    pub record: StreamRecord,
    /// Its position.
    pub position: Position<S, M>,
}

/// A viewer's position in a stream of either sort.
#[derive(Debug)]
pub enum Position<S, M> {
    /// Packets.
    Packets(S),
    /// Metadata.
    Metadata(M),
}

/// A viewer's position in a stream of packets.
pub trait Stream {
    /// Where bytes of the stream can be read.
    type Packet;

    /// The next packet, which the position then moves past, or why there is none.
    fn next(&mut self) -> Next;

    /// What [`next`](Self::next) would find, without moving.
    fn ahead(&self) -> Ahead;

    /// Whether changes of what is [`ahead`](Self::ahead) are to be reported, as
    /// [`Stream`](crate::server::Change::Stream). At first they are not.
    fn set_subscribed(&mut self, on: bool);

    /// The class of the stream, once any index or beacon has told it.
    fn class(&self) -> Option<ClassId>;

    /// Bytes of a tracefile that an index pointed into, if they all belong to packets that were
    /// given. They can be had of the tracefile of the last index, and of those before it of which the
    /// last packet that was given has not been asked for.
    fn packet(&self, offset: Bytes, len: u32) -> Option<Self::Packet>;
}

/// What comes next in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A packet.
    Packet {
        /// Where it lies, counted from the stream's first byte: packets of all its tracefiles can be
        /// told from each other.
        offset: Bytes,
        /// What its index says.
        index: PacketIndex,
    },
    /// None now, or none that the viewer may be given now. No event from before `until` will come, if a
    /// beacon said so.
    Quiet {
        /// Time of the beacon.
        until: Option<Timestamp>,
    },
    /// None ever.
    Over,
}

/// What there is from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Packets, counted from 0 as long as the stream lives.
    Packets {
        /// The next one.
        position: u64,
        /// The first that has not come; more than `position`.
        end: u64,
    },
    /// Packets that the viewer may not be given before it is told of other streams, which it cannot be
    /// told of yet. That it may is reported as a change of the session.
    Withheld,
    /// As [`Next::Quiet`].
    Quiet {
        /// Time of the beacon.
        until: Option<Timestamp>,
    },
    /// None ever.
    Over,
}

/// A viewer's position in a metadata stream.
pub trait Metadata {
    /// Whether [`read`](Self::read) would give anything.
    fn has_unread(&self) -> bool;

    /// Appends what has not been read, all or a piece of it, and moves past it. Never ends inside
    /// of what the producer sent in one piece, unless more can be read at once.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&mut self, to: &mut BytesMut) -> std::io::Result<()>;

    /// Whether no more will come.
    fn is_over(&self) -> bool;

    /// Whether new metadata is to be reported, as [`Stream`](crate::server::Change::Stream). At
    /// first it is not.
    fn set_subscribed(&mut self, on: bool);
}
