//! The command line. Options of a sink are declared beside the sink. Options that `babeltrace2` has
//! too are called the same.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use transport::client_files::{ClientFiles, MissingFile};
use viewer::attach::target::Target;
use viewer::bound::TypedTime;
use viewer_proto::session::Seek;

use crate::sink::row::SinkRow;
use crate::sink::{SINKS, SinkOptions, text};

mod align;
mod debug_info;
mod info;
mod spans;
mod top;
mod web;

pub use align::AlignArguments;
pub use debug_info::DebugInfoArguments;
pub use info::InfoArguments;
pub use spans::{SpanGroup, SpanSort, SpansArguments};
pub use top::TopArguments;
pub use web::WebArguments;

/// Shortest and longest time between two samples or tables, in seconds.
const INTERVALS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Show events of live LTTng sessions while they are recorded, and read CTF traces.
///
/// test-live reads the events of all TARGETs, merges them in order of time and writes them to
/// standard output. Discarded events and lost packets are reported on standard error.
#[derive(Debug, Parser)]
#[command(
    name = "test-live",
    version,
    after_help = EXAMPLES,
    max_term_width = 100,
    // A command is the first word: further words of this name are refused as targets.
    args_conflicts_with_subcommands = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
pub struct Arguments {
    /// The command. None: the events of the targets are shown.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// List the sessions of the relays and archives, and exit.
    #[arg(short, long)]
    pub list: bool,
    /// Write the list of sessions as JSON.
    #[arg(long, requires = "list")]
    pub json: bool,
    /// What is read.
    #[command(flatten)]
    pub read: ReadArguments,
    /// Exit after N events that are shown.
    #[arg(long, value_name = "N", help_heading = "Selection")]
    pub limit: Option<u64>,

    /// Write events in this format.
    #[arg(long, value_parser = sink_parser(), default_value = text::ROW.name, help_heading = "Output")]
    pub sink: &'static SinkRow,
    /// Write to the file PATH instead of standard output; with --sink ctf, codetracer or parquet,
    /// to the directory PATH. -o is the same.
    #[arg(
        short = 'w',
        short_alias = 'o',
        long,
        value_name = "PATH",
        help_heading = "Output"
    )]
    pub output: Option<PathBuf>,
    /// The options of single sinks.
    #[command(flatten)]
    pub options: SinkOptions,
    /// Print help, and exit; --help prints more than -h.
    #[arg(short, long, action = ArgAction::Help, global = true)]
    help: Option<bool>,
    /// Print the version, and exit.
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// The commands. Any other first word is a target.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "the arguments of each say what it does")]
pub enum Command {
    Info(InfoArguments),
    Proxy(ProxyArguments),
    Spans(Box<SpansArguments>),
    Top(TopArguments),
    Web(Box<WebArguments>),
}

/// What is read, and which of its events: the options of commands that show events in order.
#[derive(Debug, Clone, Args)]
pub struct ReadArguments {
    /// The relays, archives and directories to read.
    #[arg(value_name = "TARGET", required = true, help = TARGETS)]
    pub targets: Vec<Target>,

    /// Where to begin in sessions that exist when test-live starts; later sessions are read from
    /// their beginning.
    #[arg(long, value_enum, default_value = "last", help_heading = "Live")]
    pub seek: SeekTo,
    /// Wait for further sessions, and for further packets of directories that are being written;
    /// default for a whole relay.
    #[arg(long, overrides_with = "no_follow", help_heading = "Live")]
    pub follow: bool,
    /// Exit when the sessions that exist have ended, and read directories only once; default for
    /// one session.
    #[arg(long, overrides_with = "follow", help_heading = "Live")]
    pub no_follow: bool,
    /// What to do if no session exists at the start; default: continue for a whole relay or with
    /// --follow, otherwise fail. With end, it is no error either if no event is selected.
    #[arg(long, value_enum, value_name = "ACTION", help_heading = "Live")]
    pub session_not_found: Option<NotFound>,
    /// Exit when the connection to a relay has been lost for SECONDS; 0: do not reconnect; default:
    /// reconnect until the relay is back.
    #[arg(long, value_name = "SECONDS", help_heading = "Live")]
    pub reconnect_timeout: Option<u64>,
    /// Exit when a relay cannot be reached or the connection is lost, instead of reconnecting.
    #[arg(long, conflicts_with = "reconnect_timeout", help_heading = "Live")]
    pub no_retry: bool,
    /// The certificates for encrypted relays.
    #[command(flatten)]
    pub tls: TlsArguments,
    /// The archives that relays write.
    #[command(flatten)]
    pub archive: ArchiveArguments,
    /// Poll the relay, even if it offers to push notifications of new packets.
    #[arg(long, help_heading = "Live")]
    pub poll: bool,

