//! What ends a viewer's connection.

use thiserror::Error;
use wire::DecodeError;

use crate::CommandCode;
use crate::version::MAJOR;

/// Why a viewer's connection cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ViewerError {
    /// The viewer speaks another major version.
    #[error("the viewer speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// What it speaks.
        major: u32,
    },
    /// A command that is not in the table.
    #[error("unknown command {code}")]
    UnknownCommand {
        /// Its number.
        code: u32,
    },
    /// A command that makes no sense yet.
    #[error("{command:?} out of place: {why}")]
    OutOfPlace {
        /// The command.
        command: CommandCode,
        /// What should have been.
        why: &'static str,
    },
    /// A command of the wrong size.
    #[error("{command:?} announces {announced} bytes instead of {}", command.size())]
    Size {
        /// The command.
        command: CommandCode,
        /// What it announces.
        announced: u64,
    },
    /// A command that cannot be read.
    #[error("malformed {command:?}: {source}")]
    Malformed {
        /// The command.
        command: CommandCode,
        /// What is wrong with it.
        source: DecodeError,
    },
}
