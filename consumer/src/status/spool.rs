//! The counters of the spool.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::counter::Counter;

/// The counters of a spool, over all its sessions since the start of the process.
#[derive(Debug, Default)]
pub struct SpoolCounters {
    /// Sessions that have files in the spool.
    pub sessions: Counter,
    /// Bytes of these files.
    pub bytes: Counter,
    /// Size of the spool in bytes.
    pub capacity: Counter,
    /// Sessions that an earlier process has left.
    pub recovered: Counter,
    /// Packets that were written.
    pub accepted: Counter,
    /// Packets that were dropped because the spool was full (`--on-full drop-oldest`).
    pub dropped: Counter,
    /// Damaged files that were set aside.
    pub quarantined: Counter,
    fault: Mutex<Option<String>>,
}

impl SpoolCounters {
    /// Returns what keeps the spool from accepting packets, if anything.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Sets what keeps the spool from accepting packets.
    pub fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock() = fault;
    }
}

/// The status of a spool: a copy of [`SpoolCounters`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in SpoolCounters, which it is a copy of")]
pub struct SpoolReport {
    pub sessions: u64,
    pub bytes: u64,
    pub capacity: u64,
    pub recovered: u64,
    pub accepted: u64,
    pub dropped: u64,
    pub quarantined: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl SpoolReport {
    pub(super) fn of(counters: &Arc<SpoolCounters>) -> Self {
        Self {
            sessions: counters.sessions.get(),
            bytes: counters.bytes.get(),
            capacity: counters.capacity.get(),
            recovered: counters.recovered.get(),
            accepted: counters.accepted.get(),
            dropped: counters.dropped.get(),
            quarantined: counters.quarantined.get(),
            fault: counters.fault(),
        }
    }
}

impl fmt::Display for SpoolReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "spool: {} of {} bytes, {} sessions; {} packets accepted, {} dropped, {} files damaged",
            self.bytes, self.capacity, self.sessions, self.accepted, self.dropped, self.quarantined
        )?;
        match &self.fault {
            Some(fault) => write!(f, "; {fault}"),
            None => Ok(()),
        }
    }
}
