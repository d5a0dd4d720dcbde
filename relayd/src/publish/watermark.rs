//! The watermark of a session: the time up to which its viewers may be told that nothing earlier will come.
//! A beacon says that of its own stream, but a stream that viewers have not been told of yet, because its
//! metadata has not come, may have begun before. Viewers merge events by time and fail on one that is earlier
//! than what they were told, so that beacons and packets beyond the beginning of such a stream are withheld.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::Timestamp;

/// The watermark of one session. All times are cycles of the trace's clock.
#[derive(Debug)]
pub struct Watermark {
    /// The latest time in any index or beacon of the producer.
    latest: AtomicU64,
    /// The time beyond which nothing is told to viewers. 2^64-1: no limit.
    limit: AtomicU64,
}

impl Default for Watermark {
    fn default() -> Self {
        Self {
            latest: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        }
    }
}

impl Watermark {
    /// Takes note of a time in an index or beacon of the producer.
    pub fn observe(&self, time: Timestamp) {
        self.latest.fetch_max(time.0, Ordering::Relaxed);
    }

    /// The latest time in any index or beacon: a stream that is added now has begun since.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::Relaxed))
    }

    /// Holds viewers back before this time, at which a stream was added.
    pub fn hold_back(&self, since: Timestamp) {
        self.limit.fetch_min(since.0, Ordering::AcqRel);
    }

    /// The oldest stream that viewers are to be told of was added at this time, if there is one. Gives
    /// whether viewers may be told more than before.
    #[must_use]
    pub fn update_limit(&self, oldest: Option<Timestamp>) -> bool {
        let limit = oldest.map_or(u64::MAX, |time| time.0);
        self.limit.swap(limit, Ordering::AcqRel) < limit
    }

    /// The time of a beacon as far as viewers may be told of it. Read the beacon first: a stream that is added holds
    /// viewers back before the beacons that come after it.
    ///
    /// Beacons beyond the limit are cut at different times, by the `rank` of the stream among those of
    /// its session, and not at the limit itself, which is another stream's own time: Babeltrace 2
    /// complains of two streams that are inactive until the very same time.
    #[must_use]
    pub fn clamp_beacon(&self, beacon: Option<Timestamp>, rank: u64) -> Option<Timestamp> {
        let limit = self.limit.load(Ordering::Acquire);
        let cut = |until: Timestamp| match until.0 {
            time if time <= limit => until,
            _ => Timestamp(limit.saturating_sub(rank.saturating_add(1))),
        };
        // A beacon of time 0 says nothing.
        beacon.map(cut).filter(|until| until.0 > 0)
    }

    /// Whether viewers may be given a packet that ends at this time. To be asked after the packet has
    /// been found, for the same reason. Times are compared as they are, also those of traces with
    /// different clocks: then a packet may be given too early, or too late by the time for which the
    /// metadata of a stream is waited for.
    #[must_use]
    pub fn allows_packet(&self, end: Timestamp) -> bool {
        end.0 <= self.limit.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_ends_where_the_oldest_unannounced_stream_began() {
        let watermark = Watermark::default();
        let beacon = Some(Timestamp(90));
        assert_eq!(
            (
                watermark.clamp_beacon(None, 0),
                watermark.clamp_beacon(beacon, 0)
            ),
            (None, beacon)
        );
        watermark.observe(Timestamp(50));
        watermark.observe(Timestamp(40));
        watermark.hold_back(watermark.latest());
        watermark.hold_back(Timestamp(60));
        assert_eq!(watermark.clamp_beacon(beacon, 0), Some(Timestamp(49)));
        for own in [Timestamp(45), Timestamp(50)] {
            assert_eq!(watermark.clamp_beacon(Some(own), 0), Some(own));
            assert!(watermark.allows_packet(own));
        }
        assert!(!watermark.allows_packet(Timestamp(51)));
        assert!(!watermark.update_limit(Some(Timestamp(0))));
        assert_eq!(watermark.clamp_beacon(beacon, 0), None);
        assert!(watermark.update_limit(None));
        assert_eq!(watermark.clamp_beacon(beacon, 0), beacon);
        assert!(watermark.allows_packet(Timestamp(u64::MAX)));
    }

    #[test]
    fn beacons_of_different_streams_are_cut_at_different_times() {
        let watermark = Watermark::default();
        watermark.hold_back(Timestamp(50));
        let cut = |rank| watermark.clamp_beacon(Some(Timestamp(90)), rank);
        assert_eq!(
            [0, 1, 2].map(cut),
            [49, 48, 47].map(|time| Some(Timestamp(time)))
        );
        assert_eq!([49, 50, u64::MAX].map(cut), [None; 3]);
    }
}
