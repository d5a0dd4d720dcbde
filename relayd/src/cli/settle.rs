//! What the relay is to do in the end: the command line before the files, both before the
//! environment, and what nobody says by default.

use std::env::current_dir;
use std::ffi::OsString;
use std::path::PathBuf;

use daemon::endpoint::Endpoint;
use jiff::tz::TimeZone;
use wire::Bytes;

use super::file::{Files, switch};
use super::{ArgumentError, Arguments, Mode};
use crate::config::{Config, Network};
use crate::ingest::reorder::Window;
use crate::limits::REORDER_MEMORY;
use crate::service::{ServiceConfig, run_folder};
use crate::store::layout::Grouping;

/// Ports, and addresses unless others are given.
const CONTROL: (&str, u16) = ("0.0.0.0", 5342);
const DATA: (&str, u16) = ("0.0.0.0", 5343);
const LIVE: (&str, u16) = ("localhost", 5344);

/// Port of HTTP, if it is to be there and no other is given.
const HTTP: u16 = 5345;

/// Packets and bytes that a missing packet is waited for, unless others are given.
const WINDOW: Window = Window {
    packets: 64,
    bytes: Bytes(32 << 20),
};

const DISALLOW_CLEAR: &str = "LTTNG_RELAYD_DISALLOW_CLEAR";
const WORKING_DIRECTORY: &str = "LTTNG_RELAYD_WORKING_DIRECTORY";
const HEALTH: &str = "LTTNG_RELAYD_HEALTH";
const HOME: &str = "LTTNG_HOME";

