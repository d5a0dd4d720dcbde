//! Whether anything has happened anywhere in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts packets of all sessions. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Activity(Arc<AtomicU64>);

/// What somebody has seen of it.
#[derive(Debug, Default)]
pub(super) struct Seen(u64);

impl Activity {
    /// A packet was cut.
    pub(super) fn happened(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether anything has happened that had not been seen.
    pub(super) fn since(&self, seen: &mut Seen) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        std::mem::replace(&mut seen.0, now) != now
    }
}
