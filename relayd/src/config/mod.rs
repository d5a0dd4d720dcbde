//! The relay's configuration: endpoints, directories, limits and timeouts, as values that no longer depend on
//! where they were set. `cli` makes it of options, files and environment variables.

use std::path::PathBuf;
use std::time::Duration;

use daemon::endpoint::Endpoint;
use jiff::tz::TimeZone;

pub use self::network::{KeepAlive, Network, Timeouts};
pub use self::tls::TlsFiles;
use crate::ingest::WhenFull;
use crate::ingest::reorder::ReorderWindow;
use crate::service::ServiceConfig;
use crate::store::layout::Grouping;
use crate::store::sync::SyncSettings;

mod network;
mod tls;

/// Format of the log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event, on a line of its own.
    Json,
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
    /// Certificates of the encrypted ports. Present if one of them is `tls://`, or there is a QUIC port.
    pub tls: Option<TlsFiles>,
    /// Keep-alive and timeouts of connections.
    pub network: Network,
    /// Maximum number of open trace files.
    pub pool: usize,
    /// Packets and bytes of a stream after which a missing packet is given up.
    pub window: ReorderWindow,
    /// Maximum memory for early packets of all streams together, in bytes.
    pub reorder_memory: u64,
    /// Whether producers are paused or sessions closed when the disk is full.
    pub when_full: WhenFull,
    /// What replies to producers guarantee, and when files are synced.
    pub sync: SyncSettings,
    /// Longest time for which a session is kept whose producer has lost its connection. Zero: none is kept.
    pub resume_timeout: Duration,
    /// Time zone of the times in directory names.
    pub time_zone: TimeZone,
    /// Settings of what the relay sets up around itself.
    pub process: ServiceConfig,
}

/// Parses a boolean of a configuration file or environment variable. None if the text is none.
pub(crate) fn parse_boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}