/// Looks a variable up; one that is empty is not set.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The environment of this process.
pub(super) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Arguments {
    /// With what the configuration files say where these say nothing, and what in the files was not
    /// understood.
    ///
    /// # Errors
    /// If the file that was asked for cannot be read, or an option has a value that it cannot have.
    pub fn with_files(self) -> Result<(Self, Vec<String>), ArgumentError> {
        let files = Files::read(home(&variable).as_deref(), self.config.as_deref())?;
        let said = files.arguments()?;
        Ok((self.or(said), files.warnings))
    }

    /// These, and `other` where they say nothing.
    fn or(self, other: Self) -> Self {
        let mine = self.group_output_by_host || self.group_output_by_session;
        let grouping = if mine { &self } else { &other };
        let is_in_mode = self.background || self.daemonize;
        let mode = if is_in_mode { &self } else { &other };
        Self {
            group_output_by_host: grouping.group_output_by_host,
            group_output_by_session: grouping.group_output_by_session,
            background: mode.background,
            daemonize: mode.daemonize,
            verbose: if self.verbose > 0 {
                self.verbose
            } else {
                other.verbose
            },
            disallow_clear: self.disallow_clear || other.disallow_clear,
            sig_parent: self.sig_parent || other.sig_parent,
            dynamic_port_allocation: self.dynamic_port_allocation || other.dynamic_port_allocation,
            version: self.version,
            control_port: self.control_port.or(other.control_port),
            data_port: self.data_port.or(other.data_port),
            live_port: self.live_port.or(other.live_port),
            output: self.output.or(other.output),
            working_directory: self.working_directory.or(other.working_directory),
            group: self.group.or(other.group),
            config: self.config,
            pid_file: self.pid_file.or(other.pid_file),
            fd_pool_size: self.fd_pool_size.or(other.fd_pool_size),
            reorder_packets: self.reorder_packets.or(other.reorder_packets),
            reorder_bytes: self.reorder_bytes.or(other.reorder_bytes),
            reorder_memory: self.reorder_memory.or(other.reorder_memory),
            on_disk_full: self.on_disk_full.or(other.on_disk_full),
            http: self.http.or(other.http),
            log_format: self.log_format.or(other.log_format),
            operands: self.operands,
        }
    }

    /// What the relay is told, if the system allows it so many open files.
    ///
    /// # Errors
    /// If it does not know where to write, or is told what it must not do.
    pub fn config(self, open_files: u64) -> Result<Config, ArgumentError> {
        self.settle(&variable, open_files)
    }

    pub(super) fn settle(self, env: Lookup<'_>, open_files: u64) -> Result<Config, ArgumentError> {
        let endpoint = |given: &Option<Endpoint>, (host, port): (&str, u16)| match given {
            Some(given) => given.clone().or_port(port),
            None => Endpoint::v4(host, port),
        };
        let home = home(env);
        let output = match &self.output {
            Some(output) if output.is_absolute() => output.clone(),
            Some(output) => return Err(ArgumentError::RelativeOutput(output.clone())),
            None => home
                .as_ref()
                .ok_or(ArgumentError::NoHome)?
                .join("lttng-traces"),
        };
        let working_directory = self
            .working_directory
            .clone()
            .or_else(|| env(WORKING_DIRECTORY).map(PathBuf::from));
        let run_folder = run_folder::path(env, home.as_deref());
        Ok(Config {
            output,
            grouping: if self.group_output_by_session {
                Grouping::BySession
            } else {
                Grouping::ByHost
            },
            allows_clear: !self.disallow_clear && !is_set(env, DISALLOW_CLEAR)?,
            control: endpoint(&self.control_port, CONTROL),
            data: endpoint(&self.data_port, DATA),
            live: endpoint(&self.live_port, LIVE),
            http: self.http.clone().map(|http| http.or_port(HTTP)),
            network: Network::told_by(env),
            pool: self.pool(open_files)?,
            window: Window {
                packets: self
                    .reorder_packets
                    .map_or(WINDOW.packets, |packets| packets as usize),
                bytes: self.reorder_bytes.map_or(WINDOW.bytes, Bytes),
            },
            reorder_memory: self.reorder_memory.unwrap_or(REORDER_MEMORY),
            when_full: self.on_disk_full.unwrap_or_default(),
            time_zone: TimeZone::system(),
            process: ServiceConfig {
                working_directory: working_directory.map(from_here).transpose()?,
                group: self.group.clone(),
                health: env(HEALTH).map(PathBuf::from).map(from_here).transpose()?,
                pid_file: self.pid_file.clone().map(from_here).transpose()?,
                signals_parent: self.sig_parent && self.mode() == Mode::Foreground,
                run_folder: run_folder.map(from_here).transpose()?,
            },
        })
    }

    /// Whether whoever started the relay is to be sent a signal when it is ready.
    #[must_use]
    pub fn signals_parent(&self) -> bool {
        self.sig_parent
    }

    /// How many trace files may be open.
    fn pool(&self, open_files: u64) -> Result<usize, ArgumentError> {
        let most = match self.fd_pool_size {
            Some(asked) if u64::from(asked) > open_files => {
                return Err(ArgumentError::PoolBeyondLimit {
                    asked,
                    allowed: open_files,
                });
            }
            Some(asked) => u64::from(asked),
            // The rest is for connections.
            None => open_files / 4 * 3,
        };
        Ok(usize::try_from(most).unwrap_or(usize::MAX))
    }
}

fn home(env: Lookup<'_>) -> Option<PathBuf> {
    env(HOME).or_else(|| env("HOME")).map(PathBuf::from)
}

/// A path that holds wherever the relay goes.
fn from_here(path: PathBuf) -> Result<PathBuf, ArgumentError> {
    if path.is_absolute() {
        return Ok(path);
    }
    match current_dir() {
        Ok(here) => Ok(here.join(path)),
        Err(_) => Err(ArgumentError::Adrift(path)),
    }
}

