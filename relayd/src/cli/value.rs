//! Values of options: the text that each may have on the command line and in configuration files.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::config::LogFormat;
use crate::ingest::WhenFull;

impl ValueEnum for WhenFull {
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

/// Parses a number of bytes: `4096`, `16k`, `32M`, `1G`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1 << 10),
        Some((at, 'M')) => (text.get(..at), 1 << 20),
        Some((at, 'G')) => (text.get(..at), 1 << 30),
        _ => (Some(text), 1u64),
    };
    digits
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| "not a number of bytes, such as 4096, 16k, 32M or 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_have_optional_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("16k", 16 << 10),
            ("32M", 32 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "k", "1T", "99999999999G", "-1"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
