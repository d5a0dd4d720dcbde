//! The command line of `consumer`, and the settings that follow from it. Besides this module, only
//! the frontends name clap, for their own options.

mod codetracer;
mod rings;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use daemon::durability::Durability;
use daemon::logging::{self, LogTarget};
use tracing::level_filters::LevelFilter;

use crate::config::{Config, ConfigError, RelayConfig, check_spool};
use crate::frontend::replay::{self, Rate};
use crate::frontend::{self, Frontend, frontends, host_name};
use crate::limits::{DEFAULT_CLOCK_INTERVAL_MS, DEFAULT_REPLAY_RECONNECT_TIMEOUT};
use crate::spool::{SpoolFullPolicy, SpoolSettings};
use crate::uplink;
pub use codetracer::CodetracerArguments;
pub use rings::{RingsArguments, RingsCommand};

const EXAMPLES: &str = "\
Examples:
  consumer serve -U net://COLLECTOR --tldrs      Stream events of local tldrs clients to the relay
  consumer serve -U net://COLLECTOR --ring       Stream events of programs with shared-memory rings
  consumer replay -U net://COLLECTOR TRACE_DIR   Send recorded traces at full speed
  consumer replay -U net://COLLECTOR --live 1000000 --rate realtime TRACE_DIR
                                                 Send them at their original pace, for live viewers
  consumer codetracer -U net://COLLECTOR DIR     Send a CodeTracer recording, also while it is made
  consumer serve -U net://R1,R2,R3 --ring --spool DIR
                                                 Go on at the next relay when one is lost
  consumer rings --print                         Show events of shared-memory rings as they are written
  consumer clock -U net://COLLECTOR              Sample the clock of a host that LTTng traces
  consumer status                                Show the sessions of a running agent
  consumer doctor -U net://COLLECTOR             Say whether the relay can be reached, or why not

A relay is relayd, or lttng-relayd 2.11 or later. Its URL is
net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH], or net6:// with [ADDRESS] for IPv6; the default ports
are 5342 and 5343. Instead of -U, -C and -D together name the two ports, as tcp://HOST[:PORT] or
tcp6://. With PATH, the relay writes the traces to that path below the host's directory.
HOST[:CONTROL-PORT[:DATA-PORT]] may be a list, separated by commas, of at most 16 relays, and a HOST
may have several addresses: a session uses one relay, and goes on at the next when it is lost.
nets://, or tls:// for one port, encrypts the connections; --tls-ca is needed, and --tls-cert and
--tls-key if the relay requires a certificate. `relayd certs` creates such files.

The environment variable RUST_LOG selects log messages by module and overrides -v.

Exit status: 0 if the relay has acknowledged everything (doctor: if there is no problem), 1 if not, 2 if the command line or the
configuration is invalid.";

/// Stream events of this host to a relay daemon as CTF.
#[derive(Debug, Parser)]
#[command(name = "consumer", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,

    /// Log more: -v sessions and connections, -vv details, -vvv every packet
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 900)]
    verbose: u8,
}

