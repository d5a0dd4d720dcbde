//! The command line: the options of `lttng-relayd`, and further ones that have long names only.
//! `file` reads the configuration files, `value` the values of options; `resolve` makes a `Config`
//! of options, files, environment and defaults, in this order of precedence.

mod archive;
mod certs;
mod file;
mod resolve;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use daemon::endpoint::Endpoint;
use thiserror::Error;
use tracing::level_filters::LevelFilter;

pub use self::archive::{ArchiveArguments, ArchiveCommand, ArchiveLocation};
pub use self::certs::CertsArguments;
use crate::config::{LTTNG_RELEASE, LogFormat};
use crate::ingest::DiskFullPolicy;
use crate::limits::MIN_POOL;
use file::FileError;
use value::DurabilityLevel;

const EXAMPLES: &str = "\
Examples:
  relayd                                  Write to ~/lttng-traces; accept viewers from this host
  relayd -o /srv/traces                   Write to /srv/traces
  relayd -L tcp://0.0.0.0:5344            Accept viewers from all hosts
  relayd -d -o /srv/traces                Run in the background, with the log in syslog or the journal
  relayd -d -v -o /srv/traces --log-file /var/log/relayd.log
                                          Run in the background, and log sessions and connections
  relayd check-config FILE                Print the settings with which the relay would start
  relayd drain --http PORT                Have the relay with this status endpoint send its producers away

On the traced host:
  lttng create NAME --live --set-url=net://COLLECTOR

To watch the live session NAME of the host TRACED, with either viewer:
  test-live net://COLLECTOR/host/TRACED/NAME
  babeltrace2 -i lttng-live net://COLLECTOR/host/TRACED/NAME

A URL is tcp://HOST[:PORT], or tcp6://HOST[:PORT] for IPv6. With tls:// or tls6:// in its place, the
port accepts only encrypted connections; --tls-cert and --tls-key are needed, and `relayd certs` creates
them. SIZE is in bytes, with an optional suffix k, M or G. Long options may be abbreviated.

Configuration files set long options in the section [relayd], one NAME=VALUE per line. They are
read in this order: /etc/lttng/lttng.conf, $LTTNG_HOME/.lttng/lttng.conf, --config FILE. Later
files override earlier ones, and the command line overrides all of them.

Variables:
  LTTNG_HOME                        Parent directory of lttng-traces and .lttng [default: $HOME]
  LTTNG_RUNDIR                      Run directory [default: /var/run/lttng for root, otherwise
                                    $LTTNG_HOME/.lttng]
  LTTNG_RELAYD_HEALTH               Health socket [default: relayd/health-PID in the run directory]
  LTTNG_RELAYD_WORKING_DIRECTORY    Same as --working-directory
  LTTNG_RELAYD_DISALLOW_CLEAR       1: same as --disallow-clear; 0: no effect
  LTTNG_NETWORK_SOCKET_TIMEOUT      Timeout in milliseconds for a peer that stops in the middle of a
                                    command, packet or reply
  LTTNG_RELAYD_TCP_KEEP_ALIVE       0: disable TCP keep-alive probes
  ..._IDLE_TIME, _PROBE_INTERVAL    Same prefix: seconds of silence before the first probe, and
                                    between probes
  ..._MAX_PROBE_COUNT               Unanswered probes after which the connection is closed
  ..._ABORT_THRESHOLD               Seconds without an answer after which it is closed
  RUST_LOG                          Log levels, such as relayd::ingest=trace; overrides -v";

/// Receive trace data from LTTng session daemons, write CTF traces, and serve live viewers.
#[derive(Debug, Parser)]
#[command(
    name = "relayd",
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub struct CommandLine {
    /// The command. None: the relay runs.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The options of the relay.
    #[command(flatten)]
    pub options: Arguments,

    /// Operands are ignored, as `lttng-relayd` does.
    #[arg(hide = true)]
    operands: Vec<OsString>,
}

/// The commands of `relayd`. Any other first word is an operand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check options and configuration files, and print the settings
    CheckConfig(Box<CheckArguments>),
    /// Check the relay that runs, or whether one would: ports, disk, limits and clock
    Doctor(Box<CheckArguments>),
    /// Have a relay send its producers to another one, and wait until they are gone
    Drain(Box<SettingsArguments>),
    /// Check an object store, and list and verify the archive in it
    Archive(ArchiveArguments),
    /// Create a CA, and certificates for a relay and its clients
    Certs(CertsArguments),
}

