//! The configuration of `consumer serve`: a TOML file. Options of the command line override it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tldrs_daemon::limits::{MAX_CLIENTS, MAX_LINE_BYTES, MAX_TRACES, MIN_LINE_BYTES};
use transport::client_files::{ClientFiles, MissingFile};
use transport::error::TransportError;

use crate::frontend::{codetracer, ring, tldrs};
use crate::limits::{
    DEFAULT_SOURCE_BYTES, DEFAULT_STOP_TIMEOUT, MAX_PACKET_BYTES, MIN_PACKET_BYTES, MIN_SPOOL_BYTES,
};
use crate::queue::QueueCapacity;
use crate::spool::SpoolSettings;
use crate::uplink::target::{Link, RelayTarget, TargetError};
use crate::{status, uplink};

/// All settings of `consumer serve`. A setting that the file does not have has its default value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The relay that all sessions are sent to.
    pub relay: RelayConfig,
    /// Properties of the sessions that are opened on the relay.
    pub session: SessionConfig,
    /// Capacity of the queue of packets that the relay has not acknowledged yet.
    pub queue: QueueCapacity,
    /// Settings of the agent's process.
    pub agent: AgentConfig,
    /// Settings of the spool. If absent, packets that the relay has not acknowledged are in memory
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolSettings>,
    /// Options of the `tldrs` daemon that the agent runs. If absent, it runs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tldrs: Option<tldrs_daemon::DaemonOptions>,
    /// Shared-memory rings of traced programs. If absent, none are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<RingConfig>,
    /// CodeTracer recordings of local programs. If absent, none are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codetracer: Option<CodetracerConfig>,
}

/// The socket on which CodeTracer recordings are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CodetracerConfig {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Directory below which source files may be read when a recording names them. If absent, none
    /// are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_root: Option<PathBuf>,
    /// Largest source file that is copied, in bytes.
    #[serde(default = "default_source_bytes")]
    pub max_source_bytes: u64,
}

impl CodetracerConfig {
    /// Recordings on this socket, without source files.
    #[must_use]
    pub fn new(socket: PathBuf) -> Self {
        Self {
            socket,
            source_root: None,
            max_source_bytes: default_source_bytes(),
        }
    }
}

fn default_source_bytes() -> u64 {
    DEFAULT_SOURCE_BYTES
}

/// The shared-memory rings that are read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RingConfig {
    /// The run directory of the traced programs. If absent, that of programs with the agent's
    /// environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
}

/// The relay's address: either `url`, or both `control_url` and `data_url`; and certificates for
/// ports with TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelayConfig {
    /// Both ports in one: `net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]`, with TLS `nets://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The port for commands: `tcp://HOST[:PORT]`, with TLS `tls://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_url: Option<String>,
    /// The port for packets: `tcp://HOST[:PORT]`, with TLS `tls://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_url: Option<String>,
    /// File of the CAs that relays' certificates are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<PathBuf>,
    /// File of the agent's certificate, if relays require one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// File of the private key of `tls_cert`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Of a QUIC connection: how long a packet may take from when it is cut until the relay has it,
    /// in milliseconds. If absent, it may take any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic_deadline_ms: Option<u32>,
}

/// Properties of sessions, where a frontend does not set its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SessionConfig {
    /// Name of the traced host, as the relay stores it and viewers see it.
    pub host: String,
    /// Live timer, in microseconds: how often pending events are sent as a packet, and beacons for
    /// idle streams.
    pub live_timer_us: u32,
    /// Maximum size of a packet, in bytes.
    pub packet_bytes: u32,
    /// Size in bytes at which the relay begins the next tracefile of a stream. 0: no limit.
    pub tracefile_bytes: u64,
    /// Number of tracefiles that the relay keeps of a stream. 0: all, or 65536 if their size is
    /// limited.
    pub tracefile_count: u64,
}

/// Settings of the agent's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentConfig {
    /// Path of the Unix socket on which `consumer status` asks the agent.
    pub status_socket: PathBuf,
    /// Stop timeout, in seconds: how long queued packets are still sent to the relay after SIGTERM
    /// or SIGINT.
    pub stop_within_s: u32,
}

