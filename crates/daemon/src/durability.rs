//! What a program guarantees of data that it has accepted: the levels of `relayd --durability` and
//! `consumer --spool-durability`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// When data is safe against a power failure. It is always safe against the end of the program,
/// however that comes about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Accepted data is written: the system syncs it to the disk after half a minute or so.
    #[default]
    Process,
    /// Accepted data is written, and synced within an interval, of a second unless set otherwise.
    Interval,
    /// Data is synced before it is accepted.
    Packet,
}

/// A name is none of a [`Durability`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("must be process, interval or packet")]
pub struct UnknownDurability;

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::Process, Self::Interval, Self::Packet];

    /// Returns the name that options and configuration files have for the level.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Interval => "interval",
            Self::Packet => "packet",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(name: &str) -> Result<Self, UnknownDurability> {
        let named = Self::ALL.into_iter().find(|level| level.name() == name);
        named.ok_or(UnknownDurability)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    #[test]
    fn names_of_options_and_of_configuration_files_are_the_same() {
        for level in Durability::ALL {
            let name: StrDeserializer<'_, Error> = level.name().into_deserializer();
            assert_eq!(Durability::deserialize(name), Ok(level));
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!("never".parse::<Durability>(), Err(UnknownDurability));
    }
}
