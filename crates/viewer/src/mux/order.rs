//! The order of events that have the same time.

use ctf::model::Uuid;

use crate::attach::{StreamInfo, StreamKey, TraceInfo};
use crate::time::Nanoseconds;

/// Orders streams as `babeltrace2` does, so that equal times give equal output: by the identity of
/// the trace, its name, the stream's class and its number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    uuid: Option<Uuid>,
    trace: String,
    class: u64,
    id: Option<u64>,
    key: StreamKey,
}

impl Rank {
    pub(super) fn new(trace: &TraceInfo, stream: &StreamInfo) -> Self {
        Self {
            uuid: trace.uuid,
            trace: trace.name.clone(),
            class: stream.class,
            id: stream.id,
            key: stream.key,
        }
    }
}

/// The place of an event or a loss in the order of all streams, with the slot of its stream. One
/// number: the time, then the rank, then the slot. What has no time is before all that has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u128);

impl Place {
    /// A place after all others, which stands for none.
    pub(super) const NONE: Self = Self(u128::MAX);

    pub(super) fn new(time: Option<Nanoseconds>, rank: u32, slot: usize) -> Self {
        // There are not as many streams.
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let low = u64::from(rank) << 32 | u64::from(slot);
        Self(u128::from(Nanoseconds::order_key(time)) << 64 | u128::from(low))
    }

    /// The first place at this time and rank.
    pub(super) fn before(time: Option<Nanoseconds>, rank: u32) -> Self {
        Self::new(time, rank, 0)
    }

    /// The place of another event of the same stream.
    #[inline]
    pub(super) fn at(self, time: Option<Nanoseconds>) -> Self {
        let low = self.0 & u128::from(u64::MAX);
        Self(u128::from(Nanoseconds::order_key(time)) << 64 | low)
    }

    /// The smaller of two places, without a branch: which of two streams comes first is often as
    /// good as random.
    #[inline]
    pub(super) fn earlier(self, other: Self) -> Self {
        let mask = u128::from(self.0 < other.0).wrapping_neg();
        Self(other.0 ^ (self.0 ^ other.0) & mask)
    }

    #[inline]
    pub(super) fn time(self) -> Option<Nanoseconds> {
        let [_, high] = self.low_and_high();
        Nanoseconds::of_order_key(high)
    }

    #[inline]
    pub(super) fn slot(self) -> usize {
        let [low, _] = self.low_and_high();
        usize::try_from(low & u64::from(u32::MAX)).unwrap_or(usize::MAX)
    }

    #[inline]
    fn low_and_high(self) -> [u64; 2] {
        let bytes = self.0.to_le_bytes();
        let number = |eight: Option<&[u8; 8]>| eight.map_or(0, |eight| u64::from_le_bytes(*eight));
        [number(bytes.first_chunk()), number(bytes.last_chunk())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_by_time_then_rank_then_slot() {
        let times = [i64::MIN, -1, 0, 1, i64::MAX].map(Nanoseconds::new);
        let mut places = Vec::new();
        for time in times {
            for rank in [0, 1, u32::MAX] {
                for slot in [0, 1, 70_000] {
                    let place = Place::new(time, rank, slot);
                    assert_eq!((place.time(), place.slot()), (time, slot));
                    assert_eq!(place, Place::new(None, rank, slot).at(time));
                    places.push(place);
                }
            }
        }
        assert!(places.is_sorted());
        for one in &places {
            for other in &places {
                assert_eq!(one.earlier(*other), *one.min(other));
            }
        }
        let time = Nanoseconds::new(1);
        assert!(Place::before(time, 1) <= Place::new(time, 1, 0));
        assert!(Place::new(time, 0, 70_000) < Place::before(time, 1));
    }
}
