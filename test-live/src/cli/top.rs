//! The command line of `test-live top`.

use std::time::Duration;

use clap::{ArgAction, Parser};
use viewer::attach::target::Target;

use super::{AlignArguments, ArchiveArguments, SeekTo, TlsArguments, parse_interval};

/// Show rates, losses and lag of live sessions, like top.
///
/// test-live top shows for each live session the events per second, in all, by event name and by
/// process, how old the latest event is, and what was lost. Keys select a session, filter, sort and
/// pause; ? lists them. Sessions appear and go while it runs. A host that is called top is the
/// target net://top.
///
/// LAG is the time since the latest event, if the clock of the trace counts from 1970. Of a
/// directory that is not being written, the rates are per second of the trace.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub struct TopArguments {
    /// Relays, archives, sessions and directories, as those of test-live.
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<Target>,
    /// Print a table of plain text after each interval, instead of a screen; for scripts, and
    /// without a terminal.
    #[arg(short, long)]
    pub batch: bool,
    /// Time between two samples, 0.1 to 3600; on a screen at least 0.25.
    #[arg(short = 'd', long, value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    pub interval: Duration,
    /// Exit after N tables; default: when all targets have ended.
    #[arg(short = 'n', long, value_name = "N", requires = "batch")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub iterations: Option<u64>,
    /// Count only events that match EXPR, for example '$name == "sched_*"'; doc/filter.md describes
    /// the language.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// What relates the clocks of hosts.
    #[command(flatten)]
    pub align: AlignArguments,
    /// Where to begin in sessions that exist when test-live starts.
    #[arg(long, value_enum, default_value = "last")]
    pub seek: SeekTo,
    /// The certificates for encrypted relays.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// The archives that relays write.
    #[command(flatten)]
    pub archive: ArchiveArguments,
    /// Log more, to the status line or with --batch to standard error; may be given up to three
    /// times.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  Show all live sessions of the relay on the host COLLECTOR:
    test-live top COLLECTOR

  Show one session until it ends:
    test-live top net://COLLECTOR/host/TRACED/my-session

  Print one table of the next five seconds:
    test-live top --batch -d 5 -n 1 COLLECTOR

  Print the rate of each session every ten seconds:
    test-live top --batch -d 10 COLLECTOR | awk '$1 == \"session\" { print $6, $2 }'

Exit status:
  0  The user or a signal ended it, N tables were printed, or all targets have ended.
  1  Something could not be read, or there was no session.
  2  The command line is invalid, or there is no terminal and no --batch.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn interval_is_a_number_of_seconds_within_limits() {
        TopArguments::command().debug_assert();
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "x", "0", "-1", "NaN", "inf", "1e9"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn number_of_tables_needs_batch_mode() {
        let parse = |words: &[&str]| TopArguments::try_parse_from(words);
        assert!(parse(&["top", "-n", "1", "host"]).is_err());
        assert!(parse(&["top", "-b", "-n", "0", "host"]).is_err());
        assert!(parse(&["top", "-b", "-n", "1", "-d", "0.2", "host"]).is_ok());
    }
}
