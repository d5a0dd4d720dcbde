//! The relay's configuration: endpoints, directories, limits and timeouts, as values that no longer
//! depend on where they were set. `cli` makes it of options, files and environment variables.

use std::path::PathBuf;
use std::time::Duration;

use daemon::endpoint::Endpoint;
use jiff::tz::TimeZone;
use serde_json::Value;

pub use self::network::{KeepAlive, Network, Timeouts};
pub use self::tls::TlsFiles;
use crate::archiver::ArchiveTimes;
use crate::ingest::DiskFullPolicy;
use crate::ingest::reorder::ReorderWindow;
use crate::service::ServiceConfig;
use crate::store::layout::Grouping;
use crate::store::retention::RetentionSettings;
use crate::store::sync::SyncSettings;

mod network;
mod tls;

/// The LTTng release whose `lttng-relayd` this daemon replaces. Packages compare it.
pub const LTTNG_RELEASE: &str = "2.15.0";

/// The level of `--durability` that guarantees that data is in the archive.
pub const ARCHIVE_LEVEL: &str = "archive";

/// Format of the log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event, on a line of its own.
    Json,
}

/// The archive of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveConfig {
    /// URL of the archive.
    pub url: String,
    /// URL of the server, if it is not the provider's own.
    pub endpoint: Option<String>,
    /// Settings of when objects are written.
    pub times: ArchiveTimes,
    /// Time since their end for which viewers are shown sessions of the archive.
    pub listed_for: Duration,
    /// Whether the reply to a producer guarantees that data is in the archive.
    pub is_guaranteed: bool,
}

/// Configuration of one relay. It does not change while the relay runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Absolute path of the directory that all traces are written below.
    pub output: PathBuf,
    /// Whether session directories are grouped by host or by session name.
    pub grouping: Grouping,
    /// Whether producers may delete what they recorded (`lttng clear`).
    pub allows_clear: bool,
    /// Endpoint of producers' control connections.
    pub control: Endpoint,
    /// Endpoint of producers' data connections.
    pub data: Endpoint,
    /// Endpoint of viewers' connections.
    pub live: Endpoint,
    /// Endpoint of the HTTP status endpoint. None if it is not served.
    pub http: Option<Endpoint>,
    /// Endpoint of the QUIC port (UDP). None if there is none.
    pub quic: Option<Endpoint>,
    /// Certificates of the encrypted ports. Present if one of them is `tls://`, or there is a QUIC
    /// port.
    pub tls: Option<TlsFiles>,
    /// Keep-alive and timeouts of connections.
    pub network: Network,
    /// Maximum number of open trace files.
    pub pool: usize,
    /// Maximum number of connections of all ports together.
    pub max_connections: usize,
    /// Packets and bytes of a stream after which a missing packet is given up.
    pub window: ReorderWindow,
    /// Maximum memory for early packets of all streams together, in bytes.
    pub reorder_memory: u64,
    /// Whether producers are paused or sessions closed when the disk is full.
    pub when_full: DiskFullPolicy,
    /// Settings of what replies to producers guarantee, and of when files are synced.
    pub sync: SyncSettings,
    /// Longest time for which a session is kept whose producer has lost its connection. Zero: none
    /// is kept.
    pub resume_timeout: Duration,
    /// Settings of which sessions are removed when they are old, or the output is large.
    pub retention: RetentionSettings,
    /// Settings of the archive. None: there is none.
    pub archive: Option<ArchiveConfig>,
    /// Time zone of the times in directory names.
    pub time_zone: TimeZone,
    /// Settings of what the relay sets up around itself.
    pub process: ServiceConfig,
}

impl Config {
    /// The level of `--durability`.
    fn durability(&self) -> &'static str {
        match &self.archive {
            Some(archive) if archive.is_guaranteed => ARCHIVE_LEVEL,
            _ => self.sync.durability.name(),
        }
    }

    /// The settings of the relay as a configuration file, with the values of those that were not
    /// set.
    #[must_use]
    pub fn to_file(&self) -> String {
        let mut text = "[relayd]\n".to_owned();
        for (name, value) in self.options() {
            text += &match value {
                Value::Bool(true) => format!("{name}=yes\n"),
                Value::Bool(false) => format!("{name}=no\n"),
                Value::String(text) => format!("{name}={text}\n"),
                number => format!("{name}={number}\n"),
            };
        }
        text
    }

    /// The settings as JSON: an object with the names of the options.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let options = self.options().into_iter();
        options
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    /// The names and values of all options that have one.
    fn options(&self) -> Vec<(&'static str, Value)> {
        let path = |path: &PathBuf| path.display().to_string();
        let grouping = match self.grouping {
            Grouping::ByHost => "group-output-by-host",
            Grouping::BySession => "group-output-by-session",
        };
        let set = [
            ("output", path(&self.output).into()),
            (grouping, true.into()),
            ("disallow-clear", (!self.allows_clear).into()),
            ("control-port", self.control.to_string().into()),
            ("data-port", self.data.to_string().into()),
            ("live-port", self.live.to_string().into()),
            ("fd-pool-size", self.pool.into()),
            ("reorder-packets", self.window.packets.into()),
            ("reorder-bytes", self.window.bytes.0.into()),
            ("reorder-memory", self.reorder_memory.into()),
            (
                "on-disk-full",
                format!("{:?}", self.when_full).to_lowercase().into(),
            ),
            ("durability", self.durability().into()),
            ("sync-interval", milliseconds(self.sync.interval)),
            ("resume-timeout", self.resume_timeout.as_secs().into()),
        ];
        let age = self
            .retention
            .max_age
            .map(|age| format!("{}s", age.as_secs()));
        let tls = self.tls.as_ref();
        let process = &self.process;
        let archive = self.archive.as_ref();
        let seconds = |time: Duration| format!("{}ms", time.as_millis());
        let optional = [
            ("archive", archive.map(|archive| archive.url.clone())),
            (
                "archive-endpoint",
                archive.and_then(|archive| archive.endpoint.clone()),
            ),
            (
                "archive-interval",
                archive.map(|archive| seconds(archive.times.interval)),
            ),
            (
                "archive-part-age",
                archive.map(|archive| seconds(archive.times.part_age)),
            ),
            (
                "archive-list",
                archive.map(|archive| seconds(archive.listed_for)),
            ),
            ("http", self.http.as_ref().map(Endpoint::to_string)),
            ("quic", self.quic.as_ref().map(Endpoint::to_string)),
            ("tls-cert", tls.map(|tls| path(&tls.certificate))),
            ("tls-key", tls.map(|tls| path(&tls.key))),
            (
                "tls-client-ca",
                tls.and_then(|tls| tls.client_ca.as_ref().map(path)),
            ),
            ("retain-age", age),
            (
                "working-directory",
                process.working_directory.as_ref().map(path),
            ),
            ("pid-file", process.pid_file.as_ref().map(path)),
            ("group", process.group.clone()),
        ];
        let optional = optional.into_iter();
        let optional = optional.filter_map(|(name, value)| Some((name, value?.into())));
        let size = self.retention.max_bytes;
        let size = size.map(|size| ("retain-size", size.into()));
        set.into_iter().chain(optional).chain(size).collect()
    }
}

/// A duration as a number of milliseconds.
fn milliseconds(duration: Duration) -> Value {
    u64::try_from(duration.as_millis()).map_or(Value::Null, Value::from)
}

/// Parses a boolean of a configuration file or environment variable. None if the text is none.
pub(crate) fn parse_boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
