//! Why a relay cannot be followed.

use std::io;
use std::time::Duration;

use thiserror::Error;
use viewer_proto::client::ClientError;
use wire::{StreamId, TraceId};

/// Why a relay cannot be asked, or not any longer.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Its name is not known.
    #[error("cannot find {host}")]
    Resolve {
        /// The name of the host.
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Its name is known, but not in the family of addresses that was asked for.
    #[error("{host} has no IPv{family} address")]
    NoAddress {
        /// The name of the host.
        host: String,
        /// The family that was asked for: 4 or 6.
        family: u8,
    },
    /// No connection to the relay can be made.
    #[error("cannot connect to {relay}")]
    Connect {
        /// The relay's host and port.
        relay: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The relay hung up on `CONNECT`, which is how relays refuse a version.
    #[error("the relay hung up at once: it may speak another version, or be no relay")]
    Refused,
    /// The relay closed the connection.
    #[error("the relay hung up")]
    HungUp,
    /// The connection was lost.
    #[error("lost the connection to the relay")]
    Lost(#[source] io::Error),
    /// The relay has not answered for this long.
    #[error("the relay has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// The relay broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ClientError),
    /// The reply is another command's.
    #[error("the reply is to another command")]
    OtherReply,
    /// The relay does not let this connection attach to sessions.
    #[error("the relay cannot take another viewer")]
    NoViewerSession,
    /// The relay refuses to attach to a session that it has listed.
    #[error("the relay refuses to let session {session} be followed: {status}")]
    Attach {
        /// The session's name for users.
        session: String,
        /// The status in the relay's reply.
        status: String,
    },
    /// The relay says of a stream that it has announced that there is none.
    #[error("the relay cannot tell the next packet of {stream}: {status}")]
    Index {
        /// The stream.
        stream: StreamId,
        /// The status in the relay's reply.
        status: String,
    },
    /// The relay sends no bytes of a packet that it says it sends.
    #[error("the relay sends nothing of a packet of {stream}")]
    EmptyPacket {
        /// The stream that the packet is of.
        stream: StreamId,
    },
    /// The relay announces a stream twice.
    #[error("the relay announces {stream} twice")]
    StreamTwice {
        /// The stream that is announced twice.
        stream: StreamId,
    },
    /// The relay announces two metadata streams of a trace.
    #[error("the relay announces two metadata streams of {trace}")]
    MetadataTwice {
        /// The trace of both metadata streams.
        trace: TraceId,
    },
    /// There is no such session, and that is a failure.
    #[error("the relay has no live session {0}")]
    NoSession(String),
    /// The receiver of the events has been dropped.
    #[error("nobody listens")]
    ReceiverGone,
}

impl AttachError {
    /// Whether a later attempt may succeed: the relay was not there.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Connect { .. }
                | Self::Refused
                | Self::HungUp
                | Self::Lost(_)
                | Self::Silent(_)
        )
    }
}
