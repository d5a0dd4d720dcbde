//! Properties of sessions that the agent gives to all frontends.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// Returns the live timer.
    #[must_use]
    pub fn live_timer(&self) -> Duration {
        Duration::from_micros(self.live_timer_us.into())
    }

    /// Returns the maximum size of a packet, in bytes.
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        usize::try_from(self.packet_bytes).unwrap_or(usize::MAX)
    }

    /// Returns the maximum size in bytes and the number of a stream's tracefiles; 0: no limit.
    #[must_use]
    pub fn tracefiles(&self) -> (u64, u64) {
        (self.tracefile_bytes, self.tracefile_count)
    }
}

/// Returns the name of this host (`uname -n`).
#[must_use]
pub fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}
