//! The command line of `test-live spans`.

use std::time::Duration;

use clap::{Parser, ValueEnum};

use super::{ReadArguments, parse_interval};

/// Show how long spans take, by their names.
///
/// test-live spans prints for the spans of each name how many there were, how long they took in
/// all, without the spans within them (SELF), on average and at most, and the durations that 50, 90
/// and 99 % of them did not exceed, which are exact to 0.5 %. Spans are the slices of --sink
/// perfetto: begins and ends that programs have sent, spans of Rust's tracing, pairs of events as
/// X_begin and X_end, system calls, functions and calls.
///
/// A live session is followed until it ends or SIGINT; then the table is printed. On a terminal the
/// table so far is shown each second. OPEN is the number of spans whose ends were not seen, NO
/// BEGIN that of ends whose begins were not. A host that is called spans is the target net://spans.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub struct SpansArguments {
    /// The targets, and which of their events are selected.
    #[command(flatten)]
    pub read: ReadArguments,
    /// Show the spans of each process or thread apart.
    #[arg(long, value_enum, help_heading = "Output")]
    pub by: Option<SpanGroup>,
    /// Sort by this column: numbers with the largest first, names from A to Z.
    #[arg(
        long,
        value_enum,
        value_name = "COLUMN",
        default_value = "total",
        help_heading = "Output"
    )]
    pub sort: SpanSort,
    /// Show the first N rows only.
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub limit: Option<usize>,
    /// Write the rows as JSON, with times in nanoseconds.
    #[arg(long, conflicts_with = "interval", help_heading = "Output")]
    pub json: bool,
    /// Show the table so far each SECONDS, 0.1 to 3600; default: 1 on a terminal, otherwise only at
    /// the end.
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = parse_interval)]
    #[arg(help_heading = "Output")]
    pub interval: Option<Duration>,
    /// Times of --begin and --end are in UTC.
    #[arg(long, help_heading = "Selection")]
    pub clock_gmt: bool,
}

/// What the spans of one row have in common besides their name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpanGroup {
    /// The process.
    Process,
    /// The thread.
    Thread,
}

/// The column by which rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpanSort {
    /// The time that all took.
    Total,
    /// The time without the spans within them.
    #[value(name = "self")]
    SelfTime,
    /// Their number.
    Count,
    /// The time that one took on average.
    Mean,
    /// The duration that half of them did not exceed.
    P50,
    /// The duration that 90 % did not exceed.
    P90,
    /// The duration that 99 % did not exceed.
    P99,
    /// The longest duration.
    Max,
    /// The name, in the order of the alphabet.
    Name,
}

const EXAMPLES: &str = "\
Examples:
  Show the spans of a recording:
    test-live spans ~/lttng-traces/my-session-20260101-101500

  Show the ten names with the longest 99th percentile, while a session is recorded:
    test-live spans --sort p99 --limit 10 net://COLLECTOR/host/TRACED/my-session

  Show the system calls of each process:
    test-live spans --by process --filter '$name == \"*syscall_*\"' TRACE_DIR

  Print names and their 99th percentile in microseconds:
    test-live spans --json TRACE_DIR | jq -r '.[] | [.name, .p99_ns / 1000] | @tsv'

  Write stacks for flame graphs instead:
    test-live --sink folded -w stacks.txt TRACE_DIR

Exit status: as that of test-live.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn spans_are_grouped_sorted_and_selected_by_options() {
        SpansArguments::command().debug_assert();
        let parse = |words: &[&str]| SpansArguments::try_parse_from(words);
        let words = [
            "spans", "--by", "thread", "--sort", "self", "--limit", "3", "d",
        ];
        let arguments = parse(&words).unwrap();
        assert_eq!(arguments.by, Some(SpanGroup::Thread));
        assert_eq!(arguments.sort, SpanSort::SelfTime);
        assert_eq!(arguments.limit, Some(3));
        assert!(parse(&["spans", "--json", "-d", "1", "d"]).is_err());
        assert!(parse(&["spans", "-d", "0", "d"]).is_err());
        assert!(parse(&["spans"]).is_err());
    }
}
