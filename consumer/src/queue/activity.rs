//! Activity of all sessions of this process: whether any of them has cut packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The number of packets of all sessions. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<Packets>);

#[derive(Debug, Default)]
struct Packets {
    count: AtomicU64,
    cut: Notify,
}

/// The count that one packetizer has seen last.
#[derive(Debug, Default)]
pub(crate) struct SeenActivity(u64);

impl Activity {
    /// Records that a packet was cut.
    pub(crate) fn record_packet(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        self.0.cut.notify_waiters();
    }

    /// Whether packets were cut since `seen`, which is updated.
    pub(crate) fn has_changed_since(&self, seen: &mut SeenActivity) -> bool {
        let now = self.0.count.load(Ordering::Relaxed);
        std::mem::replace(&mut seen.0, now) != now
    }

    /// Waits until packets are cut after `seen`.
    pub(crate) async fn wait_for_change(&self, seen: &SeenActivity) {
        // Before the counter is read: a packet that is cut in between wakes this task.
        let cut = self.0.cut.notified();
        if self.0.count.load(Ordering::Relaxed) == seen.0 {
            cut.await;
        }
    }
}
