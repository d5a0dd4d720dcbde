//! What a session is, and what happens in one.

use std::time::Duration;

use bytes::Bytes;
use relay_proto::session::TraceFormat;
use wire::{ClassId, PacketIndex, Timestamp};

/// What a relay is told of a session when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDescription {
    /// As viewers ask for it.
    pub name: String,
    /// The traced host.
    pub host: String,
    /// Where the trace is wanted below the host's directory on the relay; empty: by the session's
    /// name and date.
    pub base_path: String,
    /// How often there is news of each stream. None: viewers cannot attach.
    pub live_timer: Option<Duration>,
    /// What the metadata is written in.
    pub trace_format: TraceFormat,
    /// Size in bytes at which the relay begins the next tracefile of a stream. 0: never.
    pub tracefile_size: u64,
    /// Tracefiles that the relay keeps of a stream. 0: all.
    pub tracefile_count: u64,
}

/// A trace of a session: streams that share metadata. Counted from 0 as they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceKey(pub u32);

/// A stream of a session. Counted from 0 as they are added, over all traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u32);

/// What happens next in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is a further trace, [`TraceKey`] the number of those before.
    AddTrace {
        /// Its directory below the session's, as in `ust/uid/1000/64-bit`.
        path: String,
    },
    /// There is a further stream, [`StreamKey`] the number of those before. Viewers are told with the
    /// first step that is another.
    AddStream {
        /// Its trace, which has been added.
        trace: TraceKey,
        /// Name of its tracefile.
        channel: String,
        /// Number of its class in the metadata.
        class: ClassId,
    },
    /// The next bytes of a trace's metadata, in any pieces. Before the packet that needs them.
    Metadata {
        /// Whose.
        trace: TraceKey,
        /// At least one byte.
        bytes: Bytes,
    },
    /// The next packet of a stream.
    Packet {
        /// Whose.
        stream: StreamKey,
        /// Header and all. What is missing up to the packet's size is zeros.
        bytes: Bytes,
        /// What viewers are told of it. Its size is that of the packet, not of `bytes`.
        index: PacketIndex,
    },
    /// Nothing will happen on a stream before that time. Not before its last packet ended.
    Beacon {
        /// Whose.
        stream: StreamKey,
        /// In cycles of the trace's clock.
        until: Timestamp,
    },
    /// Nothing will follow on a stream.
    CloseStream {
        /// Which.
        stream: StreamKey,
    },
}

impl Step {
    /// What a step without bytes is counted as: its place in the queue.
    const ENTRY_BYTES: usize = 128;

    /// Bytes that it takes while it waits.
    pub(super) fn weight(&self) -> usize {
        let content = match self {
            Self::AddTrace { path } => path.len(),
            Self::AddStream { channel, .. } => channel.len(),
            Self::Metadata { bytes, .. } | Self::Packet { bytes, .. } => bytes.len(),
            Self::Beacon { .. } | Self::CloseStream { .. } => 0,
        };
        content.saturating_add(Self::ENTRY_BYTES)
    }
}