/// The arguments of a command that checks settings.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The settings.
    #[command(flatten)]
    pub settings: SettingsArguments,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The settings of a relay: those with which `relayd` would start with the same options.
#[derive(Debug, Args)]
pub struct SettingsArguments {
    #[command(flatten)]
    options: Arguments,

    /// Same as --config FILE
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

/// The options of the relay, which configuration files may set, too.
#[derive(Debug, Clone, Default, PartialEq, Parser)]
#[command(
    name = "relayd",
    infer_long_args = true,
    args_override_self = true,
    disable_version_flag = true
)]
pub struct Arguments {
    /// Listen for producers' control connections on URL [default: tcp://0.0.0.0:5342]
    #[arg(short = 'C', long, value_name = "URL")]
    control_port: Option<Endpoint>,

    /// Listen for producers' data connections on URL [default: tcp://0.0.0.0:5343]
    #[arg(short = 'D', long, value_name = "URL")]
    data_port: Option<Endpoint>,

    /// Listen for viewers on URL [default: tcp://localhost:5344]
    #[arg(short = 'L', long, value_name = "URL")]
    live_port: Option<Endpoint>,

    /// Certificate of the tls:// ports, in PEM; intermediate certificates follow it. SIGHUP reads
    /// it again
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Require certificates of a CA in FILE, in PEM: producers need the role `produce`, viewers the
    /// role `view`
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// Write traces below DIR, an absolute path [default: $LTTNG_HOME/lttng-traces, or
    /// $HOME/lttng-traces]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Write the traces of each session to HOST/SESSION-DATE [default]
    #[arg(short = 'p', long, conflicts_with = "group_output_by_session")]
    group_output_by_host: bool,

    /// Write the traces of each session to SESSION/HOST-DATE
    #[arg(short = 's', long)]
    group_output_by_session: bool,

    /// Reject `lttng clear`, and keep what has been recorded
    #[arg(short = 'x', long)]
    disallow_clear: bool,

    /// Run in the background, and keep standard output and error open
    #[arg(short, long)]
    background: bool,

    /// Run in the background, and redirect standard input, output and error to /dev/null. The log
    /// goes to syslog or the journal, unless --log-file is given
    #[arg(short, long)]
    daemonize: bool,

    /// Change the working directory to DIR
    #[arg(short, long, value_name = "DIR")]
    working_directory: Option<PathBuf>,

    /// Let members of group NAME query the health socket [default: tracing]
    #[arg(short, long, value_name = "NAME")]
    group: Option<String>,

    /// Read options from FILE, after the configuration files of the system and the user
    #[arg(short = 'f', long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Write the process ID to FILE, and remove FILE on exit
    #[arg(short = 'P', long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Send SIGUSR1 to the parent process when all ports accept connections
    #[arg(short = 'S', long)]
    sig_parent: bool,

    /// Accepted for compatibility: port 0 always selects a free port
    #[arg(long)]
    dynamic_port_allocation: bool,

    /// Keep at most N trace files open, at least 100 [default: three quarters of the limit of open
    /// files]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(MIN_POOL..))]
    fd_pool_size: Option<u32>,

    /// Give up a missing packet once N later packets of its stream have arrived, 1 to 65536
    /// [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    reorder_packets: Option<u32>,