/// A configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The configuration file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not TOML, or has an unknown setting or a value of the wrong type.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// The configuration file.
        path: PathBuf,
        /// The fault, with its line in the file.
        source: Box<toml::de::Error>,
    },
    /// Neither the command line nor the file names a relay.
    #[error("no relay is named: use -U net://HOST, or set url in [relay]")]
    NoRelay,
    /// The relay has one of its two URLs only, or all three.
    #[error("incomplete relay: use either url (-U), or both control-url (-C) and data-url (-D)")]
    IncompleteRelay,
    /// The spool has no directory.
    #[error("no directory is named for the spool: use --spool DIR, or set directory in [spool]")]
    NoSpoolDirectory,
    /// A URL of the relay is malformed.
    #[error(transparent)]
    Relay(#[from] TargetError),
    /// A port is encrypted, and the certificates for it are incomplete.
    #[error(transparent)]
    MissingFile(#[from] MissingFile),
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificates(#[from] Box<TransportError>),
    /// Certificates are given, and no port is encrypted.
    #[error(
        "--tls-ca, --tls-cert and --tls-key need an encrypted relay: nets://HOST, tls://HOST[:PORT], or quic://HOST"
    )]
    UnusedCertificates,
    /// A deadline is given, and packets are not sent over QUIC.
    #[error("--quic-deadline needs a relay over QUIC: quic://HOST")]
    UnusedDeadline,
    /// A value is out of its range.
    #[error("{key} must be from {min} to {max}")]
    Range {
        /// The setting, as it is written in the file: section and key.
        key: &'static str,
        /// The smallest allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            host: host_name(),
            live_timer_us: 100_000,
            packet_bytes: 256 << 10,
            tracefile_bytes: 0,
            tracefile_count: 0,
        }
    }
}

impl SessionConfig {
    /// Returns the settings for forwarding traces of the `tldrs` daemon.
    #[must_use]
    pub fn forward(&self) -> tldrs::ForwardSettings {
        tldrs::ForwardSettings {
            host: self.host.clone(),
            live_timer: Duration::from_micros(self.live_timer_us.into()),
            packet_bytes: usize::try_from(self.packet_bytes).unwrap_or(usize::MAX),
            tracefiles: (self.tracefile_bytes, self.tracefile_count),
        }
    }
}

impl Config {
    /// Returns the settings for reading rings, if they are read.
    #[must_use]
    pub fn rings(&self) -> Option<ring::RingSettings> {
        self.ring.as_ref().map(|rings| self.ring_settings(rings))
    }

    /// Returns the socket for recordings and the settings of their sessions, if they are accepted.
    #[must_use]
    pub fn recordings(&self) -> Option<(PathBuf, codetracer::RecordingSettings)> {
        let recordings = self.codetracer.as_ref()?;
        let session = &self.session;
        let settings = codetracer::RecordingSettings {
            name: None,
            host: session.host.clone(),
            live_timer: Duration::from_micros(session.live_timer_us.into()),
            packet_bytes: usize::try_from(session.packet_bytes).unwrap_or(usize::MAX),
            tracefiles: (session.tracefile_bytes, session.tracefile_count),
            source_root: recordings.source_root.clone(),
            max_source_bytes: recordings.max_source_bytes,
        };
        Some((recordings.socket.clone(), settings))
    }

