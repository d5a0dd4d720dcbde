//! Resolves options, configuration files and environment variables to a [`Config`]: the command
//! line takes precedence over the files, the files over the environment, and the environment over
//! the defaults.

use std::env::current_dir;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use daemon::durability::Durability;
use daemon::endpoint::Endpoint;
use jiff::tz::TimeZone;
use wire::Bytes;

use super::file::Files;
use super::value::DurabilityLevel;
use super::{ArgumentError, Arguments, Mode};
use crate::archiver::ArchiveTimes;
use crate::config::{ArchiveConfig, Config, Network, TlsFiles, parse_boolean};
use crate::ingest::reorder::ReorderWindow;
use crate::limits::{
    ARCHIVE_INTERVAL, ARCHIVE_PART_AGE, FLEET_LISTED_FOR, REORDER_MEMORY, RESUME_TIMEOUT,
    max_connections,
};
use crate::service::{ServiceConfig, run_folder};
use crate::store::layout::Grouping;
use crate::store::retention::RetentionSettings;
use crate::store::sync::SyncSettings;

/// Default hosts and ports of LTTng's relay.
const DEFAULT_CONTROL: (&str, u16) = ("0.0.0.0", 5342);
const DEFAULT_DATA: (&str, u16) = ("0.0.0.0", 5343);
const DEFAULT_LIVE: (&str, u16) = ("localhost", 5344);

/// Default port of the status endpoint.
const DEFAULT_HTTP_PORT: u16 = 5345;

/// Default port of QUIC connections (UDP).
const DEFAULT_QUIC_PORT: u16 = 5346;

/// Default number of packets and bytes after which a missing packet is given up.
const DEFAULT_WINDOW: ReorderWindow = ReorderWindow {
    packets: 64,
    bytes: Bytes(32 << 20),
};

/// Default interval at which files are synced.
const DEFAULT_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The time zone of the host, in the format of RFC 9636.
const LOCAL_TIME: &str = "/etc/localtime";

// Environment variables.
const DISALLOW_CLEAR: &str = "LTTNG_RELAYD_DISALLOW_CLEAR";
const WORKING_DIRECTORY: &str = "LTTNG_RELAYD_WORKING_DIRECTORY";
const HEALTH: &str = "LTTNG_RELAYD_HEALTH";
const HOME: &str = "LTTNG_HOME";

