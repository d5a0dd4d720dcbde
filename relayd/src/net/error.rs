//! The reasons why the relay closes a connection, and what each costs.

use std::io;
use std::time::Duration;

use relay_proto::error::ControlError;
use thiserror::Error;
use viewer_proto::error::ViewerError;

use crate::ingest::error::PositionedError;
use crate::limits::{
    FILE_CALL_TIMEOUT, MAX_FILE_CALLS, MAX_FILE_CALLS_OF_SESSION, MAX_PENDING_PACKETS, MAX_REFUSALS,
};

/// Name of the timeout of the handshake.
pub(super) const HANDSHAKE: &str = "handshake";

/// The reason why the relay closes a connection.
#[derive(Debug, Error)]
pub(super) enum ConnectionError {
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    #[error("the peer speaks TLS, and this port does not")]
    EncryptedPeer,
    #[error("{name} timeout: message not complete within {} seconds", timeout.as_secs_f32())]
    ReadTimeout {
        name: &'static str,
        timeout: Duration,
    },
    #[error(
        "{other} timeout: {MAX_PENDING_PACKETS} {these} of a stream wait for {other} for {} seconds", timeout.as_secs_f32()
    )]
    NotJoined {
        /// Noun of what has arrived: "packets" or "indexes".
        these: &'static str,
        /// Noun of what is missing for these: "indexes" or "packets".
        other: &'static str,
        timeout: Duration,
    },
    #[error("write timeout: replies not read for {} seconds", .0.as_secs_f32())]
    WriteTimeout(Duration),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("too many commands rejected: {MAX_REFUSALS} are allowed")]
    TooManyRefusals,
    #[error(transparent)]
    Viewer(#[from] ViewerError),
    /// Nothing of the packet is in the replies.
    #[error("cannot read packet: {0}")]
    ReadPacket(io::Error),
    /// The viewer has been sent the packet's length, and would take any reply for its bytes.
    #[error("cannot read rest of packet: {0}")]
    ReadRestOfPacket(io::Error),
    #[error(
        "file calls hang for {} seconds: {MAX_FILE_CALLS_OF_SESSION} of the session's viewers or {MAX_FILE_CALLS} in all",
        FILE_CALL_TIMEOUT.as_secs()
    )]
    FileCallsHang,
    #[error("the rest of the session is in the archive: viewers find it when they connect again")]
    PartialSession,
    #[error(transparent)]
    Ingest(#[from] PositionedError),
    /// A stream of a QUIC connection is not one packet.
    #[error("malformed packet stream: {0}")]
    PacketStream(&'static str),
}

/// The cost of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The replies to all commands before are sent, with the error reply if there is one; then the
    /// connection is closed.
    ReplyAndClose,
    /// The connection is closed at once.
    Close,
    /// The connection is closed, and its session is aborted.
    AbortSession,
}

impl ConnectionError {
    /// The error that packets wait for their indexes for too long.
    pub(super) fn no_indexes(timeout: Duration) -> Self {
        let (these, other) = ("packets", "indexes");
        Self::NotJoined {
            these,
            other,
            timeout,
        }
    }

    /// The error that indexes wait for their packets for too long.
    pub(super) fn no_packets(timeout: Duration) -> Self {
        let (these, other) = ("indexes", "packets");
        Self::NotJoined {
            these,
            other,
            timeout,
        }
    }

    /// Whether the peer has not completed its handshake in time: such peers could fill the log.
    pub(super) fn is_handshake_timeout(&self) -> bool {
        matches!(self, Self::ReadTimeout { name, .. } if *name == HANDSHAKE)
    }

    /// The cost of the failure. Nothing else decides it.
    pub(super) fn consequence(&self) -> Consequence {
        match self {
            Self::Control(_) | Self::Viewer(_) | Self::ReadPacket(_) => Consequence::ReplyAndClose,
            Self::Lost(_)
            | Self::EncryptedPeer
            | Self::ReadTimeout { .. }
            | Self::NotJoined { .. }
            | Self::WriteTimeout(_)
            | Self::TooManyRefusals
            | Self::ReadRestOfPacket(_)
            | Self::FileCallsHang
            | Self::PartialSession
            | Self::PacketStream(_) => Consequence::Close,
            // Only the lengths in headers say where the next packet begins: the rest cannot be
            // decoded.
            Self::Ingest(_) => Consequence::AbortSession,
        }
    }
}
