use thiserror::Error;

/// Why bytes from a peer or a file are not the message they were taken for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Fewer bytes than the message needs.
    #[error("{what} is cut short: it needs {need} bytes and has {have}")]
    Truncated {
        /// The message or field.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A code that the protocol does not define.
    #[error("{what} has no code {got}")]
    UnknownCode {
        /// The enumeration.
        what: &'static str,
        /// The code.
        got: u64,
    },
    /// A length outside of what the field allows.
    #[error("{what} is {got} bytes long, it must be between {min} and {max}")]
    Length {
        /// The field.
        what: &'static str,
        /// Its length.
        got: u64,
        /// The shortest allowed.
        min: u64,
        /// The longest allowed.
        max: u64,
    },
    /// A name without its closing NUL, or with one in the middle.
    #[error("{what} does not end with its first NUL")]
    Unterminated {
        /// The field.
        what: &'static str,
    },
}
