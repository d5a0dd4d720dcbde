//! The command line of `test-live web`.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use daemon::output::print_message;
use timeline::TimelineSettings;
use viewer::attach::target::Target;
use viewer::filter::Filter;
use viewer::run::UsageError;

use super::{AlignArguments, ArchiveArguments, DebugInfoArguments, SeekTo, TlsArguments};
use crate::sink::SINKS;

/// Smallest and largest number of rows of the history. A row takes 32 bytes.
const HISTORIES: std::ops::RangeInclusive<u64> = 10_000..=1_000_000_000;
/// The number of rows of the history, unless only directories are shown.
const LIVE_HISTORY: u64 = 10_000_000;
/// Memory of a row with all that belongs to it, in bytes.
const ROW_BYTES: u64 = 36;

/// Show a live timeline in a browser.
///
/// test-live web serves a page on a port of this host, and prints its URL. The page shows the
/// spans, instants, counters and losses of all sessions by process and thread, and follows them
/// while they are recorded. Sessions appear and go without a reload. A host that is called web is
/// the target net://web.
///
/// The history is bounded: the oldest events are dropped, or kept on disk (--history-dir). When all
/// targets have ended, the history is served until SIGINT or SIGTERM.
#[derive(Debug, Parser)]
#[command(after_help = EXAMPLES)]
pub struct WebArguments {
    /// Relays, archives, sessions and directories, as those of test-live.
    #[arg(value_name = "TARGET", required = true)]
    pub targets: Vec<Target>,
    /// Listen on ADDRESS, at port 5380 or PORT; with port 0 on a free port. On an address that
    /// other hosts reach, the URL has a token, without which nobody gets the page; what is sent is
    /// not encrypted without --https-cert.
    #[arg(
        long,
        value_name = "ADDRESS[:PORT]",
        default_value = "127.0.0.1:5380",
        value_parser = parse_listen
    )]
    pub listen: SocketAddr,
    /// Take the token of the URL from FILE, instead of a new one at each start.
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
    /// Accept the token for SECONDS only, and close the pages then; on any address the URL has a
    /// token then.
    #[arg(long, value_name = "SECONDS", value_parser = parse_lifetime)]
    pub token_lifetime: Option<Duration>,
    /// Encrypt the page (https), with the certificate in FILE, in PEM; intermediate ones may follow
    /// it.
    #[arg(long, value_name = "FILE", requires = "https_key")]
    pub https_cert: Option<PathBuf>,
    /// Private key of --https-cert, in PEM.
    #[arg(long, value_name = "FILE", requires = "https_cert")]
    pub https_key: Option<PathBuf>,
    /// Show only events that match EXPR, for example '$name == "sched_*"'; doc/filter.md describes
    /// the language.
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,
    /// What finds functions and source lines.
    #[command(flatten)]
    pub debug_info: DebugInfoArguments,
    /// Keep about N rows (spans, instants and values of counters) in memory, each in 32 bytes;
    /// default: 10000000, or if all targets are directories, as many as take a quarter of the
    /// memory of this host.
    #[arg(long, value_name = "N", value_parser = parse_history)]
    pub history: Option<usize>,
    /// Keep older rows, up to four times as many, in a file without a name in DIR, as long as a
    /// twentieth of its file system stays free; default if all targets are directories: $TMPDIR, or
    /// /var/tmp.
    #[arg(long, value_name = "DIR")]
    pub history_dir: Option<PathBuf>,
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
    /// Log more to standard error; may be given up to three times.
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

const EXAMPLES: &str = "\
Examples:
  Show all live sessions of the relay on the host COLLECTOR:
    test-live web COLLECTOR

  Show a recording, on any free port:
    test-live web --listen 127.0.0.1:0 ~/lttng-traces/my-session-20260101-101500

  Let other hosts open the page, for an hour:
    test-live web --listen 0.0.0.0:5380 --token-lifetime 3600 COLLECTOR

  The same, encrypted:
    test-live web --listen 0.0.0.0:5380 --https-cert viewer.pem --https-key viewer.key COLLECTOR

Exit status:
  0    A signal ended it.
  1    Something could not be read, there was no session, or the port cannot be opened.
  2    The command line is invalid.
  130  A second signal ended the process.";

/// The default port of the page.
const DEFAULT_PORT: u16 = 5380;

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>();
    let address = address.map(|address| SocketAddr::new(address, DEFAULT_PORT));
    let address = address.or_else(|_| text.parse());
    address.map_err(|_| "expected an address of this host, such as 0.0.0.0:5380".to_owned())
}

