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
        /// Its name.
        host: String,
        /// Why.
        source: io::Error,
    },
    /// Its name is known, but not in the family of addresses that was asked for.
    #[error("{host} has no IPv{family} address")]
    NoAddress {
        /// Its name.
        host: String,
        /// 4 or 6.
        family: u8,
    },
    /// It cannot be reached.
    #[error("cannot connect to {relay}")]
    Connect {
        /// Its name and port.
        relay: String,
        /// Why.
        source: io::Error,
    },
    /// It hung up on `CONNECT`, which is how relays refuse a version.
    #[error("the relay hung up at once: it may speak another version, or be no relay")]
    Refused,
    /// It hung up.
    #[error("the relay hung up")]
    HungUp,
    /// The connection broke.
    #[error("lost the connection to the relay")]
    Lost(#[source] io::Error),
    /// It does not answer.
    #[error("the relay has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// It does not keep to the protocol.
    #[error(transparent)]
    Protocol(#[from] ClientError),
    /// The reply is another command's.
    #[error("the reply is to another command")]
    OtherReply,
    /// It lets nobody attach.
    #[error("the relay cannot take another viewer")]
    NoViewerSession,
    /// It refuses what it must not refuse.
    #[error("the relay refuses to let session {session} be followed: {status}")]
    Attach {
        /// As users know it.
        session: String,
        /// What it says.
        status: String,
    },
    /// It says of a stream that it has announced that there is none.
    #[error("the relay cannot tell the next packet of {stream}: {status}")]
    Index {
        /// The stream.
        stream: StreamId,
        /// What it says.
        status: String,
    },
    /// It sends none of a packet that it says it sends.
    #[error("the relay sends nothing of a packet of {stream}")]
    EmptyPacket {
        /// The stream.
        stream: StreamId,
    },
    /// It announces a stream twice.
    #[error("the relay announces {stream} twice")]
    StreamTwice {
        /// The stream.
        stream: StreamId,
    },
    /// It announces two metadata streams of a trace.
    #[error("the relay announces two metadata streams of {trace}")]
    MetadataTwice {
        /// The trace.
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
    /// Whether it may be otherwise when tried again: the relay was not there.
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