    /// Show no events before TIME: [YYYY-MM-DD ]HH:MM:SS[.N] or SECONDS[.N].
    #[arg(
        short,
        long,
        value_name = "TIME",
        help_heading = "Selection",
        allow_hyphen_values = true
    )]
    pub begin: Option<TypedTime>,
    /// Show no events after TIME, which has the same form as that of --begin.
    #[arg(
        short,
        long,
        value_name = "TIME",
        help_heading = "Selection",
        allow_hyphen_values = true
    )]
    pub end: Option<TypedTime>,
    /// Show only events that match EXPR, for example '$name == "sched_*" && prev_tid > 0';
    /// doc/filter.md describes the language.
    #[arg(long, value_name = "EXPR", help_heading = "Selection")]
    pub filter: Option<String>,
    /// Show only the time range in which all streams of a trace are active; for directories.
    #[arg(long, help_heading = "Selection")]
    pub stream_intersection: bool,

    /// What relates the clocks of hosts.
    #[command(flatten)]
    pub align: AlignArguments,

    /// What is shown of the addresses in events.
    #[command(flatten)]
    pub debug_info: DebugInfoArguments,

    /// Exit with status 1 if events or packets were lost, or metadata breaks a rule of CTF: nothing
    /// of such a trace is shown then.
    #[arg(long, help_heading = "Output")]
    pub strict: bool,
    /// Do not write notices and the summary to standard error.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Read directories with N threads, which changes nothing but the time; default: one for each
    /// processor, if the directories are large.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// Log more to standard error; may be given up to three times. RUST_LOG overrides it.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// The files of certificates for `nets://` and `quic://` targets.
#[derive(Debug, Clone, Default, Args)]
pub struct TlsArguments {
    /// Trust relays whose certificate is of a CA in FILE, in PEM; for nets:// and quic://.
    #[arg(long, value_name = "FILE", help_heading = "Live")]
    pub tls_ca: Option<PathBuf>,
    /// Show the relay the certificate in FILE, in PEM; it needs the role `view`.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Live")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Live"
    )]
    pub tls_key: Option<PathBuf>,
}

/// The options of `s3://` targets.
#[derive(Debug, Clone, Default, Args)]
pub struct ArchiveArguments {
    /// Read s3:// targets from the server at URL, which has the interface of S3; default:
    /// AWS_ENDPOINT_URL, or that of AWS. Credentials come from the environment, as those of
    /// relayd --archive.
    #[arg(long, value_name = "URL")]
    pub archive_endpoint: Option<String>,
}

/// Forward connections of viewers without encryption to an encrypted relay.
///
/// test-live proxy listens on a plain port of this host, and forwards each connection to the
/// encrypted port of a relay, until SIGINT or SIGTERM. A host that is called proxy is the target
/// net://proxy.
#[derive(Debug, Parser)]
#[command(after_help = PROXY_EXAMPLES)]
pub struct ProxyArguments {
    /// The live port of the relay: `nets://HOST[:PORT]`.
    #[arg(value_name = "TARGET")]
    pub target: Target,
    /// Listen on ADDRESS:PORT; with port 0 on a free port, which is printed.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5344")]
    pub listen: SocketAddr,
    /// Listen on an address that other hosts reach. What they send and see is not encrypted, and
    /// the relay takes them for this viewer.
    #[arg(long)]
    pub allow_remote: bool,
    /// The certificates for the relay.
    #[command(flatten)]
    pub tls: TlsArguments,
}

const PROXY_EXAMPLES: &str = "\
Example:
  test-live proxy nets://COLLECTOR --tls-ca ca.pem --tls-cert viewer.pem --tls-key viewer.key &
  babeltrace2 --input-format=lttng-live net://127.0.0.1/host/TRACED/my-session";

// Not a doc comment of the field, where rustdoc takes brackets for links.
const TARGETS: &str = "The source of events: HOST[:PORT] for all live sessions of a relay, \
net://HOST[:PORT]/host/TRACED/SESSION for one session, in both cases with a list HOST[:PORT],HOST[:PORT]... \
where one of several relays has them, s3://BUCKET[/PREFIX][/host/TRACED/SESSION] or \
file:///DIRECTORY[/host/TRACED/SESSION] for what relays have archived, or a directory with traces. nets:// or quic:// \
in place of net:// is an encrypted connection";

