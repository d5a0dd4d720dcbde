//! The options of text, most of which `babeltrace2` has too.

use std::time::Duration;

use clap::{Args, ValueEnum};
use daemon::output::has_colors;

use super::lists::{FieldsList, NamesList};
use super::{ClockFormat, HeaderFields, Names, TextOptions};

/// The form of lines, and of times in all output for people.
#[derive(Debug, Clone, Args)]
pub struct TextArguments {
    /// Show times in UTC.
    #[arg(long, help_heading = "Text")]
    pub clock_gmt: bool,
    /// Show times with their date.
    #[arg(long, help_heading = "Text")]
    pub clock_date: bool,
    /// Show times as seconds since 1970.
    #[arg(long, help_heading = "Text")]
    pub clock_seconds: bool,
    /// Show times as cycles of the trace's clock.
    #[arg(long, help_heading = "Text")]
    pub clock_cycles: bool,
    /// Add S seconds to all times.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0,
        allow_hyphen_values = true,
        help_heading = "Text"
    )]
    pub clock_offset: i64,
    /// Add NS nanoseconds to all times.
    #[arg(
        long,
        value_name = "NS",
        default_value_t = 0,
        allow_hyphen_values = true,
        help_heading = "Text"
    )]
    pub clock_offset_ns: i64,
    /// Do not show the time since the previous event.
    #[arg(long, help_heading = "Text")]
    pub no_delta: bool,
    /// Show the field names in these parts, separated by commas: payload, context, scope, header,
    /// all, none.
    #[arg(short, long, value_name = "LIST", help_heading = "Text")]
    pub names: Option<NamesList>,
    /// Show these parts before the event name, separated by commas: trace, trace:hostname,
    /// trace:domain, trace:procname, trace:vpid, loglevel, emf, callsite, all.
    #[arg(short, long, value_name = "LIST", help_heading = "Text")]
    pub fields: Option<FieldsList>,
    /// Use colors.
    #[arg(
        long,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        help_heading = "Text"
    )]
    pub color: Colour,
}

/// The use of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// Only if the output is a terminal, and NO_COLOR is not set.
    Auto,
    /// Never.
    Never,
    /// Always, also in a file or pipe.
    Always,
}

impl TextArguments {
    /// The options of lines, on a terminal or not.
    #[must_use]
    pub fn options(&self, is_terminal: bool) -> TextOptions {
        TextOptions {
            clock: self.clock(),
            no_delta: self.no_delta,
            names: self.names.map_or_else(Names::default, |list| list.0),
            fields: self
                .fields
                .map_or_else(HeaderFields::default, |list| list.0),
            colour: self.has_colors(is_terminal),
        }
    }

    /// Whether text has colors, on a terminal or not.
    #[must_use]
    pub fn has_colors(&self, is_terminal: bool) -> bool {
        match self.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && has_colors(&std::io::stdout()),
        }
    }

    /// The format of times.
    #[must_use]
    pub fn clock(&self) -> ClockFormat {
        // More seconds than fit into nanoseconds become the largest offset there is.
        let seconds = Duration::from_secs(self.clock_offset.unsigned_abs());
        let seconds = i64::try_from(seconds.as_nanos()).unwrap_or(i64::MAX);
        ClockFormat {
            seconds: self.clock_seconds,
            cycles: self.clock_cycles,
            date: self.clock_date,
            gmt: self.clock_gmt,
            offset: seconds
                .saturating_mul(self.clock_offset.signum())
                .saturating_add(self.clock_offset_ns),
        }
    }
}
