//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use daemon::logging;
use tracing::level_filters::LevelFilter;

use crate::config::{Config, ConfigError, QueueConfig, RelayConfig, host_name};
use crate::frontend::replay::{self, Rate};
use crate::limits::DEFAULT_REPLAY_RECONNECT_TIMEOUT;
use crate::uplink;

const EXAMPLES: &str = "\
Examples:
  consumer serve -U net://COLLECTOR --tldrs      Take events of this host's tldrs clients there
  consumer replay -U net://COLLECTOR TRACE       Send a recording again, as fast as it goes
  consumer replay -U net://COLLECTOR --live 1000000 --rate realtime TRACE
                                                 As if it happened now, for viewers
  consumer status                                How a running agent is doing

A URL is net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH], or net6:// for IPv6 with [ADDRESS]; -C and -D
take tcp://HOST[:PORT] and tcp6://. PATH is where the trace is wanted below the host's directory on
the relay. RUST_LOG selects what is logged and overrides -v.

Exit status: 0 all is with the relay; 1 something is not; 2 the command line is wrong.";

/// Take events of this host to a relay daemon, as CTF.
#[derive(Debug, Parser)]
#[command(name = "consumer", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// Tell more: -v what happens, -vv details, -vvv every packet
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until it is told to stop
    Serve(ServeArguments),
    /// Send traces of a directory
    Replay(ReplayArguments),
    /// Show how a running agent is doing
    Status(StatusArguments),
    /// Check a configuration, and show all of it
    CheckConfig {
        /// The file
        file: PathBuf,
    },
}

/// Which relay.
#[derive(Debug, Clone, Default, Args)]
pub struct RelayUrls {
    /// The relay: net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]
    #[arg(short = 'U', long, value_name = "URL", conflicts_with_all = ["ctrl_url", "data_url"])]
    set_url: Option<String>,
    /// Where it takes commands: tcp://HOST[:PORT]
    #[arg(short = 'C', long, value_name = "URL", requires = "data_url")]
    ctrl_url: Option<String>,
    /// Where it takes packets: tcp://HOST[:PORT]
    #[arg(short = 'D', long, value_name = "URL", requires = "ctrl_url")]
    data_url: Option<String>,
}

/// `consumer serve`
#[derive(Debug, Args)]
pub struct ServeArguments {
    #[command(flatten)]
    relay: RelayUrls,
    /// Settings; the command line has its way over them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Take events from the clients of a tldrs daemon, at SOCKET or where they look for it
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    tldrs: Option<PathBuf>,
    /// Where that keeps them [default: as tldrs serve does]
    #[arg(long, value_name = "DIR", requires = "tldrs")]
    tldrs_dir: Option<PathBuf>,
    /// Send what there is every USEC microseconds [default: 100000]
    #[arg(long, value_name = "USEC")]
    live: Option<u32>,
    /// The host that sessions are said to be of [default: this one]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Where `consumer status` asks
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// `consumer replay`
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Traces, or trees of them
    #[arg(value_name = "TRACE_DIR", required = true)]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    relay: RelayUrls,
    /// How fast: realtime, max, or N% of real time
    #[arg(long, default_value = "max")]
    rate: Rate,
    /// As a live session, with news of each stream every USEC microseconds
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(1..))]
    live: Option<u32>,
    /// What the session is called [default: as the first directory]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The host that it is said to be of [default: this one]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Wait for Enter before the first packet and before the end, so that viewers can attach and
    /// catch up
    #[arg(long)]
    pub hold: bool,
    /// Give up when there has been no relay for so many seconds
    #[arg(long = "reconnect-timeout", alias = "patience", value_name = "SECONDS", default_value_t = DEFAULT_REPLAY_RECONNECT_TIMEOUT.as_secs())]
    reconnect_timeout_s: u64,
    /// Have the relay begin another tracefile at so many bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    tracefile_size: u64,
    /// Have the relay keep so many tracefiles of a stream
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "tracefile_size"
    )]
    tracefile_count: u64,
}

