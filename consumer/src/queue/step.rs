//! The description of a session, and the steps that happen in it.

use std::time::Duration;

use bytes::Bytes;
use relay_proto::session::TraceFormat;
use wire::{ClassId, PacketIndex, Timestamp};

/// The properties of a session, which are sent to the relay when the session is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDescription {
    /// Name of the session, as viewers see it.
    pub name: String,
    /// Name of the traced host.
    pub host: String,
    /// Path of the trace below the host's directory on the relay. If empty, the relay makes a path
    /// from the session's name and creation time.
    pub base_path: String,
    /// Live timer: the interval of packets or beacons of each stream. If absent, the session is not
    /// live, and viewers cannot attach.
    pub live_timer: Option<Duration>,
    /// The format of the metadata.
    pub trace_format: TraceFormat,
    /// Size in bytes at which the relay begins the next tracefile of a stream. 0: no limit.
    pub tracefile_size: u64,
    /// Number of tracefiles that the relay keeps of a stream. 0: all.
    pub tracefile_count: u64,
}

/// What identifies a session at its relay, whatever connections and processes carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionIdentity {
    /// Id (UUID) of the process that has opened the session: random for each start.
    pub producer: [u8; 16],
    /// Number of the session in that process, from 0.
    pub id: u64,
    /// When the session was opened, in seconds since the epoch. Not unique.
    pub created: u64,
    /// Whether the session was read from the spool: an earlier process has opened it, and a relay
    /// may have a part of it.
    pub is_recovered: bool,
}

/// A trace of a session: streams that share metadata. Counted from 0 as they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceKey(pub u32);

/// A stream of a session. Counted from 0 as they are added, over all traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u32);

impl StreamKey {
    /// Returns the key of the stream that was added after `index` others.
    pub(crate) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// One thing that happens in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A trace is added. Its [`TraceKey`] is the number of traces before it.
    AddTrace {
        /// The directory of the trace below that of the session, such as `ust/uid/1000/64-bit`.
        path: String,
    },
    /// A stream is added. Its [`StreamKey`] is the number of streams before it. Streams are
    /// announced to viewers with the first step that is neither this nor [`Self::AddTrace`].
    AddStream {
        /// The trace, which must have been added before.
        trace: TraceKey,
        /// Name of its tracefiles.
        channel: String,
        /// Id of its stream class in the metadata.
        class: ClassId,
    },
    /// The next bytes of a trace's metadata, in pieces of any size, before the packet that needs
    /// them.
    Metadata {
        /// The trace that has the metadata.
        trace: TraceKey,
        /// The metadata; at least one byte.
        bytes: Bytes,
    },
    /// The next packet of a stream.
    Packet {
        /// The stream of the packet.
        stream: StreamKey,
        /// The packet with its header. Bytes that are missing up to the packet's size are zeros.
        bytes: Bytes,
        /// The index entry. Its packet size is that of the whole packet, not of `bytes`.
        index: PacketIndex,
    },
    /// A beacon: no event of the stream is before `until`, which is not before the end of its last
    /// packet.
    Beacon {
        /// The stream for which the beacon is.
        stream: StreamKey,
        /// The watermark, in cycles of the trace's clock.
        until: Timestamp,
    },
    /// Packets of a stream will not come: the spool had to drop them, or has lost them. The next
    /// packet of the stream, if any, has the number `before` or a higher one. Only the spool makes
    /// this step.
    Gap {
        /// The stream that lacks the packets.
        stream: StreamKey,
        /// Packets with lower numbers that have not been received will not come.
        before: u64,
        /// Number of packets that are lost by this gap.
        packets: u64,
    },
    /// The stream ends before its session. Packetizers leave all streams to the end of the session;
    /// spools that earlier versions have written have this step.
    CloseStream {
        /// The stream that ends.
        stream: StreamKey,
    },
}

impl Step {
    /// Bytes that each step counts besides its content: its entry in the queue.
    pub(crate) const ENTRY_BYTES: usize = 128;

    /// Returns the bytes that the step counts against the capacity of the queue.
    pub(crate) fn weight(&self) -> usize {
        let content = match self {
            Self::AddTrace { path } => path.len(),
            Self::AddStream { channel, .. } => channel.len(),
            Self::Metadata { bytes, .. } | Self::Packet { bytes, .. } => bytes.len(),
            Self::Beacon { .. } | Self::Gap { .. } | Self::CloseStream { .. } => 0,
        };
        content.saturating_add(Self::ENTRY_BYTES)
    }
}
