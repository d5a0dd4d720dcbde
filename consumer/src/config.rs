//! What the agent is told: a TOML file, over which the command line has its way.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frontend::tldrs;
use crate::limits::{
    DEFAULT_QUEUE_BYTES, DEFAULT_STOP_TIMEOUT, MAX_PACKET_BYTES, MIN_PACKET_BYTES,
};
use crate::queue::QueueCapacity;
use crate::uplink::target::{RelayTarget, TargetError};
use crate::{status, uplink};

/// All settings of `consumer serve`. What a file does not say has its usual value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Where everything goes.
    pub relay: RelayConfig,
    /// What sessions are like.
    pub session: SessionConfig,
    /// What may wait for the relay.
    pub queue: QueueConfig,
    /// The process.
    pub agent: AgentConfig,
    /// A `tldrs` daemon in it. Without this section there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tldrs: Option<tldrs_daemon::DaemonOptions>,
}

/// Where everything goes: one URL, or two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RelayConfig {
    /// `net://HOST[:CONTROL-PORT[:DATA-PORT]][/PATH]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `tcp://HOST[:PORT]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_url: Option<String>,
    /// `tcp://HOST[:PORT]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_url: Option<String>,
}

/// What sessions are like, unless a frontend knows better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SessionConfig {
    /// The host that they are said to be of.
    pub host: String,
    /// How often what there is is sent, and viewers are told of quiet streams, in microseconds.
    pub live_timer_us: u32,
    /// Largest packet, in bytes.
    pub packet_bytes: u32,
    /// Size at which the relay begins another tracefile, in bytes. 0: never.
    pub tracefile_bytes: u64,
    /// Tracefiles that it keeps of a stream. 0: all, or 65536 if their size is limited.
    pub tracefile_count: u64,
}

/// What may wait for the relay, in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct QueueConfig {
    /// Of one session.
    pub session_bytes: u32,
    /// Of all together.
    pub all_bytes: u32,
}

/// The process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentConfig {
    /// Where `consumer status` asks.
    pub status_socket: PathBuf,
    /// When it is told to stop: seconds in which a relay may take what is left.
    pub stop_within_s: u32,
}

/// Why a configuration cannot be followed.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no TOML, or says what nobody knows.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// What, and in which line.
        source: Box<toml::de::Error>,
    },
    /// No relay.
    #[error("no relay is named: -U net://HOST, or url in [relay]")]
    NoRelay,
    /// One of two ports.
    #[error("a relay is one url (-U), or both control-url (-C) and data-url (-D)")]
    IncompleteRelay,
    /// A relay that is none.
    #[error(transparent)]
    Relay(#[from] TargetError),
    /// A value that cannot be.
    #[error("{key} must be from {min} to {max}")]
    Range {
        /// Its key.
        key: &'static str,
        /// At min.
        min: u64,
        /// At max.
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
    /// How traces of the `tldrs` daemon are forwarded.
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

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            session_bytes: DEFAULT_QUEUE_BYTES,
            all_bytes: DEFAULT_QUEUE_BYTES * 4,
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
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or has in it what is not known here.
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

    /// Whether it can be followed.
    ///
    /// # Errors
    /// If it names no relay, or a value is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.relay.target()?;
        let ranges = [
            (
                "session.packet-bytes",
                u64::from(self.session.packet_bytes),
                MIN_PACKET_BYTES,
                MAX_PACKET_BYTES,
            ),
            (
                "session.live-timer-us",
                u64::from(self.session.live_timer_us),
                1,
                u64::from(u32::MAX),
            ),
            (
                "queue.session-bytes",
                u64::from(self.queue.session_bytes),
                MIN_PACKET_BYTES,
                u64::from(u32::MAX / 8),
            ),
            (
                "queue.all-bytes",
                u64::from(self.queue.all_bytes),
                MIN_PACKET_BYTES,
                u64::from(u32::MAX / 8),
            ),
        ];
        for (key, value, min, max) in ranges {
            if !(min..=max).contains(&value) {
                return Err(ConfigError::Range { key, min, max });
            }
        }
        Ok(())
    }

    /// As a file that says all of it.
    ///
    /// # Errors
    /// If a path in it is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// How sessions are taken to the relay.
    ///
    /// # Errors
    /// If none is named.
    pub fn uplink(&self) -> Result<uplink::UplinkSettings, ConfigError> {
        Ok(uplink::UplinkSettings {
            target: self.relay.target()?,
            reconnect_timeout: None,
        })
    }

    /// How many bytes may wait for the relay.
    #[must_use]
    pub fn queue_capacity(&self) -> QueueCapacity {
        QueueCapacity {
            session_bytes: self.queue.session_bytes,
            all_bytes: self.queue.all_bytes,
        }
    }

    /// In which time a relay may take what is left when the process is told to stop.
    #[must_use]
    pub fn stop_timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.agent.stop_within_s))
    }
}

impl RelayConfig {
    /// The relay that is named.
    ///
    /// # Errors
    /// If none is, or only half of one.
    pub fn target(&self) -> Result<RelayTarget, ConfigError> {
        match (&self.url, &self.control_url, &self.data_url) {
            (Some(url), None, None) => Ok(url.parse()?),
            (None, Some(control), Some(data)) => Ok(RelayTarget::from_port_urls(control, data)?),
            (None, None, None) => Err(ConfigError::NoRelay),
            _ => Err(ConfigError::IncompleteRelay),
        }
    }

    /// Whether it names anything.
    #[must_use]
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}

/// What this host calls itself.
#[must_use]
pub fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let small = format!("{both}[session]\npacket-bytes = 1\n");
        assert!(matches!(target(&small), Err(ConfigError::Range { .. })));
    }
}
