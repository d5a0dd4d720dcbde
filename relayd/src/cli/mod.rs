//! The command line: that of `lttng-relayd`, and what is ours by long names only. What it leaves open
//! the configuration files say (`file`), then the environment; the three become a `Config` in
//! `settle`.

mod file;
mod settle;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use daemon::endpoint::Endpoint;
use thiserror::Error;
use tracing::level_filters::LevelFilter;

use crate::config::LogFormat;
use crate::ingest::WhenFull;
use crate::limits::MIN_POOL;
use file::FileError;
pub(crate) use file::switch;

/// The release of LTTng whose relay daemon this one stands in for. Packages compare it.
const STANDS_IN_FOR: &str = "2.15.0";

const EXAMPLES: &str = "\
Examples:
  relayd                                  Write to ~/lttng-traces; viewers on this host only
  relayd -o /srv/traces                   Write to /srv/traces
  relayd -L tcp://0.0.0.0:5344            Let viewers in from everywhere
  relayd -d -v -o /srv/traces             In the background, telling what happens

On the traced host:
  lttng create NAME --live --set-url=net://COLLECTOR

To watch:
  babeltrace2 -i lttng-live net://COLLECTOR/host/TRACED/NAME

A URL is tcp://HOST[:PORT], or tcp6://HOST[:PORT] for IPv6. Long options may be shortened, and
may stand in the section [relayd] of /etc/lttng/lttng.conf, $LTTNG_HOME/.lttng/lttng.conf and the
--config FILE, each line NAME=VALUE; the later counts, the command line most.

Variables:
  LTTNG_HOME                        Home for traces and run folder [default: $HOME]
  LTTNG_RUNDIR                      Run folder [default: /var/run/lttng, $LTTNG_HOME/.lttng]
  LTTNG_RELAYD_HEALTH               Health socket [default: relayd/health-PID in the run folder]
  LTTNG_RELAYD_WORKING_DIRECTORY    As --working-directory
  LTTNG_RELAYD_DISALLOW_CLEAR       1: as --disallow-clear
  LTTNG_NETWORK_SOCKET_TIMEOUT      Milliseconds that a peer in the middle of something has
  LTTNG_RELAYD_TCP_KEEP_ALIVE       0: do not ask silent peers whether they are there
  ..._IDLE_TIME, _PROBE_INTERVAL, _MAX_PROBE_COUNT, _ABORT_THRESHOLD
                                    When, how often, and until when they are asked
  RUST_LOG                          What is logged; overrides -v";

/// Take trace data from LTTng session daemons, write CTF traces, and serve live viewers.
#[derive(Debug, Clone, Default, Parser)]
#[command(
    name = "relayd",
    infer_long_args = true,
    args_override_self = true,
    disable_version_flag = true,
    after_help = EXAMPLES
)]
pub struct Arguments {
    /// Listen for producers' commands on URL [default: tcp://0.0.0.0:5342]
    #[arg(short = 'C', long, value_name = "URL")]
    control_port: Option<Endpoint>,

    /// Listen for producers' packets on URL [default: tcp://0.0.0.0:5343]
    #[arg(short = 'D', long, value_name = "URL")]
    data_port: Option<Endpoint>,

    /// Listen for viewers on URL [default: tcp://localhost:5344]
    #[arg(short = 'L', long, value_name = "URL")]
    live_port: Option<Endpoint>,

    /// Write traces below DIR, an absolute path [default: $LTTNG_HOME/lttng-traces, or
    /// $HOME/lttng-traces]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Write each trace to HOST/SESSION-DATE [default]
    #[arg(short = 'p', long, conflicts_with = "group_output_by_session")]
    group_output_by_host: bool,

    /// Write each trace to SESSION/HOST-DATE
    #[arg(short = 's', long)]
    group_output_by_session: bool,

    /// Refuse `lttng clear`: what has been recorded stays
    #[arg(short = 'x', long)]
    disallow_clear: bool,

    /// Run in the background, keeping standard output and error
    #[arg(short, long)]
    background: bool,

    /// Run in the background
    #[arg(short, long)]
    daemonize: bool,

    /// Work in DIR
    #[arg(short, long, value_name = "DIR")]
    working_directory: Option<PathBuf>,

    /// Let the members of group NAME ask how the relay is [default: tracing]
    #[arg(short, long, value_name = "NAME")]
    group: Option<String>,

    /// Read options from FILE, after those of the system and the user
    #[arg(short = 'f', long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Write the process number to FILE while the relay runs
    #[arg(short = 'P', long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Send SIGUSR1 to the parent when all ports accept
    #[arg(short = 'S', long)]
    sig_parent: bool,

    /// Let port 0 take any free port, as it always does here
    #[arg(long)]
    dynamic_port_allocation: bool,

    /// Keep no more than N trace files open, at least 100 [default: three quarters of what the
    /// system allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(MIN_POOL..))]
    fd_pool_size: Option<u32>,

    /// Give a missing packet up when N packets of its stream have come after it [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    reorder_packets: Option<u32>,

    /// Give a missing packet up when SIZE bytes of its stream have come after it (suffixes k, M, G)
    /// [default: 32M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    reorder_bytes: Option<u64>,

