//! The command line: that of the reference, and further options by long names only.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use consumer::cli::RelayUrls;
use consumer::config::{Config, ConfigError};
use daemon::logging::{self, LogTarget};
use tldrs_daemon::export::DocumentForm;
use tldrs_daemon::limits::{MAX_CLIENTS, MAX_LINE_BYTES, MAX_TRACES, MIN_LINE_BYTES};
use tldrs_daemon::{DaemonOptions, WhenFull};
use tracing::level_filters::LevelFilter;

const EXAMPLES: &str = "\
Examples:
  tldrs serve                              Collect events of local programs, one file for each trace
  tldrs serve --daemonize                  Collect events in the background
  TRACE=1 ./program                        Trace a program that was built with trace-tef-tldrs
  tldrs list --long                        List the traces with their size and counters
  tldrs get-perfetto latest -o t.pftrace   Export the newest trace, for ui.perfetto.dev
  tldrs get-tef latest -o trace.json       Export it as JSON, for Perfetto and other viewers
  tldrs get-tef run-1 --for any            Export a trace by its name, with events as they were sent
  tldrs clear                              Remove all traces that are not being written
  tldrs clear --older-than 7d --keep 10    Remove old traces, except for the ten newest

A trace is a file of JSON objects in Trace Event Format, one on each line. The environment variable
RUST_LOG selects log messages by module and overrides -v.";

const SERVE_EXAMPLES: &str = "\
Examples:
  tldrs serve -v                           Log traces and exports
  tldrs serve -d /srv/traces --sync        Sync events to the disk, to survive a power failure
  tldrs serve -U net://COLLECTOR           Also stream events to a relay, for live viewers
  tldrs serve --into-file all.jsonl        Store all events in one file; clients need no OPEN
  tldrs serve --allow-user alice           Let user alice connect

Send an event by hand:
  printf 'OPEN t\\n{\"ph\":\"i\",\"name\":\"hello\",\"ts\":1}\\n' | socat - UNIX-CONNECT:/tmp/tldrs.socket

SIGTERM and SIGINT stop the daemon: it stores the events that clients have sent, makes pending
exports, and exits with status 0.";

/// Collect Trace Event Format events of local programs, one file for each trace.
#[derive(Debug, Parser)]
#[command(name = "tldrs", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,

    /// Log more: -v traces and exports, -vv clients and details, -vvv everything
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    verbose: u8,
}

/// The commands of `tldrs`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon until SIGTERM or SIGINT, or until a client sends DIE
    Serve(Box<ServeArguments>),
    /// Print the paths of the traces
    List(ListArguments),
    /// Remove your own traces and print their paths; traces that are being written are left alone
    Clear(ClearArguments),
    /// Print the directory of the traces
    Dir(DirectoryArguments),
    /// Write a trace as one JSON document
    GetTef(GetTefArguments),
    /// Write a trace in Perfetto's own format, which is smaller than JSON
    GetPerfetto(ExportArguments),
}

/// The option that names the directory of traces.
#[derive(Debug, Args)]
pub struct DirectoryArguments {
    /// Use the directory of traces DIR [default: $XDG_DATA_HOME/tldrs, or ~/.local/share/tldrs]
    #[arg(short, long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// The options of `tldrs serve`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct ServeArguments {
    /// Listen on the Unix socket PATH; may be repeated [default: $XDG_RUNTIME_DIR/tldrs.socket and
    /// /tmp/tldrs.socket]
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PathBuf>,

    /// The directory of traces.
    #[command(flatten)]
    pub directory: DirectoryArguments,

    /// The relay to which events are forwarded.
    #[command(flatten)]
    pub relay: RelayUrls,

