//! What the relay is told when it starts.

use std::path::PathBuf;

use daemon::endpoint::Endpoint;
use jiff::tz::TimeZone;

pub use self::network::{KeepAlive, Network, Timeouts};
use crate::ingest::WhenFull;
use crate::ingest::reorder::Window;
use crate::service::ServiceConfig;
use crate::store::layout::Grouping;

mod network;

/// What lines of the log look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object each, for programs.
    Json,
}

/// What the relay is told when it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// Below this lies everything that is written.
    pub output: PathBuf,
    /// What directories of sessions are put together by.
    pub grouping: Grouping,
    /// Whether producers may have deleted what they recorded.
    pub allows_clear: bool,
    /// Where producers connect for commands.
    pub control: Endpoint,
    /// Where producers connect for packets.
    pub data: Endpoint,
    /// Where viewers connect.
    pub live: Endpoint,
    /// Where those connect who keep watch. None: nowhere.
    pub http: Option<Endpoint>,
    /// What is asked of every connection.
    pub network: Network,
    /// How many trace files may be open.
    pub pool: usize,
    /// How long a missing packet is waited for.
    pub window: Window,
    /// Memory for early packets of all streams together, in bytes.
    pub reorder_memory: u64,
    /// What is to be done when there is no space on the disk.
    pub when_full: WhenFull,
    /// For times in names.
    pub time_zone: TimeZone,
    /// What the relay has around it.
    pub process: ServiceConfig,
}
