//! What can be wrong with a packet or an index, and what it costs.

use thiserror::Error;
use wire::{Bytes, SeqNum, StreamId};

use super::backpressure::WhenFull;
use super::index_joiner::JoinError;

use crate::limits::MAX_PACKET_BYTES;
use crate::store::StoreError;

/// A packet or index that cannot be taken.
#[derive(Debug, Error)]
pub enum IngestError {
    /// No stream has this number, or none that takes packets.
    #[error("there is no {0} that takes packets")]
    UnknownStream(StreamId),
    /// A data connection is for the streams of one session.
    #[error("{0} belongs to another session than the packets before")]
    OtherSession(StreamId),
    /// It comes from elsewhere than its session's other connections.
    #[error(
        "packets of {0} come from neither where its session nor where its first ones came from"
    )]
    Stranger(StreamId),
    /// Too long for any reader.
    #[error("{stream}: {seq} has {size} bytes, {MAX_PACKET_BYTES} are allowed")]
    TooLong {
        /// The stream.
        stream: StreamId,
        /// The packet.
        seq: SeqNum,
        /// Its length.
        size: u64,
    },
    /// A number that says "none".
    #[error("{0}: a packet without a number")]
    Unnumbered(StreamId),
    /// The same number again.
    #[error("{stream}: {seq} came twice")]
    Twice {
        /// The stream.
        stream: StreamId,
        /// The packet.
        seq: SeqNum,
    },
    /// Index and packet disagree.
    #[error("{stream}: {seq} has {packet} bytes, its index says {index}")]
    Size {
        /// The stream.
        stream: StreamId,
        /// The packet.
        seq: SeqNum,
        /// Bytes of the packet.
        packet: u64,
        /// What the index says, in bytes.
        index: u64,
    },
    /// The index cannot be put together with a packet.
    #[error("{stream}: {source}")]
    Pending {
        /// The stream.
        stream: StreamId,
        /// What is wrong with it.
        source: JoinError,
    },
    /// The stream has been closed, or its session stopped.
    #[error("{stream}: {what} after the stream {state}")]
    NotOpen {
        /// The stream.
        stream: StreamId,
        /// What came.
        what: &'static str,
        /// What the stream did before.
        state: &'static str,
    },
    /// A stream goes over to one chunk at a time.
    #[error("{0} is on its way to another chunk already")]
    Rotating(StreamId),
    /// A file could not be written.
    #[error("{stream}: {source}")]
    Store {
        /// The stream.
        stream: StreamId,
        /// Which file, and what the system says.
        source: StoreError,
    },
}

/// What a failure costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing is lost: the stream keeps what it could not write, and its producer is paused until that succeeds.
    PauseProducer,
    /// What has come is refused: a data connection closes and its session fails, a command is answered with an error.
    Reject,
}

impl IngestError {
    /// What the failure costs. The only place that decides it, with [`WhenFull::consequence`] for files.
    #[must_use]
    pub fn consequence(&self, when_full: WhenFull) -> Consequence {
        match self {
            Self::Store { source, .. } => when_full.consequence(source.kind()),
            Self::UnknownStream(_)
            | Self::OtherSession(_)
            | Self::Stranger(_)
            | Self::TooLong { .. }
            | Self::Unnumbered(_)
            | Self::Twice { .. }
            | Self::Size { .. }
            | Self::Pending { .. }
            | Self::NotOpen { .. }
            | Self::Rotating(_) => Consequence::Reject,
        }
    }
}

/// Where in a connection something went wrong.
#[derive(Debug, Error)]
#[error("after {at} of the connection: {source}")]
pub struct At {
    /// Bytes that had come before.
    pub at: Bytes,
    /// What went wrong.
    pub source: IngestError,
}
