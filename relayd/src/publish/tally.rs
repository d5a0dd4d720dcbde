//! The counters of a stream. Only the writer of the stream counts, so that no counter is contended;
//! the counters of all streams are added up when the status endpoint is scraped.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The counters of one stream.
#[derive(Debug, Default)]
pub struct Tally {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    early: AtomicU64,
    waiting_packets: AtomicU64,
    waiting_bytes: AtomicU64,
    is_paused: AtomicBool,
}

/// The counters of several streams, added up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Packets whose bytes are in tracefiles.
    pub packets: u64,
    /// Bytes of the packets in tracefiles, padding included.
    pub bytes: u64,
    /// Packets that were given up.
    pub lost: u64,
    /// Packets that arrived before one with a lower number.
    pub early: u64,
    /// Early packets that wait for one before them.
    pub waiting_packets: u64,
    /// Bytes of the early packets.
    pub waiting_bytes: u64,
    /// Streams that are paused until there is space on the disk.
    pub paused: u64,
}

impl Tally {
    /// Counts a written packet and its bytes.
    pub fn count_packet(&self, bytes: u64) {
        add(&self.packets, 1);
        add(&self.bytes, bytes);
    }

    /// Counts packets that have been given up.
    pub fn count_lost(&self, packets: u64) {
        add(&self.lost, packets);
    }

    /// Counts a packet that has arrived before one with a lower number.
    pub fn count_early(&self) {
        add(&self.early, 1);
    }

    /// Sets the number of early packets that wait, and of their bytes.
    pub fn set_waiting(&self, packets: u64, bytes: u64) {
        self.waiting_packets.store(packets, Ordering::Relaxed);
        self.waiting_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets whether the stream is paused until there is space on the disk.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Whether the stream is paused until there is space on the disk.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    /// The counters as they are now.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Totals {
            packets: read(&self.packets),
            bytes: read(&self.bytes),
            lost: read(&self.lost),
            early: read(&self.early),
            waiting_packets: read(&self.waiting_packets),
            waiting_bytes: read(&self.waiting_bytes),
            paused: u64::from(self.is_paused()),
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        // Saturates: a jump in the sequence numbers of a producer can lose nearly 2^64 packets in
        // each stream.
        self.lost = self.lost.saturating_add(other.lost);
        self.early += other.early;
        self.waiting_packets += other.waiting_packets;
        self.waiting_bytes += other.waiting_bytes;
        self.paused += other.paused;
    }
}

impl Totals {
    /// The counters that remain when the streams have ended.
    #[must_use]
    pub fn past(self) -> Self {
        Self {
            packets: self.packets,
            bytes: self.bytes,
            lost: self.lost,
            early: self.early,
            ..Self::default()
        }
    }
}

/// Adds without an atomic step, because only one thread at a time writes to a stream.
fn add(number: &AtomicU64, more: u64) {
    let sum = number.load(Ordering::Relaxed).saturating_add(more);
    number.store(sum, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_an_ended_stream_stay_but_not_its_waiting_packets() {
        let tally = Tally::default();
        tally.count_packet(100);
        tally.count_packet(20);
        tally.count_lost(u64::MAX);
        tally.count_early();
        tally.set_waiting(2, 7);
        tally.set_paused(true);
        let mut sum = tally.totals().past();
        sum += tally.totals();
        let want = Totals {
            packets: 4,
            bytes: 240,
            lost: u64::MAX,
            early: 2,
            waiting_packets: 2,
            waiting_bytes: 7,
            paused: 1,
        };
        assert_eq!(sum, want);
    }
}