    /// Returns the settings for reading these rings.
    #[must_use]
    pub fn ring_settings(&self, rings: &RingConfig) -> ring::RingSettings {
        let session = &self.session;
        let directory = rings.directory.clone();
        ring::RingSettings {
            directory: directory.unwrap_or_else(ring::default_directory),
            host: session.host.clone(),
            base_path: self
                .relay
                .target()
                .map_or_else(|_| String::new(), |relay| relay.base_path),
            live_timer: Duration::from_micros(session.live_timer_us.into()),
            is_live: true,
            packet_bytes: usize::try_from(session.packet_bytes).unwrap_or(usize::MAX),
            tracefiles: (session.tracefile_bytes, session.tracefile_count),
            is_spooled: self.spool.is_some(),
            max_events_per_second: None,
            pids: Vec::new(),
        }
    }
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            status_socket: status::default_socket(),
            stop_within_s: u32::try_from(DEFAULT_STOP_TIMEOUT.as_secs()).unwrap_or(u32::MAX),
        }
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// If the file cannot be read, or [`ConfigError::Syntax`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| ConfigError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Checks that a relay is named and all values are in their ranges.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.relay.target()?;
        let (session, queue) = (&self.session, &self.queue);
        // A semaphore of tokio has at most `usize::MAX / 8` permits, one for each byte: this is
        // that limit of a 32-bit host.
        let queue_bytes = MIN_PACKET_BYTES..=u64::from(u32::MAX / 8);
        let packet_bytes = MIN_PACKET_BYTES..=MAX_PACKET_BYTES;
        let timer = 1..=u32::MAX.into();
        let tldrs = self.tldrs.clone().unwrap_or_default();
        let line_bytes = MIN_LINE_BYTES as u64..=MAX_LINE_BYTES as u64;
        if let Some(spool) = &self.spool {
            check_spool(spool)?;
        }
        for (key, value, range) in [
            (
                "session.packet-bytes",
                session.packet_bytes.into(),
                packet_bytes,
            ),
            ("session.live-timer-us", session.live_timer_us.into(), timer),
            (
                "queue.session-bytes",
                queue.session_bytes.into(),
                queue_bytes.clone(),
            ),
            ("queue.all-bytes", queue.all_bytes.into(), queue_bytes),
            ("tldrs.max-line", tldrs.max_line as u64, line_bytes),
            (
                "tldrs.max-clients",
                tldrs.max_clients as u64,
                1..=MAX_CLIENTS.into(),
            ),
            (
                "tldrs.max-traces",
                tldrs.max_traces as u64,
                1..=MAX_TRACES.into(),
            ),
        ] {
            if !range.contains(&value) {
                let (min, max) = (*range.start(), *range.end());
                return Err(ConfigError::Range { key, min, max });
            }
        }
        Ok(())
    }

    /// Returns the text of a configuration file with all settings, defaults included.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Returns the settings of the uplink, which reconnects without a timeout.
    ///
    /// # Errors
    /// If no relay is named, or its URL is malformed.
    pub fn uplink(&self) -> Result<uplink::UplinkSettings, ConfigError> {
        Ok(uplink::UplinkSettings {
            target: self.relay.target()?,
            reconnect_timeout: None,
        })
    }
}

/// Checks that a spool has a directory and a size.
///
/// # Errors
/// The first fault.
pub fn check_spool(spool: &SpoolSettings) -> Result<(), ConfigError> {
    if spool.directory.as_os_str().is_empty() {
        return Err(ConfigError::NoSpoolDirectory);
    }
    if spool.bytes < MIN_SPOOL_BYTES {
        let (min, max) = (MIN_SPOOL_BYTES, u64::MAX);
        let key = "spool.bytes";
        return Err(ConfigError::Range { key, min, max });
    }
    Ok(())
}

impl RelayConfig {
    /// Parses the relay's address.
    ///
    /// # Errors
    /// If there is none, it is incomplete, a URL is malformed, or certificates for it cannot be
    /// used.
    pub fn target(&self) -> Result<RelayTarget, ConfigError> {
        let mut target = self.addresses()?;
        if self.quic_deadline_ms == Some(0) {
            let (key, min, max) = ("relay.quic-deadline-ms", 1, u32::MAX.into());
            return Err(ConfigError::Range { key, min, max });
        }
        let files = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        if target.has_tls() {
            let [ca, certificate, key] = files.map(Clone::clone);
            let files = ClientFiles::from_options(ca, certificate, key)?;
            // They are read again for each connection; a user is to know at once if they cannot be.
            files.config(&[]).map_err(Box::new)?;
            target.tls = Some(files);
        } else if files.iter().any(|file| file.is_some()) {
            return Err(ConfigError::UnusedCertificates);
        }
        if target.link != Link::Quic && self.quic_deadline_ms.is_some() {
            return Err(ConfigError::UnusedDeadline);
        }
        target.deadline = self
            .quic_deadline_ms
            .map(|deadline| Duration::from_millis(deadline.into()));
        Ok(target)
    }

