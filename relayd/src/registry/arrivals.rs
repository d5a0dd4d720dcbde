//! Counters of how much of a session has arrived on each of its connections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters of the packets that have begun to arrive on a session's data connections, and of the
/// indexes of packets that have arrived on its control connection.
#[derive(Debug, Default)]
pub struct Arrivals {
    packets: AtomicU64,
    indexes: AtomicU64,
    /// The producer sends indexes before the replies to earlier ones.
    is_pipelined: AtomicBool,
}

impl Arrivals {
    /// Records that so many packets begin to arrive.
    pub fn record_packets(&self, count: u64) {
        self.packets.fetch_add(count, Ordering::Relaxed);
    }

    /// Records that the index of a packet has arrived.
    pub fn record_index(&self) {
        self.indexes.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of indexes that have arrived.
    #[must_use]
    pub fn indexes(&self) -> u64 {
        self.indexes.load(Ordering::Relaxed)
    }

    /// Records how many indexes one read of the control connection has brought.
    pub fn record_batch(&self, indexes: u64) {
        if indexes > 0 {
            self.is_pipelined.store(indexes > 1, Ordering::Relaxed);
        }
    }

    /// Whether the last read that brought an index brought several: the producer does not wait for
    /// each reply.
    #[must_use]
    pub fn is_pipelined(&self) -> bool {
        self.is_pipelined.load(Ordering::Relaxed)
    }

    /// Number of indexes less the number of packets. Negative while indexes are still to arrive.
    #[must_use]
    pub fn indexes_ahead(&self) -> i64 {
        let packets = self.packets.load(Ordering::Relaxed);
        let indexes = self.indexes.load(Ordering::Relaxed);
        indexes.wrapping_sub(packets).cast_signed()
    }
}
