//! Values of options: the text that each may have on the command line and in configuration files.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use daemon::durability::Durability;

use crate::config::{ARCHIVE_LEVEL, LogFormat};
use crate::ingest::DiskFullPolicy;

impl ValueEnum for DiskFullPolicy {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Pause, Self::Close]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Pause => "pause",
            Self::Close => "close",
        }))
    }
}

/// A level of `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DurabilityLevel {
    /// On the disk of the relay.
    Disk(Durability),
    /// In the archive.
    Archive,
}

/// Parses a level of durability.
pub(super) fn durability() -> impl TypedValueParser<Value = DurabilityLevel> {
    let names = Durability::ALL.map(Durability::name);
    let names = names.into_iter().chain([ARCHIVE_LEVEL]);
    PossibleValuesParser::new(names).try_map(|name| match &*name {
        ARCHIVE_LEVEL => Ok(DurabilityLevel::Archive),
        name => name.parse().map(DurabilityLevel::Disk),
    })
}

impl ValueEnum for LogFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Text, Self::Json]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Text => "text",
            Self::Json => "json",
        }))
    }
}
