//! Tables for SQL engines: a Parquet file for the events of one name, day and host.
//!
//! `event=NAME/day=YYYY-MM-DD/host=HOST/*.parquet` are partitions as Hive names them, which DuckDB,
//! Spark and Polars find. Columns, in this order:
//!
//! | column | is | absent |
//! |---|---|---|
//! | `ts` | nanoseconds since 1970, a plain INT64 | without a clock |
//! | `session` | name of LTTng's session | if the trace does not say |
//! | `trace`, `stream` | names, as in JSON | never |
//! | `procname`, `vpid` | of the trace's environment | if it does not say |
//! | `cpu` | `cpu_id` of the packet's context | if it has none |
//! | `loglevel` | 0 (worst) to 14 | if not declared |
//! | `packet`, `context`, `event_context`, `fields` | structures, as in JSON | if empty |
//!
//! Fields are within those structures, so that none has the name of a column. Integers have the
//! next larger of 8, 16, 32 and 64 bits. Enumerations and bit maps are `{value, label}`, with
//! `" | "` between labels. Arrays are lists. A variant is a structure of its options, of which the
//! others are null. A structure without members is `true`. Of members whose names differ in case
//! only, the second is called `NAME_2`, as is a field that had another kind in another class of the
//! same name: so `union_by_name` of DuckDB joins all files of an event.
//!
//! Read in this order; each module uses only those before it: `name` (names of partitions),
//! `schema` (event classes as columns), `column` and `origins` (columns in memory), `row` (the
//! fields of an event become a row), `destination` (finished files), `table` (one file), `tables`
//! (all, within a budget), `classes` (which table an event is of), `sink`.

#[cfg(feature = "parquet")]
mod classes;
#[cfg(feature = "parquet")]
mod column;
#[cfg(feature = "parquet")]
mod destination;
#[cfg(feature = "parquet")]
mod name;
#[cfg(feature = "parquet")]
mod origins;
#[cfg(feature = "parquet")]
mod row;
#[cfg(feature = "parquet")]
mod schema;
#[cfg(feature = "parquet")]
mod sink;
#[cfg(feature = "parquet")]
mod table;
#[cfg(feature = "parquet")]
mod tables;
#[cfg(all(test, feature = "parquet"))]
mod tests;

use std::path::Path;

use clap::Args;
use viewer::sink::{Needs, OpenSink};

use super::row::{Open, SinkContext, SinkRow};

/// The row of the sink that writes tables.
pub const ROW: SinkRow = SinkRow {
    name: "parquet",
    help: "A directory or bucket of Parquet tables, one for each event name, for DuckDB and Spark",
    needs: Needs::EVENTS,
    open: Open::Directory(open),
    download: None,
};

/// The options of the sink.
#[derive(Debug, Clone, Args)]
pub struct ParquetArguments {
    /// End each file SECONDS after its first event of a live session, so that others can read it.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "60",
        value_parser = clap::value_parser!(u32).range(1..=86_400),
        help_heading = "Output"
    )]
    pub parquet_interval: u32,
}

#[cfg(feature = "parquet")]
fn open(output: &Path, context: &SinkContext<'_>) -> anyhow::Result<OpenSink> {
    let limits = tables::Limits {
        interval: std::time::Duration::from_secs(context.options.parquet.parquet_interval.into()),
        ..tables::Limits::default()
    };
    let destination = destination::Destination::open(output, context.endpoint)?;
    Ok(OpenSink::Events(Box::new(sink::Parquet::new(
        destination,
        limits,
    ))))
}

#[cfg(not(feature = "parquet"))]
fn open(_output: &Path, _context: &SinkContext<'_>) -> anyhow::Result<OpenSink> {
    anyhow::bail!(
        "--sink parquet is not in this program: build test-live with --features parquet, or install the package of the \
         viewer, which has it"
    )
}