fn parse_lifetime(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err("expected a number of seconds, at least 1".to_owned()),
    }
}

fn parse_history(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| HISTORIES.contains(number));
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| {
        let (min, max) = (HISTORIES.start(), HISTORIES.end());
        format!("expected {min} to {max} rows")
    })
}

/// The number of rows of the history on a host with so much memory in bytes, which recordings need
/// to be seen whole; `None` for live sessions.
fn default_history(memory: Option<u64>) -> usize {
    let rows = memory.map_or(LIVE_HISTORY, |bytes| bytes / 4 / ROW_BYTES);
    usize::try_from(rows.clamp(LIVE_HISTORY, *HISTORIES.end())).unwrap_or(usize::MAX)
}

/// A file without a name where large temporary files are. That is not `/tmp`, which may be in
/// memory.
fn unnamed_file() -> Option<File> {
    let chosen = std::env::var_os("TMPDIR").filter(|directory| !directory.is_empty());
    let directory = PathBuf::from(chosen.unwrap_or_else(|| "/var/tmp".into()));
    let file = tempfile::tempfile_in(&directory);
    file.inspect_err(|error| {
        print_message(format_args!(
            "test-live: {}: {error}: of recordings larger than memory the oldest events will be dropped; \
             name another directory by --history-dir",
            directory.display()
        ));
    })
    .ok()
}

/// The memory of this host, in bytes.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    // 64 bits at most on any system.
    (info.totalram as u64).saturating_mul(info.mem_unit.into())
}

impl WebArguments {
    /// The settings of the timeline.
    ///
    /// # Errors
    /// If the filter is wrong.
    pub fn settings(self) -> Result<TimelineSettings, UsageError> {
        let filter = match &self.filter {
            Some(text) => Some(Filter::parse(text).map_err(|error| UsageError(error.to_string()))?),
            None => None,
        };
        let are_directories = self
            .targets
            .iter()
            .all(|target| matches!(target, Target::Directory(_)));
        let default = || default_history(are_directories.then(memory_bytes));
        let history = self.history.unwrap_or_else(default);
        let history_file = match &self.history_dir {
            Some(directory) => Some(tempfile::tempfile_in(directory).map_err(|error| {
                UsageError(format!("--history-dir {}: {error}", directory.display()))
            })?),
            None if are_directories => unnamed_file(),
            None => None,
        };
        Ok(TimelineSettings {
            targets: self.targets,
            seek: self.seek.into(),
            filter,
            align: self.align.by(),
            debug_info: self.debug_info.open(),
            history,
            history_file,
            listen: self.listen,
            token: self.token,
            token_lifetime: self.token_lifetime,
            certificate: self.https_cert.zip(self.https_key),
            formats: SINKS.iter().filter_map(|sink| sink.download).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn history_and_lifetime_of_the_token_have_limits() {
        WebArguments::command().debug_assert();
        let parse = |words: &[&str]| WebArguments::try_parse_from(words);
        assert!(parse(&["web", "--history", "10000", "host"]).is_ok());
        assert!(parse(&["web", "--history", "9", "host"]).is_err());
        assert!(parse(&["web", "--token-lifetime", "0", "host"]).is_err());
        assert!(parse(&["web"]).is_err());
        let default = parse(&["web", "host"]).unwrap();
        assert!(default.listen.ip().is_loopback());
        for (text, want) in [
            ("0.0.0.0", "0.0.0.0:5380"),
            ("::1", "[::1]:5380"),
            ("[::]:0", "[::]:0"),
        ] {
            let web = parse(&["web", "--listen", text, "host"]).unwrap();
            assert_eq!(web.listen, want.parse().unwrap());
        }
        assert!(parse(&["web", "--listen", "here", "host"]).is_err());
    }

    #[test]
    fn recordings_have_a_history_that_fits_the_memory_of_the_host() {
        assert_eq!(default_history(None), 10_000_000);
        assert_eq!(default_history(Some(16 << 30)), 119_304_647);
        // A small host, and one with far more than anybody needs.
        assert_eq!(default_history(Some(1 << 30)), 10_000_000);
        assert_eq!(default_history(Some(u64::MAX)), 1_000_000_000);
        assert!(memory_bytes() > 1 << 20);
    }
}
