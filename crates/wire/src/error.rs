use thiserror::Error;

/// The reason why bytes from a peer or a file are not the message they were taken for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Fewer bytes than the message needs.
    #[error("{what} is cut short: it needs {need} bytes and has {have}")]
    Truncated {
        /// The name of the message or field.
        what: &'static str,
        /// The number of bytes that it needs.
        need: usize,
        /// The number of bytes that there are.
        have: usize,
    },
    /// A code that the protocol does not define.
    #[error("{what} has no code {got}")]
    UnknownCode {
        /// The name of the enumeration.
        what: &'static str,
        /// The code that was received.
        got: u64,
    },
    /// A length outside of what the field allows.
    #[error("{what} is {got} bytes long, it must be between {min} and {max}")]
    Length {
        /// The name of the field.
        what: &'static str,
        /// The length that was received, in bytes.
        got: u64,
        /// The shortest allowed length, in bytes.
        min: u64,
        /// The longest allowed length, in bytes.
        max: u64,
    },
    /// A name without its closing NUL, or with one in the middle.
    #[error("{what} does not end with its first NUL")]
    Unterminated {
        /// The name of the field.
        what: &'static str,
    },
}
