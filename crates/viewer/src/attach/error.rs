//! The errors of following a relay.

use std::io;
use std::time::Duration;

use thiserror::Error;
use transport::error::TransportError;
use transport::fault::TlsFault;
use viewer_proto::client::ClientError;
use wire::{StreamId, TraceId};

/// An error that ends the connection to a relay.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The name of the host cannot be resolved.
    #[error("cannot resolve host: {host}")]
    Resolve {
        /// The name of the host.
        host: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The host has no address of the family that was asked for.
    #[error("cannot resolve host: {host}: no IPv{family} address")]
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
    /// The target is encrypted, and no certificates are given.
    #[error("nets:// needs --tls-ca FILE, with the CA of the relay's certificate")]
    NoCertificates,
    /// A certificate cannot be used.
    #[error("cannot encrypt the connection")]
    Certificates(#[source] Box<TransportError>),
    /// The relay's port is encrypted, and the target is not.
    #[error("the relay's port is encrypted: the target must begin with nets://")]
    EncryptedPort,
    /// The relay hung up on `CONNECT`, which is how relays refuse a version.
    #[error(
        "the relay closed the connection at once: viewers use port 5344 unless --live-port of the relay names another, and 5342 and 5343 are for producers; a relay of another version closes it, too"
    )]
    Refused,
    /// The relay closed the connection.
    #[error("the relay closed the connection")]
    HungUp,
    /// The connection was lost.
    #[error("lost the connection to the relay")]
    Lost(#[source] io::Error),
    /// The relay has not answered for this long.
    #[error("no reply from the relay for {} s", .0.as_secs())]
    Silent(Duration),
    /// The relay broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ClientError),
    /// The reply is another command's.
    #[error("protocol error: the reply is to another command")]
    OtherReply,
    /// The relay does not let this connection attach to sessions.
    #[error("cannot create a viewer session: refused by the relay")]
    NoViewerSession,
    /// The relay refuses to attach to a session that it has listed.
    #[error("cannot attach to session {session}: {status}")]
    Attach {
        /// The session's name for users.
        session: String,
        /// The status in the relay's reply.
        status: String,
    },
    /// The relay says of a stream that it has announced that there is none.
    #[error("cannot get the next packet of {stream}: {status}")]
    Index {
        /// The stream whose next packet was asked for.
        stream: StreamId,
        /// The status in the relay's reply.
        status: String,
    },
    /// The relay sends no bytes of a packet that it says it sends.
    #[error("protocol error: {stream}: a packet without bytes")]
    EmptyPacket {
        /// The stream that the packet is of.
        stream: StreamId,
    },
    /// The relay announces a stream twice.
    #[error("protocol error: the relay announces {stream} twice")]
    StreamTwice {
        /// The stream that is announced twice.
        stream: StreamId,
    },
    /// The relay announces two metadata streams of a trace.
    #[error("protocol error: the relay announces two metadata streams of {trace}")]
    MetadataTwice {
        /// The trace of both metadata streams.
        trace: TraceId,
    },
    /// The relay has no such session, and the options demand one. The text suggests others.
    #[error("{0}")]
    NoSession(String),
    /// The relay does not list what was followed at another one.
    #[error("the relay does not have the sessions that were followed")]
    NotHere,
    /// Something that was followed is no longer to be had: what is missing has been reported.
    #[error("not everything could be read after the connection was lost")]
    Incomplete,
    /// The receiver of the events has been dropped.
    #[error("the receiver of the events has been dropped")]
    ReceiverGone,
}

impl AttachError {
    /// Whether another relay of a list may do better.
    #[must_use]
    pub(super) fn may_be_of_one_relay(&self) -> bool {
        !matches!(self, Self::Incomplete | Self::ReceiverGone)
    }

    /// Whether a later attempt may succeed: the relay was not there.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        if let Self::Lost(source) | Self::Connect { source, .. } = self
            && TlsFault::of(source).is_some_and(TlsFault::is_permanent)
        {
            // A wrong certificate is not right at the next attempt.
            return false;
        }
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Connect { .. }
                | Self::Refused
                | Self::HungUp
                | Self::Lost(_)
                | Self::Silent(_)
                | Self::NotHere
        )
    }
}