/// Looks up an environment variable. An empty one counts as not set.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Looks up a variable of this process.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Arguments {
    /// These options, completed with those of the configuration files, and a warning for each line
    /// of the files that was ignored.
    ///
    /// # Errors
    /// If the file of `--config` cannot be read, or an option has an invalid value.
    pub fn with_files(self) -> Result<(Self, Vec<String>), ArgumentError> {
        let files = Files::read(home(&variable).as_deref(), self.config.as_deref())?;
        let from_files = files.arguments()?;
        Ok((self.or(from_files), files.warnings))
    }

    /// These options, and those of `other` that are not among them. Options that exclude each other
    /// are taken from one of the two.
    fn or(self, other: Self) -> Self {
        let has_grouping = self.group_output_by_host || self.group_output_by_session;
        let grouping = if has_grouping { &self } else { &other };
        let has_mode = self.background || self.daemonize;
        let mode = if has_mode { &self } else { &other };
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
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
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
            durability: self.durability.or(other.durability),
            archive: self.archive.or(other.archive),
            archive_endpoint: self.archive_endpoint.or(other.archive_endpoint),
            archive_interval: self.archive_interval.or(other.archive_interval),
            archive_part_age: self.archive_part_age.or(other.archive_part_age),
            archive_list: self.archive_list.or(other.archive_list),
            sync_interval: self.sync_interval.or(other.sync_interval),
            resume_timeout: self.resume_timeout.or(other.resume_timeout),
            retain_age: self.retain_age.or(other.retain_age),
            retain_size: self.retain_size.or(other.retain_size),
            http: self.http.or(other.http),
            quic: self.quic.or(other.quic),
            log_file: self.log_file.or(other.log_file),
            log_format: self.log_format.or(other.log_format),
        }
    }

    /// The configuration of a relay whose process may have `open_files` open files.
    ///
    /// # Errors
    /// If there is no output directory, a path cannot be resolved, or a value is invalid.
    pub fn config(self, open_files: u64) -> Result<Config, ArgumentError> {
        self.resolve(&variable, open_files)
    }

    fn resolve(self, env: Lookup<'_>, open_files: u64) -> Result<Config, ArgumentError> {
        let endpoint = |given: Option<Endpoint>, (host, port): (&str, u16)| match given {
            Some(given) => given.or_port(port),
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
        let pool = pool_size(self.fd_pool_size, open_files)?;
        let signals_parent = self.sig_parent && self.mode() == Mode::Foreground;
        let from_env = |name| env(name).map(PathBuf::from);
        let working_directory = self
            .working_directory
            .or_else(|| from_env(WORKING_DIRECTORY));
        let run_folder = run_folder::path(env, home.as_deref());
        let [control, data, live] = [
            endpoint(self.control_port, DEFAULT_CONTROL),
            endpoint(self.data_port, DEFAULT_DATA),
            endpoint(self.live_port, DEFAULT_LIVE),
        ];
        let files = [self.tls_cert, self.tls_key, self.tls_client_ca];
        let (durability, is_archived) = match self.durability {
            None => (Durability::default(), false),
            Some(DurabilityLevel::Disk(level)) => (level, false),
            Some(DurabilityLevel::Archive) => (Durability::Process, true),
        };
        let times = [
            self.archive_interval,
            self.archive_part_age,
            self.archive_list,
        ];
        let archive = archive(self.archive, self.archive_endpoint, times, is_archived)?;
        let quic = self.quic.map(|quic| quic.or_port(DEFAULT_QUIC_PORT));
        let tls = tls_files(files, [&control, &data, &live], quic.as_ref())?;
        Ok(Config {
            output,
            grouping: if self.group_output_by_session {
                Grouping::BySession
            } else {
                Grouping::ByHost
            },
            allows_clear: !self.disallow_clear && !is_set(env, DISALLOW_CLEAR)?,
            control,
            data,
            live,
            tls,
            http: self.http.map(|http| http.or_port(DEFAULT_HTTP_PORT)),
            quic,
            network: Network::from_environment(env),
            pool,
            max_connections: max_connections(open_files, pool as u64),
            window: ReorderWindow {
                packets: self
                    .reorder_packets
                    .map_or(DEFAULT_WINDOW.packets, |packets| packets as usize),
                bytes: self.reorder_bytes.map_or(DEFAULT_WINDOW.bytes, Bytes),
            },
            reorder_memory: self.reorder_memory.unwrap_or(REORDER_MEMORY),
            when_full: self.on_disk_full.unwrap_or_default(),
            sync: SyncSettings {
                durability,
                interval: self.sync_interval.map_or(DEFAULT_SYNC_INTERVAL, |millis| {
                    Duration::from_millis(millis.into())
                }),
            },
            resume_timeout: self.resume_timeout.map_or(RESUME_TIMEOUT, |seconds| {
                Duration::from_secs(seconds.into())
            }),
            retention: RetentionSettings {
                max_age: self.retain_age,
                max_bytes: self.retain_size,
            },
            archive,
            time_zone: local_time_zone(),
            process: ServiceConfig {
                working_directory: working_directory.map(make_absolute).transpose()?,
                group: self.group,
                health: from_env(HEALTH).map(make_absolute).transpose()?,
                pid_file: self.pid_file.map(make_absolute).transpose()?,
                signals_parent,
                run_folder: run_folder.map(make_absolute).transpose()?,
            },
        })
    }

    /// Whether the parent process is sent SIGUSR1 when all ports accept connections.
    #[must_use]
    pub fn signals_parent(&self) -> bool {
        self.sig_parent
    }
}

/// The time zone of this host, or that of the environment variable TZ. UTC if there is none.
fn local_time_zone() -> TimeZone {
    if std::env::var_os("TZ").is_some() {
        return TimeZone::system();
    }
    // `TimeZone::system` reads this file too, but also the names of all zones, to find that of this
    // one: a hundred kilobytes.
    let local = std::fs::read(LOCAL_TIME).ok();
    let zone = local.and_then(|bytes| TimeZone::tzif("Local", &bytes).ok());
    zone.unwrap_or(TimeZone::UTC)
}

