//! The command line: that of the reference, and what is ours by long names.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use consumer::cli::RelayUrls;
use consumer::config::{Config, ConfigError};
use daemon::logging;
use tldrs_daemon::export::DocumentForm;
use tldrs_daemon::limits::MAX_LINE_BYTES;
use tldrs_daemon::{DaemonOptions, WhenFull};
use tracing::level_filters::LevelFilter;

const EXAMPLES: &str = "\
Examples:
  tldrs serve                              Collect what programs send; one file for each trace
  tldrs serve --daemonize                  The same, in the background
  TRACE=1 ./program                        Run a program that was built with trace-tef-tldrs
  tldrs list --long                        What is there
  tldrs get-tef latest -o trace.json       The newest trace, for ui.perfetto.dev
  tldrs clear                              Remove all traces that are not being written

A trace is a file of JSON objects, one to a line. RUST_LOG selects what is logged and overrides -v.";

const SERVE_EXAMPLES: &str = "\
Examples:
  tldrs serve -v                           Tell what happens
  tldrs serve -d /srv/traces --sync        Survive a power failure, too
  tldrs serve -U net://COLLECTOR           Also stream events to a relay, for viewers
  tldrs serve --into-file all.jsonl        All events into one file, no OPEN needed
  tldrs serve --allow-user alice --emit-root /srv/exports
                                           Let another user in, and have her exports below a directory

By hand:
  printf 'OPEN t\\n{\"ph\":\"i\",\"name\":\"hello\",\"ts\":1}\\n' | socat - UNIX-CONNECT:/tmp/tldrs.socket

SIGTERM and SIGINT end it in good order: what has been sent is stored, exports that were wished for are
written, the status is 0.";

/// Collect Trace Event Format events of local programs, one file for each trace.
#[derive(Debug, Parser)]
#[command(name = "tldrs", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Tell more: -v what happens, -vv details, -vvv everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon
    Serve(Serve),
    /// Print the paths of the traces
    List(List),
    /// Remove the traces of your own directory, except those that are being written
    Clear(Clear),
    /// Print the directory of the traces
    Dir(Directory),
    /// Write a trace as one JSON document
    GetTef(GetTef),
}

/// Where traces are.
#[derive(Debug, Args)]
pub struct Directory {
    /// Where traces are [default: $XDG_DATA_HOME/tldrs, or ~/.local/share/tldrs]
    #[arg(short, long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// How to run the daemon.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub struct Serve {
    /// Listen at PATH; may be given several times [default: $XDG_RUNTIME_DIR/tldrs.socket, and
    /// /tmp/tldrs.socket where programs look]
    #[arg(long, value_name = "PATH")]
    pub socket: Vec<PathBuf>,

    /// Where traces are.
    #[command(flatten)]
    pub directory: Directory,

    /// A relay to take events to as well, live.
    #[command(flatten)]
    pub relay: RelayUrls,

    /// Have the relay know what there is every USEC microseconds
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(1..))]
    pub live: Option<u32>,

    /// The host that sessions at the relay are said to be of [default: this one]
    #[arg(long, value_name = "NAME")]
    pub hostname: Option<String>,

    /// Write all events to FILE, whatever trace they belong to
    #[arg(long, value_name = "FILE", conflicts_with = "directory")]
    pub into_file: Option<PathBuf>,

    /// Run in the background
    #[arg(long)]
    pub daemonize: bool,

    /// Bring events to the disk before more are read
    #[arg(long)]
    pub sync: bool,

    /// Refuse longer lines (suffixes k, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = line_size)]
    pub max_line: usize,

    /// Refuse more clients at a time
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_clients: u32,

    /// Refuse more open traces at a time
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_traces: u32,

    /// Let USER, a name or a number, connect too; may be given several times
    #[arg(long, value_name = "USER")]
    pub allow_user: Vec<String>,

    /// Let other users export below DIR, and only there
    #[arg(long, value_name = "DIR")]
    pub emit_root: Option<PathBuf>,

    /// What to do when there is no room for events
    #[arg(long, value_enum, default_value_t = Policy::Block)]
    pub when_full: Policy,
}

/// What to do when there is no room for events.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Policy {
    /// Programs wait.
    Block,
    /// New events are dropped and counted.
    DropNewest,
}

/// What to list.
#[derive(Debug, Args)]
pub struct List {
    /// Where traces are.
    #[command(flatten)]
    pub directory: Directory,

    /// Also time of last change, size, events, clients, and what was wrong with events
    #[arg(short, long)]
    pub long: bool,
}

/// What to remove.
#[derive(Debug, Args)]
pub struct Clear {
    /// Where traces are.
    #[command(flatten)]
    pub directory: Directory,

    /// Empty those that are being written, too
    #[arg(long)]
    pub force: bool,
}

/// What to export.
#[derive(Debug, Args)]
pub struct GetTef {
    /// Path of a trace; with -d, name of a file there; or: latest
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,

    /// Where traces are.
    #[command(flatten)]
    pub directory: Directory,

    /// Write to OUT instead of standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,

    /// For whom: an array of events, or an object with the events in it
    #[arg(long = "for", value_enum, default_value_t = Reader::Any)]
    pub reader: Reader,
}

/// Who is to read an export.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Reader {
    /// An array of events.
    Any,
    /// An object, by which Perfetto knows an empty trace as well.
    Perfetto,
}

impl Arguments {
    /// From which level on is logged, unless `RUST_LOG` says otherwise: nothing while all is well.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        logging::level(self.verbose)
    }
}

impl Serve {
    /// What is said of the daemon.
    ///
    /// # Errors
    /// If a number does not fit this machine.
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
            emit_root: self.emit_root.clone(),
            when_full: self.when_full.into(),
        })
    }

    /// What is said of the relay. None: there is none.
    ///
    /// # Errors
    /// If what is named cannot be one.
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

impl From<Policy> for WhenFull {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Block => Self::Block,
            Policy::DropNewest => Self::DropNewest,
        }
    }
}

impl From<Reader> for DocumentForm {
    fn from(reader: Reader) -> Self {
        match reader {
            Reader::Any => Self::Array,
            Reader::Perfetto => Self::Object,
        }
    }
}

/// A number of bytes that a line may have: `4096`, `16k`, `32M`, `1G`.
fn line_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1 << 10),
        Some((at, 'M')) => (text.get(..at), 1 << 20),
        Some((at, 'G')) => (text.get(..at), 1 << 30),
        _ => (Some(text), 1_usize),
    };
    digits
        .and_then(|digits| digits.parse::<usize>().ok())
        .and_then(|number| number.checked_mul(unit))
        .filter(|size| (2..=MAX_LINE_BYTES).contains(size))
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
    fn line_sizes_have_suffixes_and_bounds() {
        assert_eq!(line_size("16k"), Ok(16 << 10));
        assert_eq!(line_size("1G"), Ok(1 << 30));
        for text in ["", "k", "0", "1", "2G", "-1", "99999999999G"] {
            assert!(line_size(text).is_err(), "{text}");
        }
    }
}
