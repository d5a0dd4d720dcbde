//! What ends a control connection.

use thiserror::Error;
use wire::DecodeError;

use crate::Version;
use crate::command::CommandCode;
use crate::relay::Refusal;

/// Why a control connection cannot go on.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The peer speaks another major version.
    #[error("the producer speaks protocol {}.{}, not {}", .theirs.major, .theirs.minor, Version::OURS.major)]
    Incompatible {
        /// What it speaks.
        theirs: Version,
    },
    /// A command that is not in the table, or not yet at the agreed version.
    #[error("unknown command {code}")]
    UnknownCommand {
        /// Its number.
        code: u32,
    },
    /// A command that makes no sense yet, or any more.
    #[error("{command:?} out of place: {why}")]
    OutOfPlace {
        /// The command.
        command: CommandCode,
        /// What should have been.
        why: &'static str,
    },
    /// A command that announces more than any may have.
    #[error("{command:?} announces {announced} bytes, {most} are allowed")]
    TooLong {
        /// The command.
        command: CommandCode,
        /// What it announces.
        announced: u64,
        /// The limit.
        most: u64,
    },
    /// A command that cannot be read.
    #[error("malformed {command:?}: {source}")]
    Malformed {
        /// The command.
        command: CommandCode,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A command that the relay refused, and that does not leave the connection open.
    #[error("{command:?} refused: {refusal}")]
    Refused {
        /// The command.
        command: CommandCode,
        /// Why.
        refusal: Refusal,
    },
}
