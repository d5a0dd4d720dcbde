//! Errors of packets, indexes and rotations, and the cost of each.

use thiserror::Error;
use wire::{Bytes, SeqNum, StreamId};

use super::index_joiner::JoinError;
use crate::limits::MAX_PACKET_BYTES;
use crate::store::StoreError;
use crate::store::fault::FaultKind;

/// The reason why a packet, index or rotation is rejected, or cannot be written.
#[derive(Debug, Error)]
pub enum IngestError {
    /// The header names a stream that does not exist or takes no packets.
    #[error("{0}: unknown, or takes no packets")]
    UnknownStream(StreamId),
    /// The stream is of another session: a data connection carries the streams of one.
    #[error("{0}: belongs to another session than the packets before")]
    OtherSession(StreamId),
    /// The connection comes from neither the address of its session's control connection nor that
    /// of its first data connection.
    #[error(
        "{0}: data connection rejected: its address is neither that of the control connection nor that of the first data connection"
    )]
    Stranger(StreamId),
    /// The packet is longer than [`MAX_PACKET_BYTES`].
    #[error("{stream}: {seq} is too long: {size} bytes, the maximum is {MAX_PACKET_BYTES}")]
    TooLong {
        /// Stream of the packet.
        stream: StreamId,
        /// Number of the packet.
        seq: SeqNum,
        /// Bytes of the packet, padding included.
        size: u64,
    },
    /// The number of the packet is 2^64-1, which means "none".
    #[error("{0}: packet without a number")]
    Unnumbered(StreamId),
    /// The packet has no bytes, and the session is resumable: without an index it could not be
    /// counted.
    #[error("{stream}: {seq} is empty")]
    Empty {
        /// Stream of the packet.
        stream: StreamId,
        /// Number of the packet.
        seq: SeqNum,
    },
    /// A packet with this number has arrived before and was not given up.
    #[error("{stream}: {seq} came twice")]
    Twice {
        /// Stream of the packet.
        stream: StreamId,
        /// Number of the packet.
        seq: SeqNum,
    },
    /// Index and packet disagree about the length of the packet.
    #[error("{stream}: {seq} has {packet} bytes, by its index {index}")]
    Size {
        /// Stream of the packet.
        stream: StreamId,
        /// Number of the packet.
        seq: SeqNum,
        /// Bytes of the packet.
        packet: u64,
        /// Length by the index, in bytes.
        index: u64,
    },
    /// The index joiner is full, or has this half of the packet already.
    #[error("{stream}: {source}")]
    Pending {
        /// Stream of the packet or index.
        stream: StreamId,
        /// Reason of the index joiner.
        source: JoinError,
    },
    /// The stream has been closed, or its session stopped.
    #[error("{stream}: {what} after the stream {state}")]
    NotOpen {
        /// Stream for which something has arrived.
        stream: StreamId,
        /// Noun of what arrived: "a packet", "an index", "a rotation".
        what: &'static str,
        /// Verb of what happened to the stream before: "was closed", "left its chunk".
        state: &'static str,
    },
    /// The stream has not completed its previous rotation.
    #[error("{0}: rotation rejected: the stream is on its way to another chunk already")]
    Rotating(StreamId),
    /// A file could not be written.
    #[error("{stream}: {source}")]
    Store {
        /// Stream whose file could not be written.
        stream: StreamId,
        /// File, operation and error of the system.
        source: StoreError,
    },
}

/// The cost of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// Nothing is lost: the stream keeps what it could not write, and its producer is paused until
    /// that succeeds.
    PauseProducer,
    /// The packet, index or command is rejected: a data connection closes and its session fails,
    /// and a command is answered with an error.
    Reject,
}

/// Policy for a full disk (`--on-disk-full`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiskFullPolicy {
    /// The producer is paused until the disk has space.
    #[default]
    Pause,
    /// The session of the producer ends.
    Close,
}

impl DiskFullPolicy {
    /// The cost of a fault of a file.
    #[must_use]
    pub fn consequence(self, fault: FaultKind) -> Consequence {
        match fault {
            FaultKind::Full | FaultKind::Quota if self == Self::Pause => Consequence::PauseProducer,
            // Whatever the policy: the shortage passes as soon as some connection or file is
            // closed, and is no reason to end sessions.
            FaultKind::Descriptors => Consequence::PauseProducer,
            FaultKind::Full
            | FaultKind::Quota
            | FaultKind::Device
            | FaultKind::TooLarge
            | FaultKind::Forbidden
            | FaultKind::Other => Consequence::Reject,
        }
    }
}

impl IngestError {
    /// The cost of the failure. Faults of files are decided by [`DiskFullPolicy::consequence`], all
    /// others here.
    #[must_use]
    pub fn consequence(&self, when_full: DiskFullPolicy) -> Consequence {
        match self {
            Self::Store { source, .. } => when_full.consequence(source.kind()),
            Self::UnknownStream(_)
            | Self::OtherSession(_)
            | Self::Stranger(_)
            | Self::TooLong { .. }
            | Self::Unnumbered(_)
            | Self::Empty { .. }
            | Self::Twice { .. }
            | Self::Size { .. }
            | Self::Pending { .. }
            | Self::NotOpen { .. }
            | Self::Rotating(_) => Consequence::Reject,
        }
    }
}

/// An error with its byte position in a data connection.
#[derive(Debug, Error)]
#[error("after {at} of the connection: {source}")]
pub struct PositionedError {
    /// Number of bytes received on the connection before.
    pub at: Bytes,
    /// Error at that position.
    pub source: IngestError,
}