const EXAMPLES: &str = "\
Examples:
  Show all live sessions that the relay on the host COLLECTOR is recording:
    test-live COLLECTOR

  List these sessions:
    test-live --list COLLECTOR

  Show the session my-session of the host TRACED:
    test-live net://COLLECTOR/host/TRACED/my-session

  Show it by whichever of three relays has it, and go on at the next one when that is lost:
    test-live net://R1,R2,R3/host/TRACED/my-session

  Show the sessions of a relay with TLS:
    test-live --tls-ca ca.pem --tls-cert viewer.pem --tls-key viewer.key nets://COLLECTOR

  Let babeltrace2 read from it; see test-live proxy --help:
    test-live proxy --tls-ca ca.pem nets://COLLECTOR

  Show a recording as text:
    test-live ~/lttng-traces/my-session-20260101-101500

  Show what relays have archived of a session since then, without a relay:
    test-live s3://BUCKET/PREFIX/host/TRACED/my-session -b '2026-01-01 10:00:00'

  Show live sessions with lines for people:
    test-live --sink log COLLECTOR

  Show only events that match an expression:
    test-live --filter '$name == \"sched_*\" && prev_tid > 0' COLLECTOR

  Write a recording for ui.perfetto.dev:
    test-live --sink tef -w trace.json TRACE_DIR

  Write tables for DuckDB, Spark or Polars; s3://BUCKET/PREFIX instead of DIR puts them into a bucket:
    test-live --sink parquet -o DIR TRACE_DIR

  Keep a recording that CodeTracer opens, while its program runs:
    test-live --sink codetracer -o DIR net://COLLECTOR/host/TRACED/my-session

  Show events per second, by name and by stream:
    test-live --sink counter COLLECTOR

Exit status:
  0    All events were shown.
  1    Something could not be read, no session or event was found, or something was lost or metadata breaks a rule and --strict
       was given.
  2    The command line is invalid.
  130  A second signal ended the process.";

/// A place in a session to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SeekTo {
    /// The first packet that the relay still has.
    Beginning,
    /// The first packet after the start of test-live.
    Last,
}

impl From<SeekTo> for Seek {
    fn from(seek: SeekTo) -> Self {
        match seek {
            SeekTo::Beginning => Self::Beginning,
            SeekTo::Last => Self::Last,
        }
    }
}

/// An action if there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NotFound {
    /// Wait for the session.
    Continue,
    /// Exit with an error.
    Fail,
    /// Exit without an error.
    End,
}

/// The names of all sinks, each with its help.
fn sink_parser() -> impl TypedValueParser<Value = &'static SinkRow> {
    let names = SINKS
        .iter()
        .map(|row| PossibleValue::new(row.name).help(row.help));
    PossibleValuesParser::new(names).try_map(|name| {
        // Found in any case, because the parser accepts only these names.
        let row = SINKS.iter().copied().find(|row| row.name == name);
        row.ok_or("no such sink")
    })
}

