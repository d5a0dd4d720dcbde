//! How much of a session has arrived on each of its connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the packets that have begun to arrive on a session's data connections, and of the indexes of packets that
/// have arrived on its control connection.
#[derive(Debug, Default)]
pub struct Arrivals {
    packets: AtomicU64,
    indexes: AtomicU64,
}

impl Arrivals {
    /// Records that a packet begins to arrive.
    pub fn record_packet(&self) {
        self.packets.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the index of a packet has arrived.
    pub fn record_index(&self) {
        self.indexes.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of indexes less the number of packets. Negative while indexes are still to arrive.
    #[must_use]
    pub fn indexes_ahead(&self) -> i64 {
        let packets = self.packets.load(Ordering::Relaxed);
        let indexes = self.indexes.load(Ordering::Relaxed);
        indexes.wrapping_sub(packets).cast_signed()
    }
}
