//! The command line: that of `lttng-relayd`, and what is ours by long names only.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser};
use jiff::tz::TimeZone;
use thiserror::Error;
use tracing::level_filters::LevelFilter;
use wire::Bytes;

use crate::config::{Config, Endpoint};
use crate::ingest::reorder::Window;

/// The release of LTTng whose relay daemon this one stands in for. Packages compare it.
const STANDS_IN_FOR: &str = "2.15.0";

/// Ports, and addresses unless others are given.
const CONTROL: (&str, u16) = ("0.0.0.0", 5342);
const DATA: (&str, u16) = ("0.0.0.0", 5343);
const LIVE: (&str, u16) = ("localhost", 5344);

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

A URL is tcp://HOST[:PORT], or tcp6://HOST[:PORT] for IPv6. RUST_LOG selects what is logged and
overrides -v.";

/// Take trace data from LTTng session daemons, write CTF traces, and serve live viewers.
#[derive(Debug, Parser)]
#[command(
    name = "relayd",
    infer_long_args = true,
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

    /// Run in the background, keeping standard output and error
    #[arg(short, long, conflicts_with = "daemonize")]
    background: bool,

    /// Run in the background
    #[arg(short, long)]
    daemonize: bool,

    /// Give a missing packet up when N packets of its stream have come after it
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    reorder_packets: u32,

    /// Give a missing packet up when SIZE bytes of its stream have come after it (suffixes k, M, G)
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = size)]
    reorder_bytes: u64,

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

/// Why the arguments cannot be followed.
#[derive(Debug, Error)]
pub enum ArgumentError {
    /// A relative output would move with the working directory.
    #[error("--output {0}: the path must be absolute")]
    RelativeOutput(PathBuf),
    /// There is no default for the output.
    #[error("neither --output, LTTNG_HOME nor HOME says where to write traces")]
    NoHome,
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

    /// From which level on is logged, unless `RUST_LOG` says otherwise: nothing while all is well.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        match self.verbose {
            0 => LevelFilter::WARN,
            1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }

    /// What the relay is told.
    ///
    /// # Errors
    /// If it does not know where to write.
    pub fn config(self) -> Result<Config, ArgumentError> {
        let endpoint = |given: Option<Endpoint>, (host, port): (&str, u16)| {
            given.map_or_else(|| Endpoint::v4(host, port), |given| given.or_port(port))
        };
        let output = match self.output {
            Some(output) if output.is_absolute() => output,
            Some(output) => return Err(ArgumentError::RelativeOutput(output)),
            None => home().ok_or(ArgumentError::NoHome)?.join("lttng-traces"),
        };
        Ok(Config {
            output,
            control: endpoint(self.control_port, CONTROL),
            data: endpoint(self.data_port, DATA),
            live: endpoint(self.live_port, LIVE),
            window: Window {
                packets: self.reorder_packets as usize,
                bytes: Bytes(self.reorder_bytes),
            },
            time_zone: TimeZone::system(),
        })
    }
}

fn home() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    set("LTTNG_HOME").or_else(|| set("HOME")).map(PathBuf::from)
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
        let config = parse(&[
            "-o",
            "/out",
            "-C",
            "tcp://127.0.0.1:1",
            "--live-port=tcp6://::1",
        ])
        .config()
        .unwrap();
        assert_eq!(config.output, PathBuf::from("/out"));
        assert_eq!(config.control.to_string(), "tcp://127.0.0.1:1");
        assert_eq!(config.data.to_string(), "tcp://0.0.0.0:5343");
        assert_eq!(config.live.to_string(), "tcp6://[::1]:5344");
        assert_eq!(parse(&["-dvv"]).mode(), Mode::Daemon);
        assert_eq!(parse(&["--backgr", "operand"]).mode(), Mode::Background);
        assert_eq!(parse(&["-dvv"]).log_level(), LevelFilter::DEBUG);
        assert!(matches!(
            parse(&["-o", "out"]).config(),
            Err(ArgumentError::RelativeOutput(_))
        ));
        assert!(Arguments::try_parse_from(["relayd", "--no-such-option"]).is_err());
        assert!(Arguments::try_parse_from(["relayd", "-C", "localhost"]).is_err());
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
