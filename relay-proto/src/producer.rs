//! The producer's end of a control connection: turns commands into bytes and bytes into the
//! replies they are owed, in order.

use std::collections::VecDeque;

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field};

use crate::command::{CommandCode, ControlHeader};
use crate::metadata::SendMetadata;
use crate::{Command, Minor, Reply, Version};

/// One control connection to a relay.
///
/// Any number of commands may be under way; replies come in their order. Real relays of LTTng are
/// only ever sent one at a time, but answer several in order as well.
#[derive(Debug)]
pub struct Producer {
    /// What this end has said, or will say, that it speaks.
    ours: Version,
    minor: Option<Minor>,
    awaited: VecDeque<CommandCode>,
}

/// Why a producer cannot send a command, or cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProducerError {
    /// The version is not agreed yet, or the agreed one does not have the command.
    #[error("{command:?} cannot be sent: {why}")]
    NotNow {
        /// The command.
        command: CommandCode,
        /// What is missing.
        why: &'static str,
    },
    /// The relay speaks another major version.
    #[error("the relay speaks protocol {}.{}, not {}", .theirs.major, .theirs.minor, Version::OURS.major)]
    Incompatible {
        /// What it speaks.
        theirs: Version,
    },
    /// The relay said something while nothing was asked.
    #[error("the relay sent {bytes} bytes that nothing asked for")]
    Unasked {
        /// How much.
        bytes: usize,
    },
    /// A reply that cannot be read.
    #[error("malformed reply to {command:?}: {source}")]
    Malformed {
        /// The command it should answer.
        command: CommandCode,
        /// What is wrong with it.
        source: DecodeError,
    },
}

impl Default for Producer {
    fn default() -> Self {
        Self {
            ours: Version::OURS,
            minor: None,
            awaited: VecDeque::new(),
        }
    }
}

impl Producer {
    /// What both ends speak, once the relay has answered `VERSION`.
    #[must_use]
    pub fn minor(&self) -> Option<Minor> {
        self.minor
    }

    /// Commands that have not been answered.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// The command that is answered next.
    #[must_use]
    pub fn next_answered(&self) -> Option<CommandCode> {
        self.awaited.front().copied()
    }

    /// Appends a command. Metadata goes by [`send_metadata`](Self::send_metadata).
    ///
    /// # Errors
    /// If the peers have not agreed on a version that has it.
    pub fn send(&mut self, command: &Command, to: &mut impl BufMut) -> Result<(), ProducerError> {
        let code = command.code();
        let not_now = |why| Err(ProducerError::NotNow { command: code, why });
        let minor = match (self.minor, code) {
            (None, CommandCode::Version) if self.awaited.is_empty() => Minor(0),
            (_, CommandCode::Version) => return not_now("it has been sent"),
            (None, _) => return not_now("the relay has not said which version it speaks"),
            (_, CommandCode::SendMetadata) => return not_now("it needs its text"),
            (Some(minor), _) if minor < code.since() => return not_now("the relay is too old"),
            (Some(minor), _) => minor,
        };
        if let Command::Version(ours) = command {
            self.ours = *ours;
        }
        let mut payload = Vec::new();
        command.encode(minor, &mut payload);
        header(code, payload.len() as u64).write(to);
        to.put_slice(&payload);
        self.awaited.push_back(code);
        Ok(())
    }

    /// Appends the command that `text` follows. The caller sends the text itself, so that it need
    /// not be copied. No reply will come.
    ///
    /// # Errors
    /// If the peers have not agreed on a version, or there is no text: a relay would hang up.
    pub fn send_metadata(
        &mut self,
        metadata: SendMetadata,
        text: &[u8],
        to: &mut impl BufMut,
    ) -> Result<(), ProducerError> {
        let command = CommandCode::SendMetadata;
        let not_now = |why| Err(ProducerError::NotNow { command, why });
        if self.minor.is_none() {
            return not_now("the relay has not said which version it speaks");
        }
        if text.is_empty() {
            return not_now("there is no text");
        }
        header(command, (SendMetadata::SIZE + text.len()) as u64).write(to);
        metadata.write(to);
        Ok(())
    }

    /// Takes the next reply off the front of `input`, with the command that it answers; `None` if
    /// more bytes must come first.
    ///
    /// # Errors
    /// If the connection cannot go on.
    pub fn receive(
        &mut self,
        input: &mut &[u8],
    ) -> Result<Option<(CommandCode, Reply)>, ProducerError> {
        if input.is_empty() {
            return Ok(None);
        }
        let Some(&command) = self.awaited.front() else {
            return Err(ProducerError::Unasked { bytes: input.len() });
        };
        let minor = self.minor.unwrap_or(Minor(0));
        let reply = Reply::decode(command, minor, input)
            .map_err(|source| ProducerError::Malformed { command, source })?;
        let Some(reply) = reply else { return Ok(None) };
        self.awaited.pop_front();
        if let Reply::Version(theirs) = reply {
            let minor = theirs.common(self.ours);
            self.minor = Some(minor.ok_or(ProducerError::Incompatible { theirs })?);
        }
        Ok(Some((command, reply)))
    }
}

fn header(command: CommandCode, data_size: u64) -> ControlHeader {
    ControlHeader {
        circuit: 0,
        data_size,
        code: command.code(),
        code_version: 0,
    }
}