    /// Give up a missing packet once SIZE bytes of later packets of its stream have arrived
    /// [default: 32M]
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse)]
    reorder_bytes: Option<u64>,

    /// Hold at most SIZE bytes of packets that wait for a missing one, over all sessions, and a
    /// quarter of SIZE per session; above that, missing packets are given up sooner [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse)]
    reorder_memory: Option<u64>,

    /// When the disk is full, pause producers until space is available, or close their sessions
    /// [default: pause]
    #[arg(
        long,
        value_name = "pause|close",
        value_enum,
        hide_possible_values = true
    )]
    on_disk_full: Option<DiskFullPolicy>,

    /// What the reply to a producer guarantees of its data: process: it is written, and survives
    /// the end of relayd; interval: it is synced to the disk within --sync-interval; packet: it is
    /// synced, and survives a power failure; archive: it is in the archive, and survives the loss
    /// of this host [default: process]
    #[arg(
        long,
        value_name = "process|interval|packet|archive",
        value_parser = value::durability(),
        hide_possible_values = true
    )]
    durability: Option<DurabilityLevel>,

    /// Copy all traces to the archive at URL: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    /// az://CONTAINER/PREFIX or file:///DIR. Credentials come from the usual variables (AWS_*) and
    /// files, or the role of the instance
    #[arg(long, value_name = "URL")]
    archive: Option<String>,

    /// Use the server at URL, such as one of Ceph, in place of the provider's own [default:
    /// $AWS_ENDPOINT_URL]
    #[arg(long, value_name = "URL")]
    archive_endpoint: Option<String>,

    /// Write to the archive every DURATION, or sooner if there are 8 MiB [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = daemon::duration::parse)]
    archive_interval: Option<Duration>,

    /// Write what each session has as one object, for readers, when the oldest of it is this old,
    /// or there are 64 MiB, or the session ends [default: 15m]
    #[arg(long, value_name = "DURATION", value_parser = daemon::duration::parse)]
    archive_part_age: Option<Duration>,

    /// Show viewers the sessions of the archive that ended no longer than DURATION ago, besides
    /// those that are recorded now, by this relay or others with the archive [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = daemon::duration::parse)]
    archive_list: Option<Duration>,

    /// Sync to the disk every MS milliseconds, 1 to 3600000. Without effect with
    /// --durability=process [default: 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    sync_interval: Option<u32>,

    /// Keep sessions of producers that can resume them for at most SECONDS after the connection was
    /// lost or the relay was restarted; 0: end them with their connection [default: 600]
    #[arg(long, value_name = "SECONDS")]
    resume_timeout: Option<u32>,

    /// Remove sessions that nobody has written for AGE, such as 12h, 30d or 8w. Sessions that are
    /// open are never removed
    #[arg(long, value_name = "AGE", value_parser = daemon::duration::parse)]
    retain_age: Option<Duration>,

    /// Remove the oldest closed sessions while all sessions together take more than SIZE of disk
    /// space
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse)]
    retain_size: Option<u64>,

    /// Serve the status endpoint over HTTP on [HOST:]PORT: /metrics, /healthz, /readyz, /sessions.
    /// Without HOST, accept connections from this host only
    #[arg(long, value_name = "[HOST:]PORT", value_parser = Endpoint::parse_http)]
    http: Option<Endpoint>,

    /// Serve producers and viewers over QUIC on the UDP port of URL, quic://HOST[:PORT]; needs
    /// --tls-cert and --tls-key [default port: 5346]
    #[arg(long, value_name = "URL", value_parser = Endpoint::parse_quic)]
    quic: Option<Endpoint>,

    /// Log as lines of text, or as one JSON object per line [default: text]
    #[arg(
        long,
        value_name = "text|json",
        value_enum,
        hide_possible_values = true
    )]
    log_format: Option<LogFormat>,

    /// Append the log to PATH instead of standard error. SIGHUP opens PATH again, for logrotate
    #[arg(long, value_name = "PATH")]
    log_file: Option<PathBuf>,

    /// Log more: -v sessions and connections, -vv details, -vvv every packet
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Print the version; with -v, also the protocol versions
    #[arg(short = 'V', long)]
    version: bool,
}

