//! Protocol errors of a viewer, for which the relay closes its connection.

use thiserror::Error;
use wire::DecodeError;

use crate::CommandCode;
use crate::version::MAJOR;

/// A protocol error of a viewer. The connection is closed after the replies to earlier commands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ViewerError {
    /// The viewer has another major version.
    #[error("the viewer speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// Major version of the viewer.
        major: u32,
    },
    /// A command has an unknown code.
    #[error("unknown command {code}")]
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
    /// A command announces a wrong size.
    #[error("{command:?} announces {announced} bytes instead of {}", command.size())]
    Size {
        /// The command that was received.
        command: CommandCode,
        /// Announced size in bytes.
        announced: u64,
    },
    /// A command cannot be decoded.
    #[error("malformed {command:?}: {source}")]
    Malformed {
        /// The command that was received.
        command: CommandCode,
        /// Error of the decoder.
        source: DecodeError,
    },
}