/// The commands of `consumer`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent until SIGTERM or SIGINT
    Serve(ServeArguments),
    /// Send the recorded traces of a directory
    Replay(ReplayArguments),
    /// Send a CodeTracer recording, also while it is being made
    Codetracer(CodetracerArguments),
    /// Measure the clock of this host against that of the relay until SIGTERM or SIGINT, for hosts
    /// that LTTng traces; `serve` does that, too
    Clock(ClockArguments),
    /// Show the sessions of a running agent
    Status(StatusArguments),
    /// Show, record and control the shared-memory rings of this host; needs no relay and no agent
    Rings(RingsArguments),
    /// Check whether `serve` with these options would work: the relay, directories, limits, clock
    Doctor {
        /// The options of `consumer serve`.
        #[command(flatten)]
        serve: Box<ServeArguments>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration file, and print all settings
    CheckConfig {
        /// Configuration file of the agent
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// The options that name a relay.
#[derive(Debug, Clone, Default, Args)]
pub struct RelayUrls {
    /// Send to the relay at net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH], or to one of several, as
    /// net://HOST,HOST...: at the next one when it is lost
    #[arg(short = 'U', long, value_name = "URL", conflicts_with_all = ["ctrl_url", "data_url"])]
    set_url: Option<String>,
    /// Send commands to the control port tcp://HOST[:PORT] of the relay; needs -D
    #[arg(short = 'C', long, value_name = "URL", requires = "data_url")]
    ctrl_url: Option<String>,
    /// Send packets to the data port tcp://HOST[:PORT] of the relay; needs -C
    #[arg(short = 'D', long, value_name = "URL", requires = "ctrl_url")]
    data_url: Option<String>,
    /// Trust relays whose certificate is of a CA in FILE, in PEM; for nets:// and tls://
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Show the relay the certificate in FILE, in PEM; it needs the role `produce`
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Over QUIC, abandon a packet that the relay does not have MS milliseconds after it was cut;
    /// it is lost [default: send until it arrives]
    #[arg(long = "quic-deadline", value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    quic_deadline_ms: Option<u32>,
}

/// The options of the spool.
#[derive(Debug, Clone, Default, Args)]
pub struct SpoolOptions {
    /// Keep packets in DIR until the relay has acknowledged them, also over the end of this process
    #[arg(long, value_name = "DIR")]
    spool: Option<PathBuf>,
    /// Size of the spool in bytes, with an optional suffix K, M or G [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = daemon::size::parse)]
    spool_size: Option<u64>,
    /// When the spool is full: block the programs that are traced, or drop the oldest packets, as
    /// drop-oldest [default: block]
    #[arg(long, value_name = "POLICY")]
    on_full: Option<SpoolFullPolicy>,
    /// When packets in the spool are safe against a power failure: process (when the system has
    /// written them), interval (after a second) or packet (before they are accepted) [default:
    /// process]
    #[arg(long, value_name = "LEVEL")]
    spool_durability: Option<Durability>,
}

impl SpoolOptions {
    /// Overrides settings by these options.
    fn apply(self, settings: Option<SpoolSettings>) -> Result<Option<SpoolSettings>, ConfigError> {
        let is_given = self.spool.is_some()
            || self.spool_size.is_some()
            || self.on_full.is_some()
            || self.spool_durability.is_some();
        if !is_given {
            return Ok(settings);
        }
        let mut settings = settings.unwrap_or_default();
        if let Some(directory) = self.spool {
            settings.directory = directory;
        }
        settings.bytes = self.spool_size.unwrap_or(settings.bytes);
        settings.on_full = self.on_full.unwrap_or(settings.on_full);
        settings.durability = self.spool_durability.unwrap_or(settings.durability);
        check_spool(&settings)?;
        Ok(Some(settings))
    }
}

/// Defines [`FrontendOptions`], which has the options of each frontend.
macro_rules! define_frontend_options {
    ($($frontend:ident: $section:ident,)*) => {
        /// The options of all frontends.
        #[derive(Debug, Args)]
        struct FrontendOptions {
            $(
                #[command(flatten)]
                $frontend: <frontend::$frontend::$section as Frontend>::Options,
            )*
        }

        impl FrontendOptions {
            /// Overrides the sections of a configuration by these options.
            fn apply(self, config: &mut Config) {
                $(Frontend::apply_options(&mut config.$frontend, self.$frontend);)*
            }
        }
    };
}
frontends!(define_frontend_options);

/// The options of `consumer serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    #[command(flatten)]
    relay: RelayUrls,
    #[command(flatten)]
    spool: SpoolOptions,
    /// Read settings from FILE; options override them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    frontends: FrontendOptions,
    /// Send packets that are not full every USEC microseconds [default: 100000]
    #[arg(long, value_name = "USEC")]
    live: Option<u32>,
    /// Name of the traced host, for the relay and viewers [default: the name of this host]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Answer `consumer status` on the Unix socket PATH [default: consumer.socket in
    /// $XDG_RUNTIME_DIR or /run/user/UID, or /tmp/consumer-UID.socket]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Measure the clock of this host against that of the relay every MS milliseconds; 0: do not
    /// [default: 30000]
    #[arg(long, value_name = "MS")]
    clock_interval: Option<u32>,
    /// Append the log to PATH instead of standard error. SIGHUP opens PATH again, for logrotate
    #[arg(long, value_name = "PATH")]
    log_file: Option<PathBuf>,
}

/// The arguments of `consumer clock`.
#[derive(Debug, Args)]
pub struct ClockArguments {
    #[command(flatten)]
    relay: RelayUrls,
    /// Name of the traced host, as LTTng tells it to relay and viewers [default: the name of this
    /// host]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Measure every MS milliseconds
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_CLOCK_INTERVAL_MS, value_parser = clap::value_parser!(u32).range(1..))]
    clock_interval: u32,
}

/// The arguments of `consumer replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// Directories of traces; all traces at or below them are sent
    #[arg(value_name = "TRACE_DIR", required = true)]
    directories: Vec<PathBuf>,
    #[command(flatten)]
    relay: RelayUrls,
    #[command(flatten)]
    spool: SpoolOptions,
    /// Replay speed: realtime, max, or N% of real time
    #[arg(long, default_value = "max")]
    rate: Rate,
    /// Create a live session, which viewers can watch; every USEC microseconds, a beacon of each
    /// idle stream tells them that no earlier event will arrive [default: a session that is not
    /// live]
    #[arg(long, value_name = "USEC", value_parser = clap::value_parser!(u32).range(1..))]
    live: Option<u32>,
    #[command(flatten)]
    session: SessionOptions,
    /// Wait for Enter before the first packet and before the end of the session, so that viewers
    /// can attach and catch up
    #[arg(long)]
    pub hold: bool,
}