/// An option, file or variable that the relay cannot start with.
#[derive(Debug, Error)]
pub enum ArgumentError {
    /// The output is a relative path, which would change with the working directory.
    #[error("--output {0}: the path must be absolute")]
    RelativeOutput(PathBuf),
    /// No output is given, and there is no home directory for the default.
    #[error("no output directory: set --output, LTTNG_HOME or HOME")]
    NoHome,
    /// The path is relative, and the process has no working directory.
    #[error("cannot resolve {0}: the working directory does not exist")]
    NoWorkingDirectory(PathBuf),
    /// The pool is larger than the process's limit of open files.
    #[error("--fd-pool-size {asked}: the system allows {allowed} open files")]
    PoolBeyondLimit {
        /// Value of the option, in files.
        asked: u32,
        /// Limit of open files of the process.
        allowed: u64,
    },
    /// A port is encrypted, and there is no certificate for it.
    #[error("{0} needs --tls-cert and --tls-key; `relayd certs` creates the files")]
    NoCertificate(Endpoint),
    /// Certificates are given, and no port uses them: all would be readable.
    #[error(
        "--tls-cert, --tls-key and --tls-client-ca are for tls:// ports and --quic, and there is none; give for example -C tls://0.0.0.0"
    )]
    UnusedCertificate,
    /// `--durability=archive` without an archive.
    #[error("--durability=archive needs --archive URL")]
    NoArchive,
    /// An option about the archive without an archive.
    #[error("{0} needs --archive URL")]
    UnusedArchiveOption(&'static str),
    /// An interval or age of zero.
    #[error("{0} must be longer than 0")]
    NoTime(&'static str),
    /// A variable that takes a boolean has another value.
    #[error("invalid value of {0}: expected 1, yes, true, on, 0, no, false or off")]
    Variable(&'static str),
    /// A configuration file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Whether the relay detaches from the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The relay stays a child of the process that started it.
    Foreground,
    /// The relay detaches, and keeps standard output and error.
    Background,
    /// The relay detaches, and redirects standard output and error to `/dev/null`.
    Daemon,
}

impl SettingsArguments {
    /// The options, with the file that the operand names.
    #[must_use]
    pub fn options(self) -> Arguments {
        Arguments {
            config: self.options.config.or(self.file),
            ..self.options
        }
    }
}

impl Arguments {
    /// The text that `--version` prints. None without that option.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let brief = format!("{LTTNG_RELEASE}\n");
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

    /// Whether there is an option that says more than which relay is meant.
    #[must_use]
    pub fn has_settings(&self) -> bool {
        let name = Self {
            pid_file: self.pid_file.clone(),
            ..Self::default()
        };
        *self != name
    }

    /// The file with the process id. None: none is named.
    #[must_use]
    pub fn pid_file(&self) -> Option<&Path> {
        self.pid_file.as_deref()
    }

    /// Whether the relay detaches; `--daemonize` takes precedence over `--background`.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match (self.daemonize, self.background) {
            (true, _) => Mode::Daemon,
            (_, true) => Mode::Background,
            _ => Mode::Foreground,
        }
    }

    /// Format of the log lines; text by default.
    #[must_use]
    pub fn log_format(&self) -> LogFormat {
        self.log_format.unwrap_or_default()
    }

    /// The file that the log is appended to. None: none is named.
    #[must_use]
    pub fn log_file(&self) -> Option<&Path> {
        self.log_file.as_deref()
    }

    /// Lowest level that is logged unless `RUST_LOG` is set: warnings without `-v`.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        daemon::logging::level(self.verbose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Arguments {
        let words = [&["relayd"], arguments].concat();
        CommandLine::try_parse_from(words).unwrap().options
    }

    #[test]
    fn options_of_lttng_relayd_are_accepted_and_invalid_ones_are_rejected() {
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
            assert!(CommandLine::try_parse_from(arguments).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_the_first_word_is_a_command_and_other_operands_are_ignored() {
        let command = |words: &[&str]| {
            let words = [&["relayd"], words].concat();
            CommandLine::try_parse_from(words).unwrap().command
        };
        for words in [
            &["check-config", "-o", "/t", "FILE"][..],
            &["doctor", "FILE", "--json"],
            &["drain", "--http=1", "FILE"],
        ] {
            let settings = match command(words) {
                Some(Command::CheckConfig(check) | Command::Doctor(check)) => check.settings,
                Some(Command::Drain(settings)) => *settings,
                other => panic!("{words:?}: {other:?}"),
            };
            assert_eq!(settings.options().config, Some("FILE".into()));
        }
        for words in [&["operand", "doctor"][..], &["-v", "certs"], &[]] {
            assert!(command(words).is_none(), "{words:?}");
        }
        for wrong in [
            &["doctor", "FILE", "FILE"][..],
            &["doctor", "--config=FILE", "FILE"],
        ] {
            let words = [&["relayd"], wrong].concat();
            assert!(CommandLine::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn version_option_prints_the_lttng_release_first_and_protocol_versions_with_verbose() {
        assert_eq!(parse(&["-V"]).version().unwrap(), "2.15.0\n");
        assert!(
            parse(&["-V", "-v"])
                .version()
                .unwrap()
                .contains("protocol 2.4 to 2.15")
        );
        assert_eq!(parse(&[]).version(), None);
    }
}
