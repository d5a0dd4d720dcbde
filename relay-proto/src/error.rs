//! Protocol errors of a producer, for which the relay closes its control connection.

use thiserror::Error;
use wire::DecodeError;

use crate::Version;
use crate::command::CommandCode;
use crate::relay::Refusal;

/// An error of a control connection, which is closed after the replies to earlier commands and the
/// error reply.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The producer has another major version.
    #[error("the producer speaks protocol {}.{}, not {}", .theirs.major, .theirs.minor, Version::OURS.major)]
    Incompatible {
        /// Version of the producer.
        theirs: Version,
    },
    /// A command has an unknown code, or one that the agreed version does not have.
    #[error("unknown command {code}{}", port_hint(*code))]
    UnknownCommand {
        /// The code that was received.
        code: u32,
    },
    /// A command is not allowed in the state of the connection.
    #[error("{command:?} out of place: {why}")]
    OutOfPlace {
        /// The command that was received.
        command: CommandCode,
        /// The rule that is broken.
        why: &'static str,
    },
    /// A command announces more bytes than allowed.
    #[error("{command:?} announces {announced} bytes, {max} are allowed")]
    TooLong {
        /// The command that was received.
        command: CommandCode,
        /// Announced size in bytes.
        announced: u64,
        /// Maximum size in bytes.
        max: u64,
    },
    /// A command cannot be decoded.
    #[error("malformed {command:?}: {source}")]
    Malformed {
        /// The command that was received.
        command: CommandCode,
        /// Error of the decoder.
        source: DecodeError,
    },
    /// The relay has refused a command whose refusal closes the connection.
    #[error("{command:?} refused: {refusal}")]
    Refused {
        /// The command that was refused.
        command: CommandCode,
        /// Reply code and reason.
        refusal: Refusal,
    },
}

/// Says which port the peer wants, if its command is the first one of a viewer: where a command of
/// a producer has its code, that one has a part of the viewer's number, which is all ones.
fn port_hint(code: u32) -> &'static str {
    match code {
        u32::MAX => "; the peer is a viewer, and this port is for producers",
        _ => "",
    }
}