    /// Keep no more than SIZE bytes of early packets in memory, a quarter of that of one session:
    /// beyond, missing packets are given up sooner [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    reorder_memory: Option<u64>,

    /// When the disk is full, let producers wait until there is space, or close their sessions
    /// [default: pause]
    #[arg(
        long,
        value_name = "pause|close",
        value_enum,
        hide_possible_values = true
    )]
    on_disk_full: Option<WhenFull>,

    /// Tell those who keep watch how the relay is, over HTTP on [HOST:]PORT: /metrics, /healthz,
    /// /readyz, /sessions. Without HOST, on this host only
    #[arg(long, value_name = "[HOST:]PORT", value_parser = Endpoint::parse_http)]
    http: Option<Endpoint>,

    /// Log lines of text, or a JSON object each [default: text]
    #[arg(
        long,
        value_name = "text|json",
        value_enum,
        hide_possible_values = true
    )]
    log_format: Option<LogFormat>,

    /// Tell more: -v what happens, -vv details, -vvv every packet
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Show the version; with -v, also the protocol versions
    #[arg(short = 'V', long)]
    version: bool,

    /// As with the reference, operands are ignored.
    #[arg(hide = true)]
    operands: Vec<OsString>,
}

/// Why the relay cannot be told what it is told.
#[derive(Debug, Error)]
pub enum ArgumentError {
    /// A relative output would move with the working directory.
    #[error("--output {0}: the path must be absolute")]
    RelativeOutput(PathBuf),
    /// There is no default for the output.
    #[error("neither --output, LTTNG_HOME nor HOME says where to write traces")]
    NoHome,
    /// A relative path, and no directory that it begins in.
    #[error("{0}: there is no working directory")]
    Adrift(PathBuf),
    /// The system does not allow so many open files.
    #[error("--fd-pool-size {asked}: the system allows {allowed} open files")]
    PoolBeyondLimit {
        /// How many were asked for.
        asked: u32,
        /// How many there may be.
        allowed: u64,
    },
    /// A variable that must not be misunderstood.
    #[error("{0}: neither of 1, yes, true, on, 0, no, false, off")]
    Variable(&'static str),
    /// A configuration file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// How the relay is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As a child of whoever started it.
    Foreground,
    /// On its own, with standard output and error where they were.
    Background,
    /// On its own, silent.
    Daemon,
}

impl Arguments {
    /// What to print if only the version was asked for.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let brief = format!("{STANDS_IN_FOR}\n");
        let ours = relay_proto::Version::OURS;
        let details = format!(
            "{brief}{} {}\nproducers: protocol 2.4 to {}.{}\nviewers: protocol 2.4 to 2.{}\n",
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            ours.major,
            ours.minor,
            viewer_proto::Minor::OURS.0,
        );
        self.version
            .then_some(if self.verbose > 0 { details } else { brief })
    }

    /// How the relay is to run.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match (self.daemonize, self.background) {
            (true, _) => Mode::Daemon,
            (_, true) => Mode::Background,
            _ => Mode::Foreground,
        }
    }

    /// What lines of the log look like.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        self.log_format.unwrap_or_default()
    }

    /// From which level on is logged, unless `RUST_LOG` says otherwise: nothing while all is well.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        daemon::logging::level(self.verbose)
    }
}

/// A number of bytes: `4096`, `16k`, `32M`, `1G`.
fn size(text: &str) -> Result<u64, String> {
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

    fn parse(arguments: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["relayd"], arguments].concat()).unwrap()
    }

    #[test]
    fn options_are_those_of_the_reference() {
        assert_eq!(parse(&["-dvv"]).mode(), Mode::Daemon);
        assert_eq!(parse(&["--backgr", "operand"]).mode(), Mode::Background);
        assert_eq!(parse(&["-b", "-d"]).mode(), Mode::Daemon);
        assert_eq!(parse(&["-dvv"]).log_level(), LevelFilter::DEBUG);
        let twice = parse(&["-o", "/a", "-o", "/b", "--verbose", "-v"]);
        assert_eq!(twice.output, Some(PathBuf::from("/b")));
        assert_eq!(twice.verbose, 2);
        for abbreviated in [
            "--group-output-by-s",
            "--disallow",
            "--working-dir=/",
            "--fd-pool=100",
            "--pid=/run/pid",
            "--sig",
            "--dynamic",
        ] {
            parse(&[abbreviated]);
        }
        assert_eq!(parse(&["--group=wheel"]).group.as_deref(), Some("wheel"));
        for wrong in [
            &["--no-such-option"][..],
            &["-C", "localhost"],
            &["-p", "-s"],
            &["--group-output"],
            &["--fd-pool-size=99"],
            &["--fd-pool-size=many"],
        ] {
            let arguments = [&["relayd"], wrong].concat();
            assert!(Arguments::try_parse_from(arguments).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_version_comes_first_and_alone() {
        assert_eq!(parse(&["-V"]).version().unwrap(), "2.15.0\n");
        assert!(
            parse(&["-V", "-v"])
                .version()
                .unwrap()
                .contains("protocol 2.4 to 2.15")
        );
        assert_eq!(parse(&[]).version(), None);
    }

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("16k", 16 << 10),
            ("32M", 32 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes));
        }
        for text in ["", "k", "1T", "99999999999G", "-1"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