    /// Send packets that are not full to the relay every USEC microseconds [default: 100000]
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(1..))]
    pub live: Option<u32>,

    /// Name of the traced host, for the relay and viewers [default: the name of this host]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,

    /// Store all events in FILE, whatever trace they belong to
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    pub into_file: Option<PathBuf>,

    /// Run in the background; the command returns when clients can connect. The log goes to syslog
    /// or the journal, unless --log-file is given
    #[arg(long)]
    pub daemonize: bool,

    /// Append the log to PATH instead of standard error. SIGHUP opens PATH again, for logrotate
    #[arg(long, value_name = "PATH")]
    pub log_file: Option<PathBuf>,

    /// Sync events to the disk before the next ones are read
    #[arg(long)]
    pub sync: bool,

    /// Reject lines longer than SIZE bytes (suffixes k, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = parse_line_size)]
    pub max_line: usize,

    /// Refuse more than N clients at a time
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    pub max_clients: u32,

    /// Refuse more than N open traces at a time
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TRACES)))]
    pub max_traces: u32,

    /// Let USER (a name or number) connect, besides root and the user of the daemon; may be
    /// repeated. Only the user of the daemon gets the exports that its clients ask for
    #[arg(long, value_name = "USER")]
    pub allow_user: Vec<String>,

    /// What to do when the disk is full, or the relay does not keep up
    #[arg(long, default_value_t = WhenFull::Block, value_parser = when_full())]
    pub when_full: WhenFull,
}

/// Returns the parser of the names of policies.
fn when_full() -> impl TypedValueParser<Value = WhenFull> {
    let values = WhenFull::ALL.map(|policy| {
        PossibleValue::new(policy.name()).help(match policy {
            WhenFull::Block => "Block the clients",
            WhenFull::DropNewest => {
                "Drop new events and count them; if only the relay is too slow, still store them"
            }
        })
    });
    PossibleValuesParser::new(values).try_map(|name| WhenFull::from_name(&name).ok_or("unknown"))
}

/// The options of `tldrs list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// The directory of traces.
    #[command(flatten)]
    pub directory: DirectoryArguments,

    /// Also print time of modification, size, number of events and clients, and counts of repaired,
    /// rejected and lost lines
    #[arg(short, long)]
    pub long: bool,

    /// Print JSON, with all that --long prints
    #[arg(long)]
    pub json: bool,
}

/// The options of `tldrs clear`.
#[derive(Debug, Args)]
pub struct ClearArguments {
    /// The directory of traces.
    #[command(flatten)]
    pub directory: DirectoryArguments,

    /// Also empty traces that are being written
    #[arg(long)]
    pub force: bool,

    /// Do not ask for confirmation; without it, tldrs asks if standard input is a terminal
    #[arg(short, long)]
    pub yes: bool,

    /// Remove only traces that have not been written to for DURATION: a number and s, m, h, d or w
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub older_than: Option<Duration>,

    /// Leave the N newest traces alone
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub keep: usize,

    /// Print what would be removed, and remove nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// The arguments of `tldrs get-tef`.
#[derive(Debug, Args)]
pub struct GetTefArguments {
    /// The trace, and where it is written.
    #[command(flatten)]
    pub export: ExportArguments,

    /// The program that is to read the document, which determines its form
    #[arg(long = "for", value_enum, value_name = "VIEWER", default_value_t = ExportReader::Perfetto)]
    pub reader: ExportReader,
}

/// What is exported, and where to.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// Name or path of a trace, as `tldrs list` prints it, with or without .jsonl; or `latest` for
    /// the newest trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The directory of traces.
    #[command(flatten)]
    pub directory: DirectoryArguments,

    /// Write to the file OUT instead of standard output, gzipped if its name ends in .gz
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
}

/// The program that is to read an export.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportReader {
    /// ui.perfetto.dev: an object with the events in order of time, times since the first event,
    /// and what Perfetto would misinterpret changed
    Perfetto,
    /// Any program: an array of the events as they were sent
    Any,
}

impl Arguments {
    /// Returns the lowest level that is logged, unless `RUST_LOG` is set.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        logging::level(self.verbose)
    }

    /// Returns where the log goes: for commands other than `serve`, to standard error.
    #[must_use]
    pub fn log_target(&self) -> LogTarget<'_> {
        match &self.command {
            Command::Serve(serve) => match &serve.log_file {
                Some(file) => LogTarget::File(file),
                None if serve.daemonize => LogTarget::Syslog("tldrs"),
                None => LogTarget::Stderr,
            },
            _ => LogTarget::Stderr,
        }
    }
}

