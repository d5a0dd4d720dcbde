//! The options of a `trace.json`.

use clap::{Args, ValueEnum};
use viewer::filter::NumberSelector;
use viewer::run::UsageError;

use super::{SentTimes, TefOptions};

/// The form of a `trace.json`.
#[derive(Debug, Clone, Args)]
pub struct TefArguments {
    /// The program that is to open the file.
    #[arg(
        long = "for",
        value_enum,
        value_name = "VIEWER",
        default_value = "perfetto",
        help_heading = "Trace Event Format"
    )]
    pub viewer: Viewer,
    /// Which times to write for events that programs have sent in this format.
    #[arg(
        long,
        value_enum,
        default_value = "producer",
        value_name = "CLOCK",
        help_heading = "Trace Event Format"
    )]
    pub tef_time: TefTime,
    /// Also write the numbers of a field as a counter of its process, with --sink tef; may be
    /// repeated. EXPR is FIELD, EVENT.FIELD or NAME=EVENT.FIELD, for example
    /// depth=queue:push.state.len, with a FIELD as in --filter.
    #[arg(long, value_name = "EXPR", help_heading = "Trace Event Format")]
    pub counter: Vec<String>,
}

/// A program that opens a trace.json.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// ui.perfetto.dev: events in order of time, times since the first event, and what Perfetto
    /// would misinterpret changed; nothing is written until the end.
    Perfetto,
    /// Any program: events as they come, with absolute times.
    Any,
}

/// The times of events that were sent in Trace Event Format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TefTime {
    /// The times that the program wrote.
    Producer,
    /// The times of arrival, on the clock of all other events.
    Arrival,
}

impl TefArguments {
    /// The options of the sink.
    #[must_use]
    pub fn options(&self) -> TefOptions {
        TefOptions {
            sent: match self.tef_time {
                TefTime::Producer => SentTimes::Producer,
                TefTime::Arrival => SentTimes::Arrival,
            },
            perfetto: self.viewer == Viewer::Perfetto,
        }
    }

    /// The fields whose numbers become counters.
    ///
    /// # Errors
    /// If an expression selects none.
    pub fn counters(&self) -> Result<Vec<NumberSelector>, UsageError> {
        let parse = |text: &String| {
            let parsed = NumberSelector::parse(text);
            parsed.map_err(|what| UsageError(format!("invalid --counter {text:?}: {what}")))
        };
        self.counter.iter().map(parse).collect()
    }
}