/// The files of certificate, key and client CA, which the ports with TLS need and the others do
/// not.
fn tls_files(
    files: [Option<PathBuf>; 3],
    ports: [&Endpoint; 3],
    quic: Option<&Endpoint>,
) -> Result<Option<TlsFiles>, ArgumentError> {
    let Some(port) = ports.into_iter().find(|port| port.is_tls()).or(quic) else {
        let is_given = files.iter().any(Option::is_some);
        return if is_given {
            Err(ArgumentError::UnusedCertificate)
        } else {
            Ok(None)
        };
    };
    let [Some(certificate), Some(key), client_ca] = files else {
        return Err(ArgumentError::NoCertificate(port.clone()));
    };
    Ok(Some(TlsFiles {
        certificate: make_absolute(certificate)?,
        key: make_absolute(key)?,
        client_ca: client_ca.map(make_absolute).transpose()?,
    }))
}

/// The archive, whose other options need its URL.
fn archive(
    url: Option<String>,
    endpoint: Option<String>,
    [interval, part_age, list]: [Option<Duration>; 3],
    is_guaranteed: bool,
) -> Result<Option<ArchiveConfig>, ArgumentError> {
    for (option, time) in [
        ("--archive-interval", interval),
        ("--archive-part-age", part_age),
    ] {
        if time.is_some_and(|time| time.is_zero()) {
            return Err(ArgumentError::NoTime(option));
        }
    }
    let given = [
        ("--archive-endpoint", endpoint.is_some()),
        ("--archive-interval", interval.is_some()),
        ("--archive-part-age", part_age.is_some()),
        ("--archive-list", list.is_some()),
    ];
    match url {
        Some(url) => Ok(Some(ArchiveConfig {
            url,
            endpoint,
            times: ArchiveTimes {
                interval: interval.unwrap_or(ARCHIVE_INTERVAL),
                part_age: part_age.unwrap_or(ARCHIVE_PART_AGE),
            },
            listed_for: list.unwrap_or(FLEET_LISTED_FOR),
            is_guaranteed,
        })),
        None if is_guaranteed => Err(ArgumentError::NoArchive),
        None => match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(ArgumentError::UnusedArchiveOption(option)),
            None => Ok(None),
        },
    }
}

/// Maximum number of open trace files of a process that may have `allowed` open files.
fn pool_size(asked: Option<u32>, allowed: u64) -> Result<usize, ArgumentError> {
    let max = match asked {
        Some(asked) if u64::from(asked) > allowed => {
            return Err(ArgumentError::PoolBeyondLimit { asked, allowed });
        }
        Some(asked) => u64::from(asked),
        // The other quarter is left to connections.
        None => allowed / 4 * 3,
    };
    Ok(usize::try_from(max).unwrap_or(usize::MAX))
}

fn home(env: Lookup<'_>) -> Option<PathBuf> {
    env(HOME).or_else(|| env("HOME")).map(PathBuf::from)
}

/// Makes a path independent of the working directory, which the relay may change.
fn make_absolute(path: PathBuf) -> Result<PathBuf, ArgumentError> {
    if path.is_absolute() {
        return Ok(path);
    }
    match current_dir() {
        Ok(here) => Ok(here.join(path)),
        Err(_) => Err(ArgumentError::NoWorkingDirectory(path)),
    }
}

