//! The sources of packets: sessions of a relay or of an archive, and directories.
//!
//! A source that grows while it is watched (a session, a directory that is being written) runs
//! beside the main thread and sends [`SourceEvent`]s through a channel, in the order in which they
//! must be handled.
//!
//! Read in this order; each module uses only those before it: `target` (what users name), `error`,
//! `relay_selector` (which relay of a list is next),
//! `source_handle`, `spill`, `budget`, `packet` and `backlog` (the memory that packets take),
//! `metadata_piece`, `connection`, `push` and `list` (commands to a relay and their replies),
//! `relay_options`, `read_position`, `shown_trace`, `resume_state`, `relay_session` and `relay` (a
//! relay as a source), `follow` (a directory as a source), `archive` (an archive as a source).

pub mod archive;
pub mod backlog;
mod budget;
pub mod connection;
mod error;
pub mod follow;
pub mod list;
mod metadata_piece;
mod packet;
mod push;
mod read_position;
pub mod relay;
mod relay_options;
pub mod relay_selector;
mod relay_session;
mod resume_state;
mod shown_trace;
mod source_handle;
mod spill;
pub mod target;

use std::sync::atomic::{AtomicU64, Ordering};

use ctf::model::Uuid;

pub use backlog::Backlog;
pub use budget::{MAX_MEMORY_BYTES, MemoryBudget, Reservation};
pub use error::AttachError;
pub use metadata_piece::MetadataPiece;
pub use packet::Packet;
pub use source_handle::SourceHandle;

/// A trace that a source has announced. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceKey(pub u64);

/// A stream that a source has announced. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

impl SourceEvent {
    /// The trace that more is declared of.
    #[must_use]
    pub fn metadata_of(&self) -> Option<TraceKey> {
        match self {
            Self::Metadata { trace, .. } => Some(*trace),
            _ => None,
        }
    }

    /// The stream that has come after others had begun, and its trace.
    #[must_use]
    pub fn newcomer(&self) -> Option<(StreamKey, TraceKey)> {
        match self {
            Self::Stream {
                stream,
                trace,
                is_newcomer: true,
                ..
            } => Some((*stream, *trace)),
            _ => None,
        }
    }
}

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

impl TraceKey {
    /// A key that no other trace or stream has.
    #[must_use]
    pub fn fresh() -> Self {
        // Only that numbers differ matters, not their order between threads.
        Self(NEXT_KEY.fetch_add(1, Ordering::Relaxed))
    }
}

impl StreamKey {
    /// A key that no other trace or stream has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(NEXT_KEY.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event that a source reports to the main thread. A trace is announced before its streams, a
/// stream before its packets, and metadata before the first packet that needs it.
#[derive(Debug)]
pub enum SourceEvent {
    /// A trace has appeared.
    Trace {
        /// The key of the trace in all further events.
        trace: TraceKey,
        /// The trace's name for users: for a session `HOST/SESSION` and the path of the trace in
        /// it.
        name: String,
        /// The session's name for users: `HOST/SESSION`. Absent for a directory, which does not say
        /// it.
        session: Option<String>,
    },
    /// More metadata of a trace: whole packets, declarations or fragments or pieces of them.
    Metadata {
        /// The trace that the metadata is of.
        trace: TraceKey,
        /// The bytes as the relay sent them, or as they lie in the file.
        bytes: MetadataPiece,
    },
    /// A stream has appeared.
    Stream {
        /// The key of the stream in all further events.
        stream: StreamKey,
        /// The trace that the stream is of.
        trace: TraceKey,
        /// The stream's name for users: its path and channel name.
        name: String,
        /// The packets of the stream that the reader still holds: see [`Backlog`].
        backlog: Backlog,
        /// Whether the stream has come after the reader had begun with others: they do not wait for
        /// long until something of this one arrives.
        is_newcomer: bool,
    },
    /// A whole packet has arrived.
    Packet {
        /// The stream that the packet is of.
        stream: StreamKey,
        /// The packet, with header, context and padding.
        packet: Packet,
    },
    /// No event from before this time will arrive on the stream.
    Watermark {
        /// The stream that the watermark is of.
        stream: StreamKey,
        /// The watermark, in cycles of the stream's clock.
        until: u64,
    },
    /// Whether the events of other streams wait for this one. They do from its beginning, and no
    /// longer when its relay has been gone for long.
    StreamHold {
        /// The stream for which others wait, or not.
        stream: StreamKey,
        /// Whether the others wait for it.
        is_holding: bool,
    },
    /// No packet will arrive on the stream.
    StreamEnd {
        /// The stream that has ended.
        stream: StreamKey,
    },
    /// All that a relay had at first has been handed over: what comes from here on is new. Only if
    /// the options want it.
    CaughtUp,
    /// No further metadata and no further stream will be announced for the trace.
    TraceEnd {
        /// The trace that has ended.
        trace: TraceKey,
    },
    /// Something that users should know and that is no failure: a session has appeared or ended, a
    /// relay has gone away and is tried again.
    Notice(String),
    /// Something could not be read: a session that the target names, a packet, the rest of what was
    /// followed. The source continues; the exit status of the program says so.
    Missing(String),
    /// The source has failed and ends; what it announced has ended with it.
    Failed(String),
    /// The source has ended without an error.
    Done,
}

/// A trace as sinks know it, besides its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceInfo {
    /// The key of the trace, which no other trace of the run has.
    pub key: TraceKey,
    /// The trace's name for users.
    pub name: String,
    /// The UUID in the trace's metadata, if any.
    pub uuid: Option<Uuid>,
}

/// A stream as sinks know it, besides its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// The key of the stream, which no other stream of the run has.
    pub key: StreamKey,
    /// The stream's name for users: its path.
    pub name: String,
    /// The number of its stream class.
    pub class: u64,
    /// The number of the stream in its class. Absent if it has none.
    pub id: Option<u64>,
}
