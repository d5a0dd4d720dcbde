//! The destinations of events: a file or folder for each sink, and a row of [`SINKS`]. Runs of the
//! program and downloads of `test-live web` open them.
//!
//! Read `row` first (what a sink is for the program), then `buffer` (its output), then any sink.
//! `log` takes the forms of times from `text`, `perfetto` its options from `tef`, and both of these
//! use `counters`; otherwise no sink knows another.

mod buffer;
pub mod codetracer;
pub mod counter;
mod counters;
pub mod ctf;
pub mod details;
pub mod dummy;
pub mod folded;
pub mod json;
pub mod log;
pub mod parquet;
pub mod perfetto;
pub(crate) mod picture;
pub mod row;
pub mod tef;
pub mod text;

use clap::Args;
use viewer::run::UsageError;

use self::row::SinkRow;

/// All sinks, in the order of the help.
pub const SINKS: &[&SinkRow] = &[
    &text::ROW,
    &log::ROW,
    &details::ROW,
    &json::ROW,
    &perfetto::ROW,
    &tef::ROW,
    &ctf::ROW,
    &codetracer::ROW,
    &parquet::ROW,
    &folded::ROW,
    &counter::ROW,
    &dummy::ROW,
];

/// The options of single sinks, each declared beside its sink.
#[derive(Debug, Clone, Args)]
pub struct SinkOptions {
    /// The form of a CodeTracer recording.
    #[command(flatten)]
    pub codetracer: codetracer::CodetracerArguments,
    /// The files of tables.
    #[command(flatten)]
    pub parquet: parquet::ParquetArguments,
    /// The form of text.
    #[command(flatten)]
    pub text: text::TextArguments,
    /// The form of a `trace.json`.
    #[command(flatten)]
    pub tef: tef::TefArguments,
}

impl SinkOptions {
    /// Checks that what was asked for is of this sink.
    ///
    /// # Errors
    /// If an option would have no effect that a user cannot miss.
    pub fn check_used_by(&self, sink: &SinkRow) -> Result<(), UsageError> {
        let with_counters = [perfetto::ROW.name, tef::ROW.name];
        if !with_counters.contains(&sink.name) && !self.tef.counter.is_empty() {
            let sinks = with_counters.join(" or --sink ");
            return Err(UsageError(format!("--counter requires --sink {sinks}")));
        }
        Ok(())
    }
}