/// `consumer status`
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Where the agent is asked
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl Arguments {
    /// From which level on is logged, unless `RUST_LOG` says otherwise.
    #[must_use]
    pub fn log_level(&self) -> LevelFilter {
        logging::level(self.verbose)
    }
}

impl RelayUrls {
    /// As a configuration has it.
    #[must_use]
    pub fn relay(&self) -> RelayConfig {
        RelayConfig {
            url: self.set_url.clone(),
            control_url: self.ctrl_url.clone(),
            data_url: self.data_url.clone(),
        }
    }
}

impl ServeArguments {
    /// What the file says, and over it what the command line says.
    ///
    /// # Errors
    /// If the file cannot be followed.
    pub fn config(self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let relay = self.relay.relay();
        if relay.is_given() {
            config.relay = relay;
        }
        if let Some(socket) = self.tldrs {
            let tldrs = config.tldrs.get_or_insert_default();
            if !socket.as_os_str().is_empty() {
                tldrs.sockets = vec![socket];
            }
            if self.tldrs_dir.is_some() {
                tldrs.directory = self.tldrs_dir;
            }
        }
        if let Some(live) = self.live {
            config.session.live_timer_us = live;
        }
        if let Some(host) = self.hostname {
            config.session.host = host;
        }
        if let Some(socket) = self.socket {
            config.agent.status_socket = socket;
        }
        config.check()?;
        Ok(config)
    }
}

impl ReplayArguments {
    /// What is sent, how, and where to.
    ///
    /// # Errors
    /// If no relay is named.
    pub fn settings(self) -> Result<(replay::ReplaySettings, uplink::UplinkSettings), ConfigError> {
        let uplink = uplink::UplinkSettings {
            target: self.relay.relay().target()?,
            reconnect_timeout: Some(Duration::from_secs(self.reconnect_timeout_s)),
        };
        let settings = replay::ReplaySettings {
            directories: self.directories,
            rate: self.rate,
            live_timer: self.live.map(|live| Duration::from_micros(u64::from(live))),
            name: self.session,
            host: self.hostname.unwrap_or_else(host_name),
            tracefiles: (self.tracefile_size, self.tracefile_count),
        };
        Ok((settings, uplink))
    }
}

/// How many bytes of a replay may wait for the relay.
#[must_use]
pub fn replay_queue_capacity() -> crate::queue::QueueCapacity {
    let QueueConfig {
        session_bytes,
        all_bytes,
    } = QueueConfig::default();
    crate::queue::QueueCapacity {
        session_bytes,
        all_bytes,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from([&["consumer"], arguments].concat())
    }

    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn command_line_overrides_the_configuration_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "[relay]\nurl='net://one'\n[session]\nhost='h'\n").unwrap();
        let path = file.path().to_str().unwrap();
        let arguments = ["serve", "--config", path, "-U", "net://two", "--live", "5"];
        let Command::Serve(serve) = parse(&arguments).unwrap().command else {
            panic!("another command");
        };
        let config = serve.config().unwrap();
        assert_eq!(config.relay.url.as_deref(), Some("net://two"));
        assert_eq!(config.session.live_timer_us, 5);
        assert_eq!(config.session.host, "h");
    }

    #[test]
    fn replay_arguments_name_relay_and_rate() {
        let arguments = [
            "replay",
            "-v",
            "dir",
            "-C",
            "tcp://a",
            "-D",
            "tcp://b",
            "--rate=50%",
        ];
        let Command::Replay(replay) = parse(&arguments).unwrap().command else {
            panic!("another command");
        };
        let (settings, uplink) = replay.settings().unwrap();
        assert_eq!(settings.rate, Rate::Times(0.5));
        assert_eq!(uplink.target.to_string(), "tcp://a:5342 and tcp://b:5343");
        assert!(parse(&["replay", "dir", "-C", "tcp://a"]).is_err());
        assert!(parse(&["replay", "-U", "net://a"]).is_err());
        assert!(parse(&["replay", "dir", "-U", "net://a", "--rate=fast"]).is_err());
        assert!(parse(&["replay", "dir", "-U", "net://a", "--live=0"]).is_err());
    }
}
