//! Values of options: the text that each may have on the command line and in configuration files.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::config::LogFormat;
use crate::ingest::DiskFullPolicy;
use crate::store::sync::Durability;

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

impl ValueEnum for Durability {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Process, Self::Interval, Self::Packet]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Process => "process",
            Self::Interval => "interval",
            Self::Packet => "packet",
        }))
    }
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