/// The options of a session that is sent once.
#[derive(Debug, Args)]
struct SessionOptions {
    /// Name of the session [default: the name of the first directory, or of the file]
    #[arg(long = "session", value_name = "NAME")]
    name: Option<String>,
    /// Name of the traced host, for the relay and viewers [default: the name of this host]
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Give up when no relay has been connected for SECONDS
    #[arg(long = "reconnect-timeout", value_name = "SECONDS", default_value_t = DEFAULT_REPLAY_RECONNECT_TIMEOUT.as_secs())]
    reconnect_timeout_s: u64,
    /// Have the relay begin the next tracefile of a stream at BYTES; 0: no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    tracefile_size: u64,
    /// Have the relay keep the last N tracefiles of a stream; 0: all
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "tracefile_size"
    )]
    tracefile_count: u64,
}

/// The options of `consumer status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Query the agent on the Unix socket PATH [default: as for `consumer serve`]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
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
            Command::Serve(ServeArguments {
                log_file: Some(file),
                ..
            }) => LogTarget::File(file),
            _ => LogTarget::Stderr,
        }
    }
}

impl RelayUrls {
    /// Returns the URLs as a section of the configuration.
    #[must_use]
    pub fn relay(&self) -> RelayConfig {
        RelayConfig {
            url: self.set_url.clone(),
            control_url: self.ctrl_url.clone(),
            data_url: self.data_url.clone(),
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            quic_deadline_ms: self.quic_deadline_ms,
        }
    }
}

impl ServeArguments {
    /// Returns the configuration file's settings, or the defaults, overridden by these options.
    ///
    /// # Errors
    /// If the file cannot be read, or the result is invalid.
    pub fn config(self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        config.relay = self.relay.relay().or(config.relay);
        self.frontends.apply(&mut config);
        if let Some(live) = self.live {
            config.session.live_timer_us = live;
        }
        if let Some(host) = self.hostname {
            config.session.host = host;
        }
        if let Some(socket) = self.socket {
            config.agent.status_socket = socket;
        }
        if let Some(interval) = self.clock_interval {
            config.agent.clock_interval_ms = interval;
        }
        config.spool = self.spool.apply(config.spool)?;
        config.check()?;
        Ok(config)
    }
}

impl ClockArguments {
    /// Returns the defaults of an agent, overridden by these options.
    ///
    /// # Errors
    /// If no relay is named, or its URL is malformed.
    pub fn config(self) -> Result<Config, ConfigError> {
        let mut config = Config {
            relay: self.relay.relay(),
            ..Config::default()
        };
        config.agent.clock_interval_ms = self.clock_interval;
        if let Some(host) = self.hostname {
            config.session.host = host;
        }
        config.check()?;
        Ok(config)
    }
}

impl SessionOptions {
    fn reconnect_timeout(&self) -> Duration {
        Duration::from_secs(self.reconnect_timeout_s)
    }

    /// Returns the maximum size and number of tracefiles; 0: no limit.
    fn tracefiles(&self) -> (u64, u64) {
        (self.tracefile_size, self.tracefile_count)
    }
}

impl ReplayArguments {
    /// Returns the settings of the spool, if there is one.
    ///
    /// # Errors
    /// If it has no directory, or is too small.
    pub fn spool(&self) -> Result<Option<SpoolSettings>, ConfigError> {
        self.spool.clone().apply(None)
    }

