//! Activity of all sessions of this process: whether any of them has cut packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of packets of all sessions. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<AtomicU64>);

/// The count that one packetizer has seen last.
#[derive(Debug, Default)]
pub(super) struct SeenActivity(u64);

impl Activity {
    /// Records that a packet was cut.
    pub(super) fn record_packet(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether packets were cut since `seen`, which is updated.
    pub(super) fn has_changed_since(&self, seen: &mut SeenActivity) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        std::mem::replace(&mut seen.0, now) != now
    }
}