/// Whether a boolean variable is true. One that is not set is false.
fn is_set(env: Lookup<'_>, name: &'static str) -> Result<bool, ArgumentError> {
    let Some(value) = env(name) else {
        return Ok(false);
    };
    let boolean = value.to_str().and_then(parse_boolean);
    boolean.ok_or(ArgumentError::Variable(name))
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

    fn resolved(arguments: Arguments, variables: &[(&str, &str)]) -> Result<Config, ArgumentError> {
        let env = |name: &str| {
            let set = variables.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| OsString::from(value))
        };
        arguments.resolve(&env, LIMIT)
    }

    const AT_HOME: (&str, &str) = ("HOME", "/home/me");

    #[test]
    fn local_time_zone_has_the_offsets_of_the_system_in_winter_and_in_summer() {
        let (local, system) = (local_time_zone(), TimeZone::system());
        for seconds in [1_768_478_400, 1_784_116_800] {
            let at = jiff::Timestamp::from_second(seconds).unwrap();
            assert_eq!(local.to_offset(at), system.to_offset(at), "{at}");
        }
    }

    #[test]
    fn defaults_are_those_of_lttng_relayd() {
        let config = resolved(parse(&[]), &[AT_HOME]).unwrap();
        assert_eq!(config.output, Path::new("/home/me/lttng-traces"));
        assert_eq!(config.grouping, Grouping::ByHost);
        assert!(config.allows_clear);
        assert_eq!(config.control.to_string(), "tcp://0.0.0.0:5342");
        assert_eq!(config.data.to_string(), "tcp://0.0.0.0:5343");
        assert_eq!(config.live.to_string(), "tcp://localhost:5344");
        assert_eq!((config.pool, config.max_connections), (768, 192));
        assert_eq!(config.reorder_memory, REORDER_MEMORY);
        let sync = SyncSettings {
            durability: Durability::Process,
            interval: Duration::from_secs(1),
        };
        assert_eq!(config.sync, sync);
        assert_eq!(config.process.working_directory, None);
        let elsewhere = resolved(parse(&[]), &[AT_HOME, ("LTTNG_HOME", "/lttng")]).unwrap();
        assert_eq!(elsewhere.output, Path::new("/lttng/lttng-traces"));
        assert!(matches!(
            resolved(parse(&[]), &[]),
            Err(ArgumentError::NoHome)
        ));
    }

    #[test]
    fn command_line_options_set_the_configuration() {
        let config = resolved(
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
            resolved(parse(&["-o", "out"]), &[]),
            Err(ArgumentError::RelativeOutput(_))
        ));
        let synced = &["-o", "/o", "--durability=packet", "--sync-interval=50"];
        let sync = SyncSettings {
            durability: Durability::Packet,
            interval: Duration::from_millis(50),
        };
        assert_eq!(resolved(parse(synced), &[]).unwrap().sync, sync);
        let pool = resolved(parse(&["-o", "/o", "--fd-pool-size=200"]), &[]);
        assert_eq!(pool.unwrap().pool, 200);
        assert!(matches!(
            resolved(parse(&["-o", "/o", "--fd-pool-size=2000"]), &[]),
            Err(ArgumentError::PoolBeyondLimit {
                asked: 2000,
                allowed: LIMIT
            })
        ));
    }

    #[test]
    fn tls_ports_need_a_certificate_and_a_certificate_needs_a_tls_port() {
        let files = ["--tls-cert=/c.pem", "--tls-key=/c.key"];
        let with = |arguments: &[&str]| resolved(parse(&[&["-o", "/o"], arguments].concat()), &[]);
        let config = with(&[&files[..], &["-L", "tls://0.0.0.0"]].concat()).unwrap();
        assert_eq!(config.live.to_string(), "tls://0.0.0.0:5344");
        let tls = config.tls.unwrap();
        assert_eq!(tls.certificate, Path::new("/c.pem"));
        assert_eq!(tls.client_ca, None);
        assert_eq!(with(&[]).unwrap().tls, None);
        for arguments in [&["-D", "tls6://::1"][..], &["-D", "tls://h", files[0]]] {
            let refused = with(arguments);
            assert!(matches!(refused, Err(ArgumentError::NoCertificate(_))));
        }
        for arguments in [&files[..], &["--tls-client-ca=/ca.pem"]] {
            let refused = with(arguments);
            assert!(matches!(refused, Err(ArgumentError::UnusedCertificate)));
        }
    }

    #[test]
    fn command_line_takes_precedence_over_configuration_files() {
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
        let config = resolved(both, &[]).unwrap();
        assert_eq!(config.grouping, Grouping::ByHost);
        assert_eq!(config.output, Path::new("/line"));
    }

    #[test]
    fn environment_variables_apply_where_no_option_is_given() {
        let variables = [
            AT_HOME,
            (WORKING_DIRECTORY, "/var"),
            (HEALTH, "/run/health"),
        ];
        let process = resolved(parse(&[]), &variables).unwrap().process;
        assert_eq!(
            process.working_directory.as_deref(),
            Some(Path::new("/var"))
        );
        assert_eq!(process.health.as_deref(), Some(Path::new("/run/health")));
        let process = resolved(parse(&["-w", "/tmp"]), &variables)
            .unwrap()
            .process;
        assert_eq!(
            process.working_directory.as_deref(),
            Some(Path::new("/tmp"))
        );
        for (value, allows) in [("1", false), ("on", false), ("0", true), ("No", true)] {
            let config = resolved(parse(&[]), &[AT_HOME, (DISALLOW_CLEAR, value)]);
            assert_eq!(config.unwrap().allows_clear, allows, "{value}");
        }
        let perhaps = resolved(parse(&[]), &[AT_HOME, (DISALLOW_CLEAR, "perhaps")]);
        assert!(matches!(
            perhaps,
            Err(ArgumentError::Variable(DISALLOW_CLEAR))
        ));
    }
}