    /// Returns the settings of the replay, and of the uplink that it goes through.
    ///
    /// # Errors
    /// If no relay is named, or its URL is malformed.
    pub fn settings(self) -> Result<(replay::ReplaySettings, uplink::UplinkSettings), ConfigError> {
        let uplink = uplink::UplinkSettings {
            target: self.relay.relay().target()?,
            reconnect_timeout: Some(self.session.reconnect_timeout()),
        };
        let settings = replay::ReplaySettings {
            directories: self.directories,
            rate: self.rate,
            live_timer: self.live.map(|live| Duration::from_micros(u64::from(live))),
            tracefiles: self.session.tracefiles(),
            name: self.session.name,
            host: self.session.hostname.unwrap_or_else(host_name),
        };
        Ok((settings, uplink))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::frontend::codetracer::{Follow, RecordingSource};

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
    fn option_that_enables_a_frontend_has_its_name() {
        let command = Arguments::command();
        let serve = command.find_subcommand("serve").unwrap();
        for name in Config::FRONTENDS {
            let mut options = serve.get_opts();
            assert!(options.any(|option| option.get_long() == Some(name)));
        }
    }

    #[test]
    fn frontends_need_no_path() {
        for option in ["--tldrs", "--ring", "--tldrs=/s", "--ring=/d"] {
            let arguments = ["serve", "-U", "net://h", option];
            let Command::Serve(serve) = parse(&arguments).unwrap().command else {
                panic!("another command");
            };
            let config = serve.config().unwrap();
            let is_path = option.contains('=');
            let sockets = config.tldrs.map(|tldrs| tldrs.sockets.len());
            let directory = config.ring.map(|ring| ring.directory.is_some());
            match sockets {
                Some(sockets) => assert_eq!((sockets, directory), (usize::from(is_path), None)),
                None => assert_eq!(directory, Some(is_path)),
            }
        }
    }

    #[test]
    fn recordings_are_accepted_on_the_socket_of_the_option() {
        for socket in [&["--codetracer=/s"][..], &["--codetracer", "/s"]] {
            let arguments = [&["serve", "-U", "net://h", "--source-root=/src"], socket].concat();
            let Command::Serve(serve) = parse(&arguments).unwrap().command else {
                panic!("another command");
            };
            let config = serve.config().unwrap();
            let recordings = config.codetracer.as_ref().unwrap();
            assert_eq!(recordings.socket, PathBuf::from("/s"));
            assert_eq!(recordings.source_root, Some("/src".into()));
            let text = config.to_toml().unwrap();
            assert!(
                text.contains("[codetracer]\nsocket = \"/s\"\nsource-root"),
                "{text}"
            );
        }
    }

    #[test]
    fn recording_arguments_name_source_and_relay() {
        let arguments = [
            "codetracer",
            "-U",
            "net://h",
            "--live=5000",
            "--no-follow",
            "-",
        ];
        let Command::Codetracer(recording) = parse(&arguments).unwrap().command else {
            panic!("another command");
        };
        let (job, uplink) = recording.job().unwrap();
        assert_eq!(job.source, RecordingSource::Pipe);
        assert_eq!(job.follow, Follow::No);
        assert_eq!(job.settings.live_timer, Duration::from_millis(5));
        assert_eq!(uplink.target.to_string(), "net://h:5342:5343");
        assert!(parse(&["codetracer", "-U", "net://a"]).is_err());
    }

    #[test]
    fn replay_arguments_name_relay_and_rate() {
        let arguments = "replay -v dir -C tcp://a -D tcp://b --rate=50%";
        let arguments: Vec<_> = arguments.split(' ').collect();
        let Command::Replay(replay) = parse(&arguments).unwrap().command else {
            panic!("another command");
        };
        assert_eq!(replay.spool().unwrap(), None);
        let (settings, uplink) = replay.settings().unwrap();
        assert_eq!(settings.rate, Rate::Times(0.5));
        assert_eq!(uplink.target.to_string(), "tcp://a:5342 and tcp://b:5343");
        assert!(parse(&["replay", "dir", "-C", "tcp://a"]).is_err());
        assert!(parse(&["replay", "-U", "net://a"]).is_err());
        assert!(parse(&["replay", "dir", "-U", "net://a", "--rate=fast"]).is_err());
        assert!(parse(&["replay", "dir", "-U", "net://a", "--live=0"]).is_err());
    }

    #[test]
    fn spool_options_override_the_configuration_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[relay]\nurl='net://one'\n[spool]\ndirectory='/s'\nbytes=2000000\n";
        std::fs::write(&file, text).unwrap();
        let path = file.path().to_str().unwrap();
        let spool = |options: &[&str]| {
            let arguments = [&["serve", "-U", "net://h"], options].concat();
            let Command::Serve(serve) = parse(&arguments).unwrap().command else {
                panic!("another command");
            };
            serve.config().map(|config| config.spool)
        };
        let options = [
            "--config",
            path,
            "--on-full=drop-oldest",
            "--spool-size=16M",
        ];
        let settings = spool(&options).unwrap().unwrap();
        let expected = SpoolSettings {
            directory: "/s".into(),
            bytes: 16 << 20,
            on_full: SpoolFullPolicy::DropOldest,
            durability: Durability::Process,
        };
        assert_eq!(settings, expected);
        assert_eq!(spool(&[]).unwrap(), None);
        assert!(matches!(
            spool(&["--spool-size=16M"]),
            Err(ConfigError::NoSpoolDirectory)
        ));
        assert!(matches!(
            spool(&["--spool=/s", "--spool-size=1K"]),
            Err(ConfigError::Range { .. })
        ));
        for wrong in [
            "--on-full=drop",
            "--spool-size=1T",
            "--spool-durability=never",
        ] {
            assert!(parse(&["serve", "-U", "net://h", "--spool=/s", wrong]).is_err());
        }
    }
}
