//! Where packets come from: sessions of a relay, and directories.
//!
//! A source that goes on while it is watched (a session, a directory that is being written) runs
//! beside the main thread and sends [`SourceEvent`]s through a channel, in the order in which they must
//! be handled.

pub mod backlog;
mod budget;
mod connection;
mod error;
pub mod follow;
pub mod list;
mod packet;
mod push;
pub mod relay;
mod relay_session;
mod resume_state;
mod spill;
pub mod target;

use std::sync::atomic::{AtomicU64, Ordering};

use ctf::model::Uuid;

pub use backlog::Backlog;
pub use budget::{MAX_PACKET_BYTES, MemoryBudget, Reservation};
pub use error::AttachError;
pub use packet::Packet;

/// A trace that a source has announced. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceKey(pub u64);

/// A stream that a source has announced. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

static NEXT_KEY: AtomicU64 = AtomicU64::new(0);

impl TraceKey {
    /// One that no other trace has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(NEXT_KEY.fetch_add(1, Ordering::Relaxed))
    }
}

impl StreamKey {
    /// One that no other stream has.
    #[must_use]
    pub fn fresh() -> Self {
        Self(NEXT_KEY.fetch_add(1, Ordering::Relaxed))
    }
}

/// An event that a source reports to the main thread. A trace is announced before its streams, a stream before its packets, and
/// metadata before the first packet that needs it.
#[derive(Debug)]
pub enum SourceEvent {
    /// A trace has appeared.
    Trace {
        /// Its key from now on.
        trace: TraceKey,
        /// As users know it: for a session `HOST/SESSION` and the path of the trace in it.
        name: String,
    },
    /// More metadata of a trace: whole packets, declarations or fragments or pieces of them.
    Metadata {
        /// Of which trace.
        trace: TraceKey,
        /// As the relay sent it, or as it lies in the file.
        bytes: Vec<u8>,
    },
    /// A stream has appeared.
    Stream {
        /// Its key from now on.
        stream: StreamKey,
        /// Of which trace.
        trace: TraceKey,
        /// As users know it: its path and channel name.
        name: String,
        /// How many of its packets the reader still holds: see [`Backlog`].
        backlog: Backlog,
    },
    /// A whole packet.
    Packet {
        /// Of which stream.
        stream: StreamKey,
        /// With header, context and padding.
        packet: Packet,
    },
    /// Nothing before this time will come on the stream.
    Watermark {
        /// Which stream.
        stream: StreamKey,
        /// In cycles of its clock.
        until: u64,
    },
    /// Nothing further will come on the stream.
    StreamEnd {
        /// Which stream.
        stream: StreamKey,
    },
    /// No further metadata and no further stream will come of the trace.
    TraceEnd {
        /// Which trace.
        trace: TraceKey,
    },
    /// Something that users should know and that is no failure: a session has appeared or ended, a
    /// relay has gone away and is tried again.
    Notice(String),
    /// The source has failed and ends; what it announced has ended with it.
    Failed(String),
    /// The source has ended well: nothing further comes of it.
    Done,
}

/// What is known of a trace besides its metadata: whose events a sink is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceInfo {
    /// Its key.
    pub key: TraceKey,
    /// As users know it.
    pub name: String,
    /// From its metadata.
    pub uuid: Option<Uuid>,
}

/// What is known of a stream besides its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its key.
    pub key: StreamKey,
    /// As users know it: its path.
    pub name: String,
    /// Its class.
    pub class: u64,
    /// Its number in its class.
    pub id: Option<u64>,
}
