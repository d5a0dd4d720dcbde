//! How far a viewer may be promised that nothing will come. A beacon says that of its own stream, but a
//! stream that the viewer has not been told of may have begun before it: viewers put events in
//! order, and do not fare well with one from before what they were promised.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::Timestamp;

/// What the viewers of one session may be promised.
#[derive(Debug)]
pub struct Promises {
    /// The latest time that the producer has spoken of.
    latest: AtomicU64,
    /// As far as this and no further.
    limit: AtomicU64,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            latest: AtomicU64::new(0),
            limit: AtomicU64::new(u64::MAX),
        }
    }
}

impl Promises {
    /// The producer has spoken of this time, in an index or beacon.
    pub fn spoken_of(&self, time: Timestamp) {
        self.latest.fetch_max(time.0, Ordering::Relaxed);
    }

    /// The latest time that it has spoken of: a stream that is added now has begun since.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        Timestamp(self.latest.load(Ordering::Relaxed))
    }

    /// A stream was added at this time.
    pub fn hold_back(&self, since: Timestamp) {
        self.limit.fetch_min(since.0, Ordering::AcqRel);
    }

    /// The oldest stream that viewers are to be told of was added at this time, if there is one.
    pub fn limit(&self, oldest: Option<Timestamp>) {
        let limit = oldest.map_or(u64::MAX, |time| time.0);
        self.limit.store(limit, Ordering::Release);
    }

    /// What may be promised of what a beacon says. To be asked after the beacon: who adds a stream
    /// says so before the beacons that come after it.
    #[must_use]
    pub fn within(&self, beacon: Option<Timestamp>) -> Option<Timestamp> {
        let limit = Timestamp(self.limit.load(Ordering::Acquire));
        beacon
            .map(|until| until.min(limit))
            .filter(|until| until.0 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_end_where_the_oldest_stream_began_that_nobody_was_told_of() {
        let promises = Promises::default();
        let beacon = Some(Timestamp(90));
        assert_eq!(
            (promises.within(None), promises.within(beacon)),
            (None, beacon)
        );
        promises.spoken_of(Timestamp(50));
        promises.spoken_of(Timestamp(40));
        promises.hold_back(promises.latest());
        promises.hold_back(Timestamp(60));
        assert_eq!(promises.within(beacon), Some(Timestamp(50)));
        assert_eq!(promises.within(Some(Timestamp(45))), Some(Timestamp(45)));
        promises.limit(Some(Timestamp(0)));
        assert_eq!(promises.within(beacon), None);
        promises.limit(None);
        assert_eq!(promises.within(beacon), beacon);
    }
}
