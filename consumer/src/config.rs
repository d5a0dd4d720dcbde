//! The configuration of `consumer serve`: a TOML file. Options of the command line override it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use transport::client_files::{ClientFiles, MissingFile};
use transport::error::TransportError;

use crate::frontend::{self, Frontend, SessionConfig, frontends};
use crate::limits::{
    DEFAULT_CLOCK_INTERVAL_MS, DEFAULT_STOP_TIMEOUT, MAX_PACKET_BYTES, MIN_PACKET_BYTES,
    MIN_SPOOL_BYTES,
};
use crate::queue::QueueCapacity;
use crate::spool::SpoolSettings;
use crate::uplink::target::{Link, RelayTarget, TargetError};
use crate::{status, uplink};

/// Defines [`Config`], which has a section for each frontend.
macro_rules! define_config {
    ($($frontend:ident: $section:ident,)*) => {
        /// All settings of `consumer serve`. A setting that the file does not have has its default
        /// value.
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
            /// Settings of the spool. If absent, packets that the relay has not acknowledged are in
            /// memory only.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub spool: Option<SpoolSettings>,
            $(
                #[doc = concat!("Settings of the frontend `", stringify!($frontend), "`. If absent, it does not run.")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $frontend: Option<frontend::$frontend::$section>,
            )*
        }

        impl Config {
            /// Names of all frontends: of their sections, and of the options that enable them.
            pub const FRONTENDS: &[&str] = &[$(stringify!($frontend)),*];

            /// Returns the frontends that are enabled.
            pub fn frontends(&self) -> impl Iterator<Item = &dyn Frontend> {
                let sections = [$(self.$frontend.as_ref().map(|section| section as &dyn Frontend)),*];
                sections.into_iter().flatten()
            }
        }
    };
}
frontends!(define_config);

/// The relay's address: either `url`, or both `control_url` and `data_url`; and certificates for
/// ports with TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelayConfig {
    /// Both ports in one: `net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]`, with TLS `nets://`; for
    /// several relays a list, `net://HOST,HOST`.
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
    /// How long a packet may take over a QUIC connection from when it is cut until the relay has
    /// it, in milliseconds. If absent, it may take any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic_deadline_ms: Option<u32>,
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
    /// Time between two samples of the clock of this host beside that of the relay, in
    /// milliseconds. 0: none are taken.
    pub clock_interval_ms: u32,
}

/// A configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the configuration file, as the user has given it.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not TOML, or has an unknown setting or a value of the wrong type.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Path of the configuration file, as the user has given it.
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

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            status_socket: status::default_socket(),
            stop_within_s: u32::try_from(DEFAULT_STOP_TIMEOUT.as_secs()).unwrap_or(u32::MAX),
            clock_interval_ms: DEFAULT_CLOCK_INTERVAL_MS,
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
        if let Some(spool) = &self.spool {
            check_spool(spool)?;
        }
        let general = [
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
        ];
        let of_frontends = self.frontends().flat_map(Frontend::bounded_settings);
        for (key, value, range) in general.into_iter().chain(of_frontends) {
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

    /// Returns this configuration, and what `other` has where this one has nothing. All URLs are
    /// taken from one of the two.
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