impl TlsArguments {
    /// The files of certificates.
    ///
    /// # Errors
    /// If one is missing.
    pub fn files(&self) -> Result<ClientFiles, MissingFile> {
        let Self {
            tls_ca,
            tls_cert,
            tls_key,
        } = self.clone();
        ClientFiles::from_options(tls_ca, tls_cert, tls_key)
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    // This refuses NaN, too, because it is in no range.
    if !INTERVALS.contains(&seconds) {
        let (min, max) = (INTERVALS.start(), INTERVALS.end());
        return Err(format!("expected {min} to {max} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Gives archives their endpoint.
fn set_endpoint(targets: &mut [Target], archive: &ArchiveArguments) {
    for target in targets {
        if let Target::Archive(target) = target
            && !target.url.starts_with("file://")
        {
            target.endpoint.clone_from(&archive.archive_endpoint);
        }
    }
}

fn set_certificates(targets: &mut [Target], tls: &TlsArguments) -> Result<(), MissingFile> {
    for target in targets {
        if let Target::Relay(relay) = target
            && relay.is_tls
        {
            // Only here, because without such targets no file has to be named.
            relay.tls = Some(tls.files()?);
        }
    }
    Ok(())
}

impl Arguments {
    /// The arguments of a command line, of which the first word is the program. Exits if they are
    /// invalid, or help or the version was requested.
    #[must_use]
    pub fn from_words<W>(words: impl IntoIterator<Item = W>) -> Self
    where
        W: Into<OsString> + Clone,
    {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let mut arguments = Self::parse_from(&words);
        if arguments.command.is_none()
            && let Err(error) = check_no_command(&words)
        {
            let mut command = Self::command();
            command.error(ErrorKind::InvalidSubcommand, error).exit();
        }
        if let Err(error) = arguments.complete_targets() {
            let mut program = Self::command();
            // Gives commands the names that their usage shows.
            program.build();
            let command = words.get(1).and_then(|word| word.to_str());
            let command = command.filter(|name| program.find_subcommand(name).is_some());
            let command = command.and_then(|name| program.find_subcommand_mut(name));
            let error = match command {
                Some(command) => command.error(ErrorKind::MissingRequiredArgument, error),
                None => program.error(ErrorKind::MissingRequiredArgument, error),
            };
            error.exit();
        }
        arguments
    }

    /// Gives the targets their certificates and endpoints.
    ///
    /// # Errors
    /// If a file of an encrypted target is not named.
    fn complete_targets(&mut self) -> Result<(), MissingFile> {
        let (targets, tls, archive) = match &mut self.command {
            None => self.read.targets(),
            Some(Command::Info(info)) => (&mut info.targets, &info.tls, &info.archive),
            // It reads the options of certificates itself.
            Some(Command::Proxy(_)) => return Ok(()),
            Some(Command::Spans(spans)) => spans.read.targets(),
            Some(Command::Top(top)) => (&mut top.targets, &top.tls, &top.archive),
            Some(Command::Web(web)) => (&mut web.targets, &web.tls, &web.archive),
        };
        set_endpoint(targets, archive);
        set_certificates(targets, tls)
    }
}

/// Checks that no target is the name of a command, which does not come first. A viewer would wait
/// for a host of that name.
fn check_no_command(words: &[OsString]) -> Result<(), String> {
    // Once more, because a target does not keep how it was written.
    let matches = Arguments::command().try_get_matches_from(words);
    let matches = matches.map_err(|error| error.to_string())?;
    let mut targets = matches.get_raw("targets").into_iter().flatten();
    let program = Arguments::command();
    let is_command = |target: &&OsStr| program.find_subcommand(target).is_some();
    let Some(command) = targets.find(is_command).map(OsStr::to_string_lossy) else {
        return Ok(());
    };
    Err(format!(
        "the command '{command}' must be the first word: test-live {command} [OPTIONS] TARGET...; \
         a host or directory of this name is net://{command} or ./{command}"
    ))
}

impl ReadArguments {
    /// The targets, and the options that complete them.
    fn targets(&mut self) -> (&mut Vec<Target>, &TlsArguments, &ArchiveArguments) {
        (&mut self.targets, &self.tls, &self.archive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_command_that_does_not_come_first_is_refused() {
        let check = |words: &[&str]| {
            let words = [&["test-live"], words].concat();
            check_no_command(&words.into_iter().map(OsString::from).collect::<Vec<_>>())
        };
        let program = Arguments::command();
        for command in program.get_subcommands().map(clap::Command::get_name) {
            let error = check(&["--quiet", command, "shop"]).unwrap_err();
            let usage = format!("test-live {command} [OPTIONS]");
            assert!(error.contains(&usage), "{error}");
            assert!(check(&["shop", command]).is_err());
            let url = format!("net://{command}");
            assert_eq!(check(&["--quiet", &url, "--filter", command]), Ok(()));
        }
    }

    #[test]
    fn encrypted_targets_need_a_ca() {
        let with = |words: &[&str]| {
            let words = [&["test-live"], words].concat();
            let mut arguments = Arguments::try_parse_from(words).unwrap();
            set_certificates(&mut arguments.read.targets, &arguments.read.tls)
        };
        assert_eq!(with(&["nets://h"]), Err(MissingFile::Ca));
        assert_eq!(with(&["nets://h", "--tls-ca", "ca.pem"]), Ok(()));
        assert_eq!(with(&["net://h"]), Ok(()));
        let half = ["test-live", "nets://h", "--tls-cert", "c"];
        assert!(Arguments::try_parse_from(half).is_err());
        ProxyArguments::command().debug_assert();
    }
}
