//! The producer's end of a control connection: a state machine that encodes commands and decodes
//! their replies, in order.

use std::collections::VecDeque;

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field};

use crate::command::{CommandCode, ControlHeader};
use crate::metadata::SendMetadata;
use crate::reply::RESUME;
use crate::{Command, Minor, Reply, Version};

/// One control connection to a relay.
///
/// Any number of commands may be in flight; replies follow in their order. LTTng's own producers
/// send one at a time, but `lttng-relayd` answers several in order as well.
#[derive(Debug)]
pub struct Producer {
    /// The version that this end sends in VERSION.
    ours: Version,
    /// The agreed minor version. None before the reply to VERSION.
    minor: Option<Minor>,
    /// Commands without a reply so far, oldest first.
    awaited: VecDeque<CommandCode>,
    /// Whether the relay has offered the extensions.
    has_resume: bool,
}

/// A command that cannot be sent, or an error that ends the connection.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProducerError {
    /// The command is not allowed in the state of the connection, or the agreed version does not
    /// have it.
    #[error("cannot send {command:?}: {why}")]
    NotNow {
        /// The command to be sent.
        command: CommandCode,
        /// The rule that is broken.
        why: &'static str,
    },
    /// The relay has another major version.
    #[error("the relay speaks protocol {}.{}, not {}", .theirs.major, .theirs.minor, Version::OURS.major)]
    Incompatible {
        /// Version of the relay.
        theirs: Version,
    },
    /// The peer answers as a server of HTTP does.
    #[error(
        "the port speaks HTTP, like --http of the relay; producers use --control-port, 5342 by default"
    )]
    Http,
    /// The relay sent bytes while no command was in flight.
    #[error("the relay sent {bytes} bytes without a command")]
    Unasked {
        /// The number of bytes that were received.
        bytes: usize,
    },
    /// A reply cannot be decoded.
    #[error("malformed reply to {command:?}: {source}")]
    Malformed {
        /// The command that the reply answers.
        command: CommandCode,
        /// Error of the decoder.
        source: DecodeError,
    },
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            ours: Version::OURS,
            minor: None,
            awaited: VecDeque::new(),
            has_resume: false,
        }
    }
}

impl Producer {
    /// The agreed minor version. None before the reply to `VERSION`.
    #[must_use]
    pub fn minor(&self) -> Option<Minor> {
        self.minor
    }

    /// Whether the relay has offered the commands of [`resume`](crate::resume) and `GET_CLOCK`, in
    /// its reply to `GET_CONFIGURATION`.
    #[must_use]
    pub fn has_resume(&self) -> bool {
        self.has_resume
    }

    /// Number of commands in flight.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// The command that the next reply answers. None if no command is in flight.
    #[must_use]
    pub fn next_answered(&self) -> Option<CommandCode> {
        self.awaited.front().copied()
    }

    /// Encodes a command. Metadata is sent by [`send_metadata`](Self::send_metadata).
    ///
    /// # Errors
    /// If the peers have not agreed on a version that has the command.
    pub fn send(&mut self, command: &Command, to: &mut impl BufMut) -> Result<(), ProducerError> {
        let code = command.code();
        let not_now = |why| Err(ProducerError::NotNow { command: code, why });
        let minor = match (self.minor, code) {
            // VERSION has the same form in all versions: any number will do.
            (None, CommandCode::Version) if self.awaited.is_empty() => Minor(0),
            (_, CommandCode::Version) => return not_now("VERSION has been sent before"),
            (None, _) => return not_now("the relay has not answered VERSION"),
            (_, CommandCode::SendMetadata) => return not_now("metadata needs its text"),
            (Some(minor), _) if minor < code.since() => return not_now("the relay is too old"),
            _ if code.is_extension() && !self.has_resume => {
                return not_now("the relay has not offered the extension");
            }
            (Some(minor), _) => minor,
        };
        // The agreed version follows from this one and the reply.
        if let Command::Version(ours) = command {
            self.ours = *ours;
        }
        // Encoded first, because the header has its length.
        let mut payload = Vec::new();
        command.encode(minor, &mut payload);
        ControlHeader::new(code, payload.len() as u64).write(to);
        to.put_slice(&payload);
        self.awaited.push_back(code);
        Ok(())
    }

    /// Encodes the command that `text` follows. The caller sends the text itself, so that it is not
    /// copied. The command has no reply.
    ///
    /// # Errors
    /// If the peers have not agreed on a version, or the text is empty: a relay would close the
    /// connection.
    pub fn send_metadata(
        &mut self,
        metadata: SendMetadata,
        text: &[u8],
        to: &mut impl BufMut,
    ) -> Result<(), ProducerError> {
        let command = CommandCode::SendMetadata;
        let not_now = |why| Err(ProducerError::NotNow { command, why });
        if self.minor.is_none() {
            return not_now("the relay has not answered VERSION");
        }
        if text.is_empty() {
            return not_now("metadata needs its text");
        }
        // Without the text: it is in the caller's memory, and may be long.
        let size = SendMetadata::SIZE + text.len();
        ControlHeader::new(command, size as u64).write(to);
        metadata.write(to);
        Ok(())
    }

    /// Takes the next reply off the front of `input`, with the command that it answers. None if
    /// more bytes are needed.
    ///
    /// # Errors
    /// If the reply is invalid. The connection is to be closed.
    pub fn receive(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<(CommandCode, Reply)>, ProducerError> {
        // Before the next check: without bytes nothing has been sent that nobody asked for.
        if input.is_empty() {
            return Ok(None);
        }
        let Some(&command) = self.awaited.front() else {
            return Err(ProducerError::Unasked { bytes: input.len() });
        };
        if self.minor.is_none() && input.starts_with(b"HTTP") {
            return Err(ProducerError::Http);
        }
        let minor = self.minor.unwrap_or(Minor(0));
        let reply = Reply::decode(command, minor, input)
            .map_err(|source| ProducerError::Malformed { command, source })?;
        let Some(reply) = reply else { return Ok(None) };
        self.awaited.pop_front();
        // The relay replies its own version: both ends then use the lower one.
        if let Reply::Version(theirs) = reply {
            let minor = theirs.common(self.ours);
            self.minor = Some(minor.ok_or(ProducerError::Incompatible { theirs })?);
        }
        // Whatever else the relay offers: flags that are not known are ignored.
        if let Reply::Configuration(configuration) = &reply {
            self.has_resume = configuration.flags & RESUME != 0;
        }
        Ok(Some((command, reply)))
    }
}
