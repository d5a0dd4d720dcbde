//! How important an event is.

use std::fmt;
use std::str::FromStr;

/// Severity of a call site, the most important first. The number is its code in `meta` and in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// Something that has failed.
    Error = 1,
    /// Something may fail soon.
    Warn = 2,
    /// What an operator wants to know.
    Info = 3,
    /// What a developer wants to know; off unless asked for.
    Debug = 4,
    /// Everything; off unless asked for.
    Trace = 5,
}

impl Severity {
    /// Every severity, in the order of the codes.
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    /// Returns the code in `meta`, from 1 to 5.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the severity with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.code() == code)
    }

    /// Returns the name in lower case, as in filter directives.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Severity {
    type Err = ();

    /// Reads a name in any case.
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|severity| text.eq_ignore_ascii_case(severity.name()))
            .ok_or(())
    }
}
