//! Failures of a connection to a relay, and their consequences.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use relay_proto::producer::ProducerError;
use relay_proto::{CommandCode, Reply};
use thiserror::Error;
use transport::error::TransportError;
use transport::fault::TlsFault;

use super::endpoint_address::EndpointAddress;

/// A connection to a relay has failed.
#[derive(Debug, Error)]
pub(crate) enum UplinkError {
    #[error("cannot connect to {to}: {source}")]
    Connect {
        to: EndpointAddress,
        source: io::Error,
    },
    #[error("cannot connect to {to}: no answer within {} s", within.as_secs())]
    ConnectTimeout {
        to: EndpointAddress,
        within: Duration,
    },
    #[error("cannot encrypt the connection: {}", with_sources(.0))]
    Certificates(Box<TransportError>),
    #[error("the port is encrypted: the URL of the relay must begin with nets:// or tls://")]
    EncryptedPort,
    #[error("connection lost: {0}")]
    Lost(#[from] io::Error),
    #[error("the relay has closed the {connection} connection")]
    ConnectionClosed { connection: &'static str },
    #[error(
        "the relay has closed the control connection at once: producers use port 5342 unless --control-port of the relay names another; 5343 is for their data, 5344 for viewers; or the relay refuses it, as its log says"
    )]
    NotControlPort,
    #[error("the relay has not replied to {command:?} within {} s", within.as_secs())]
    ReplyTimeout {
        command: CommandCode,
        within: Duration,
    },
    #[error("the relay refuses {command:?}: {why}")]
    Refused { command: CommandCode, why: String },
    #[error("the relay refuses the session {name:?}: {why}")]
    SessionRefused { name: String, why: String },
    #[error("the directory of the session {name:?} on the relay has another recording")]
    DirectoryInUse { name: String },
    #[error("the relay speaks protocol 2.{minor}; 2.11 or later is needed")]
    TooOld { minor: u32 },
    #[error(transparent)]
    Protocol(#[from] ProducerError),
    #[error("{what} {name:?} cannot be a file name on the relay")]
    Name { what: &'static str, name: String },
    #[error("more than {max} bytes of metadata")]
    TooMuchMetadata { max: usize },
    #[error("the relay has closed stream {channel:?} before its last packet")]
    ClosedEarly { channel: String },
    #[error("a step names {what} that has not been added")]
    Unknown { what: String },
}

/// The consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The connection is closed; the next one may succeed.
    Reconnect,
    /// The session is given up: the next connection would fail in the same way.
    GiveUp,
}

impl UplinkError {
    /// Returns the consequence of the failure. This is the only place that decides it.
    pub(super) fn consequence(&self) -> Consequence {
        match self {
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Certificates(_)
            | Self::EncryptedPort
            | Self::Lost(_)
            | Self::ConnectionClosed { .. }
            | Self::NotControlPort
            | Self::ReplyTimeout { .. }
            | Self::Refused { .. }
            | Self::DirectoryInUse { .. } => Consequence::Reconnect,
            // The bytes are not a reply: the peer is not a relay, or its byte stream is corrupt.
            Self::Protocol(
                ProducerError::Unasked { .. }
                | ProducerError::Malformed { .. }
                | ProducerError::NotNow { .. },
            ) => Consequence::Reconnect,
            Self::Protocol(ProducerError::Incompatible { .. } | ProducerError::Http)
            | Self::SessionRefused { .. }
            | Self::TooOld { .. }
            | Self::Name { .. }
            | Self::TooMuchMetadata { .. }
            | Self::ClosedEarly { .. }
            | Self::Unknown { .. } => Consequence::GiveUp,
        }
    }

    /// Whether another relay may take a session that this one refuses for good.
    pub(super) fn is_of_one_relay(&self) -> bool {
        let is_refused = matches!(self, Self::SessionRefused { .. } | Self::TooOld { .. });
        let is_incompatible = matches!(
            self,
            Self::Protocol(ProducerError::Incompatible { .. } | ProducerError::Http)
        );
        is_refused || is_incompatible || self.is_refused_by_tls()
    }

    /// Whether the connection failed by certificates or by TLS against plain text, and every other
    /// one would until files or options change.
    pub(super) fn is_refused_by_tls(&self) -> bool {
        match self {
            Self::Certificates(_) | Self::EncryptedPort => true,
            Self::Lost(error) | Self::Connect { source: error, .. } => {
                TlsFault::of(error).is_some_and(TlsFault::is_permanent)
            }
            _ => false,
        }
    }

    pub(super) fn refused(command: CommandCode, reply: &Reply) -> Self {
        let why = match reply {
            Reply::Ended(code) | Reply::ChunkClosed { code, .. } => code.to_string(),
            Reply::StreamAdded(added) => added.code.to_string(),
            Reply::StreamOpened(opened) => opened.code.to_string(),
            Reply::Position(position) => position.code.to_string(),
            Reply::SessionCreated { code, .. } => code.to_string(),
            Reply::Configuration(configuration) => configuration.code.to_string(),
            Reply::PendingUnknown => "unknown stream".to_owned(),
            other => format!("{other:?}"),
        };
        Self::Refused { command, why }
    }
}

/// Returns an error of certificates and its cause in one line.
fn with_sources(error: &TransportError) -> String {
    match error.source() {
        None => error.to_string(),
        Some(cause) => format!("{error}: {cause}"),
    }
}