    fn addresses(&self) -> Result<RelayTarget, ConfigError> {
        match (&self.url, &self.control_url, &self.data_url) {
            (Some(url), None, None) => Ok(url.parse()?),
            (None, Some(control), Some(data)) => Ok(RelayTarget::from_port_urls(control, data)?),
            (None, None, None) => Err(ConfigError::NoRelay),
            _ => Err(ConfigError::IncompleteRelay),
        }
    }

    /// Whether any of the URLs is set.
    #[must_use]
    pub fn is_given(&self) -> bool {
        [&self.url, &self.control_url, &self.data_url]
            .iter()
            .any(|url| url.is_some())
    }

    /// This configuration, and what `other` has where this has nothing. All URLs are taken from one
    /// of the two.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let urls = if self.is_given() { &self } else { &other };
        Self {
            url: urls.url.clone(),
            control_url: urls.control_url.clone(),
            data_url: urls.data_url.clone(),
            tls_ca: self.tls_ca.or(other.tls_ca),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            quic_deadline_ms: self.quic_deadline_ms.or(other.quic_deadline_ms),
        }
    }
}

/// Returns the name of this host (`uname -n`).
#[must_use]
pub fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DEFAULT_QUEUE_BYTES;

    fn read(text: &str) -> Result<Config, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        Config::read(file.path())
    }

    #[test]
    fn settings_missing_in_the_file_have_their_defaults() {
        let config = read("[relay]\nurl = 'net://relay'\n[queue]\nall-bytes = 5000000\n").unwrap();
        config.check().unwrap();
        assert_eq!(config.session, SessionConfig::default());
        assert_eq!(config.queue.all_bytes, 5_000_000);
        assert_eq!(config.queue.session_bytes, DEFAULT_QUEUE_BYTES);
        assert_eq!(read(&config.to_toml().unwrap()).unwrap(), config);
    }

    #[test]
    fn unknown_setting_is_an_error_with_its_line() {
        for (text, line) in [
            ("[relay]\nuri = 'net://relay'\n", "line 2"),
            ("\n\n[relays]\n", "line 3"),
            ("[queue]\nall-bytes = -1\n", "line 2"),
            ("[queue\n", "line 1"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(line), "{text:?}: {error}");
        }
    }

    #[test]
    fn relay_configuration_needs_one_url_or_both() {
        let target = |text: &str| read(text).unwrap().check();
        assert!(matches!(target(""), Err(ConfigError::NoRelay)));
        let half = "[relay]\ncontrol-url = 'tcp://a'\n";
        assert!(matches!(target(half), Err(ConfigError::IncompleteRelay)));
        let both = "[relay]\ncontrol-url = 'tcp://a'\ndata-url = 'tcp://b'\n";
        target(both).unwrap();
        let no_spool = format!("{both}[spool]\non-full = 'drop-oldest'\n");
        assert!(matches!(
            target(&no_spool),
            Err(ConfigError::NoSpoolDirectory)
        ));
        let small = format!("{both}[spool]\ndirectory = '/s'\nbytes = 1000\n");
        assert!(matches!(target(&small), Err(ConfigError::Range { .. })));
        let small = format!("{both}[session]\npacket-bytes = 1\n");
        assert!(matches!(target(&small), Err(ConfigError::Range { .. })));
    }

    #[test]
    fn settings_of_a_file_have_the_ranges_that_options_have() {
        let relay = "[relay]\nurl = 'net://relay'\n";
        for (text, key) in [
            ("quic-deadline-ms = 0", "relay.quic-deadline-ms"),
            ("[tldrs]\nmax-clients = 0", "tldrs.max-clients"),
            (
                "[tldrs]\nmax-clients = 9223372036854775807",
                "tldrs.max-clients",
            ),
            ("[tldrs]\nmax-traces = 1000001", "tldrs.max-traces"),
            ("[tldrs]\nmax-line = 1073741825", "tldrs.max-line"),
            ("[tldrs]\nmax-line = 0", "tldrs.max-line"),
        ] {
            let error = read(&format!("{relay}{text}\n")).unwrap().check();
            let error = error.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{key} must be from ")),
                "{error}"
            );
        }
        let good = "[tldrs]\nmax-clients = 1\nmax-traces = 1000000\nmax-line = 1073741824";
        let good = read(&format!("{relay}{good}\n"));
        good.unwrap().check().unwrap();
    }
}
