//! Values of options: the text that each may have on the command line and in configuration files.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use daemon::durability::Durability;

use crate::config::LogFormat;
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

/// Parses a level of durability.
pub(super) fn durability() -> impl TypedValueParser<Value = Durability> {
    let names = Durability::ALL.map(Durability::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
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
