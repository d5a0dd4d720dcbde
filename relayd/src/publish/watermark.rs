//! The watermark of a session: the time before which no event will reach its viewers any more. A
//! beacon says that of its own stream only. Another stream that has not been announced yet, because
//! its metadata has not arrived, may have begun earlier. Viewers merge events by time and fail on
//! an event before the watermark, so that beacons and packets beyond the beginning of such a stream
//! are withheld.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::Timestamp;

/// The watermark of one session. All times are cycles of the trace's clock.
#[derive(Debug)]
pub struct Watermark {
    /// The latest time in any index or beacon of the producer.
    latest: AtomicU64,
    /// The time beyond which beacons and packets are withheld. 2^64-1: no limit.
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
    /// Records a time in an index or beacon of the producer.
    pub fn observe(&self, time: Timestamp) {
        self.latest.fetch_max(time.0, Ordering::Relaxed);
    }

    /// The latest time in any index or beacon: a stream that is added now has begun since.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::Relaxed))
    }

    /// Lowers the limit to this time, at which a stream was added.
    pub fn hold_back(&self, since: Timestamp) {
        self.limit.fetch_min(since.0, Ordering::AcqRel);
    }

    /// Sets the limit to the time at which the oldest unannounced stream was added. None: all are
    /// announced. Returns whether the limit has risen.
    #[must_use]
    pub fn update_limit(&self, oldest: Option<Timestamp>) -> bool {
        let limit = oldest.map_or(u64::MAX, |time| time.0);
        self.limit.swap(limit, Ordering::AcqRel) < limit
    }

    /// The time of a beacon, clamped to the limit. Read the beacon first: a stream that is added
    /// lowers the limit before later beacons arrive.
    ///
    /// Beacons beyond the limit are clamped to different times, by the `rank` of the stream among
    /// those of its session, and not to the limit itself, which is the time of another stream:
    /// Babeltrace 2 complains if two streams are inactive until exactly the same time.
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

    /// Whether viewers may have a packet that ends at this time. Must be called after the packet
    /// was found, for the same reason. Times of traces with different clocks are compared as they
    /// are: a packet may then be sent too early, or too late by the timeout of the metadata.
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