/// Whether a variable says yes; not set is no.
fn is_set(env: Lookup<'_>, name: &'static str) -> Result<bool, ArgumentError> {
    let Some(value) = env(name) else {
        return Ok(false);
    };
    let switched = value.to_str().and_then(switch);
    switched.ok_or(ArgumentError::Variable(name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;

    const LIMIT: u64 = 1024;

    fn parse(arguments: &[&str]) -> Arguments {
        Arguments::try_parse_from([&["relayd"], arguments].concat()).unwrap()
    }

    fn settled(arguments: Arguments, variables: &[(&str, &str)]) -> Result<Config, ArgumentError> {
        let env = |name: &str| {
            let set = variables.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| OsString::from(value))
        };
        arguments.settle(&env, LIMIT)
    }

    const AT_HOME: (&str, &str) = ("HOME", "/home/me");

    #[test]
    fn what_nobody_says_is_as_with_the_reference() {
        let config = settled(parse(&[]), &[AT_HOME]).unwrap();
        assert_eq!(config.output, Path::new("/home/me/lttng-traces"));
        assert_eq!(config.grouping, Grouping::ByHost);
        assert!(config.allows_clear);
        assert_eq!(config.control.to_string(), "tcp://0.0.0.0:5342");
        assert_eq!(config.data.to_string(), "tcp://0.0.0.0:5343");
        assert_eq!(config.live.to_string(), "tcp://localhost:5344");
        assert_eq!(config.pool, 768);
        assert_eq!(config.reorder_memory, REORDER_MEMORY);
        assert_eq!(config.process.working_directory, None);
        let elsewhere = settled(parse(&[]), &[AT_HOME, ("LTTNG_HOME", "/lttng")]).unwrap();
        assert_eq!(elsewhere.output, Path::new("/lttng/lttng-traces"));
        assert!(matches!(
            settled(parse(&[]), &[]),
            Err(ArgumentError::NoHome)
        ));
    }

    #[test]
    fn options_are_followed() {
        let config = settled(
            parse(&[
                "-o",
                "/out",
                "-C",
                "tcp://127.0.0.1:1",
                "--live-port=tcp6://::1",
                "-s",
                "-x",
            ]),
            &[],
        )
        .unwrap();
        assert_eq!(config.output, Path::new("/out"));
        assert_eq!(config.control.to_string(), "tcp://127.0.0.1:1");
        assert_eq!(config.live.to_string(), "tcp6://[::1]:5344");
        assert_eq!(config.grouping, Grouping::BySession);
        assert!(!config.allows_clear);
        assert!(matches!(
            settled(parse(&["-o", "out"]), &[]),
            Err(ArgumentError::RelativeOutput(_))
        ));
        assert_eq!(
            settled(parse(&["-o", "/o", "--fd-pool-size=200"]), &[])
                .unwrap()
                .pool,
            200
        );
        assert!(matches!(
            settled(parse(&["-o", "/o", "--fd-pool-size=2000"]), &[]),
            Err(ArgumentError::PoolBeyondLimit {
                asked: 2000,
                allowed: LIMIT
            })
        ));
    }

    #[test]
    fn the_command_line_comes_before_the_files() {
        let files = parse(&[
            "-s",
            "-d",
            "-o",
            "/file",
            "-g",
            "file",
            "-vv",
            "--fd-pool-size=300",
        ]);
        let both = parse(&["-p", "-b", "-o", "/line", "-v"]).or(files);
        assert_eq!((both.mode(), both.verbose), (Mode::Background, 1));
        assert_eq!(both.group.as_deref(), Some("file"));
        assert_eq!(both.fd_pool_size, Some(300));
        let config = settled(both, &[]).unwrap();
        assert_eq!(config.grouping, Grouping::ByHost);
        assert_eq!(config.output, Path::new("/line"));
    }

    #[test]
    fn variables_speak_where_no_option_does() {
        let variables = [
            AT_HOME,
            (WORKING_DIRECTORY, "/var"),
            (HEALTH, "/run/health"),
        ];
        let process = settled(parse(&[]), &variables).unwrap().process;
        assert_eq!(
            process.working_directory.as_deref(),
            Some(Path::new("/var"))
        );
        assert_eq!(process.health.as_deref(), Some(Path::new("/run/health")));
        let process = settled(parse(&["-w", "/tmp"]), &variables).unwrap().process;
        assert_eq!(
            process.working_directory.as_deref(),
            Some(Path::new("/tmp"))
        );
        for (value, allows) in [("1", false), ("on", false), ("0", true), ("No", true)] {
            let config = settled(parse(&[]), &[AT_HOME, (DISALLOW_CLEAR, value)]);
            assert_eq!(config.unwrap().allows_clear, allows, "{value}");
        }
        let perhaps = settled(parse(&[]), &[AT_HOME, (DISALLOW_CLEAR, "perhaps")]);
        assert!(matches!(
            perhaps,
            Err(ArgumentError::Variable(DISALLOW_CLEAR))
        ));
    }
}