impl ServeArguments {
    /// Returns the options of the daemon.
    ///
    /// # Errors
    /// If a number does not fit a `usize`.
    pub fn options(&self) -> Result<DaemonOptions, std::num::TryFromIntError> {
        Ok(DaemonOptions {
            sockets: self.socket.clone(),
            directory: self.directory.directory.clone(),
            into_file: self.into_file.clone(),
            sync: self.sync,
            max_line: self.max_line,
            max_clients: self.max_clients.try_into()?,
            max_traces: self.max_traces.try_into()?,
            allow_user: self.allow_user.clone(),
            when_full: self.when_full,
        })
    }

    /// Returns the configuration for forwarding; none if no relay is named.
    ///
    /// # Errors
    /// If the address of the relay is incomplete or malformed.
    pub fn relay(&self) -> Result<Option<Config>, ConfigError> {
        let relay = self.relay.relay();
        if !relay.is_given() {
            return Ok(None);
        }
        let mut config = Config {
            relay,
            ..Config::default()
        };
        if let Some(live) = self.live {
            config.session.live_timer_us = live;
        }
        if let Some(host) = &self.hostname {
            config.session.host.clone_from(host);
        }
        config.check()?;
        Ok(Some(config))
    }
}

impl From<ExportReader> for DocumentForm<'static> {
    fn from(reader: ExportReader) -> Self {
        match reader {
            ExportReader::Any => Self::Array,
            ExportReader::Perfetto => Self::Perfetto,
        }
    }
}

/// Parses a duration: `90s`, `30m`, `12h`, `7d`, `2w`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(60 * 60),
        'd' => Some(24 * 60 * 60),
        'w' => Some(7 * 24 * 60 * 60),
        _ => None,
    });
    let number = text.get(..text.len().saturating_sub(1));
    let number = number.and_then(|number| number.parse::<u64>().ok());
    let seconds = unit
        .zip(number)
        .and_then(|(unit, number)| number.checked_mul(unit));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "not a number with a unit, such as 90s, 30m, 12h, 7d or 2w".to_owned())
}

/// Parses the maximum length of a line in bytes: `4096`, `16k`, `32M`, `1G`.
fn parse_line_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1 << 10),
        Some((at, 'M')) => (text.get(..at), 1 << 20),
        Some((at, 'G')) => (text.get(..at), 1 << 30),
        _ => (Some(text), 1_usize),
    };
    digits
        .and_then(|digits| digits.parse::<usize>().ok())
        .and_then(|number| number.checked_mul(unit))
        .filter(|size| (MIN_LINE_BYTES..=MAX_LINE_BYTES).contains(size))
        .ok_or_else(|| "not a number of bytes from 2 to 1G, such as 4096, 16k or 32M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from([&["tldrs"], arguments].concat())
    }

    #[test]
    fn commands_and_options_are_those_of_the_reference() {
        for line in [
            "serve --socket s -d d",
            "serve --dir d --daemonize",
            "serve --into-file f",
            "list -d d",
            "clear --dir d",
            "dir -d d",
            "get-tef f.jsonl -d d -o out.json",
            "get-perfetto f.jsonl -d d -o out.pftrace.gz",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert!(parse(&words).is_ok(), "{line}");
        }
        let wrong = parse(&["serve", "--no-such-option"]).unwrap_err();
        assert_eq!(wrong.exit_code(), 2);
        assert_eq!(parse(&["--help"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn verbosity_is_accepted_before_and_after_the_command() {
        for words in [["-v", "dir"], ["dir", "-v"]] {
            assert_eq!(parse(&words).unwrap().log_level(), LevelFilter::INFO);
        }
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2w"), Ok(Duration::from_secs(14 * 86400)));
        for text in ["", "d", "7", "-1d", "1.5h", "9999999999999999999w", "1µ"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn line_sizes_have_suffixes_and_bounds() {
        assert_eq!(parse_line_size("16k"), Ok(16 << 10));
        assert_eq!(parse_line_size("1G"), Ok(1 << 30));
        for text in ["", "k", "0", "1", "2G", "-1", "99999999999G"] {
            assert!(parse_line_size(text).is_err(), "{text}");
        }
    }
}
