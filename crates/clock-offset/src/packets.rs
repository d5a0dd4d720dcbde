//! The offset of two clocks, from packets that their hosts have sent to each other.
//!
//! No packet arrives before it was sent. Let `o(t)` be by how much the other clock is ahead at the
//! time `t` of the first one. A packet that was sent at `a` of the first clock and received at `b`
//! of the other says that `o(a)` is at most `b - a`. One in the other direction, received at `a`
//! and sent at `b`, says that `o(a)` is at least `b - a`.
//!
//! The assumption is that the clocks drift apart at a constant rate of at most [`MAX_DRIFT`]: `o`
//! is a line. All lines that agree with all packets, in both directions, are a convex set. At each
//! time the offset is the middle between the highest and the lowest of them, and its error half of
//! the distance. This is exact: no line that agrees with all packets is further away, and lines
//! reach the bounds.
//!
//! Of all packets only the convex hulls matter, the lower one of the upper bounds and the upper one
//! of the lower bounds. They limit the rate, by the two lines that touch both; within these limits
//! the bounds are the hulls themselves, outside lines of the lowest and the highest rate. With the
//! hulls all takes `O(n log n)`.

use crate::hull::{Ceiling, Point, Rate, lower_hull, rates_between};
use crate::sample::{ClockOffset, saturate};
use crate::track::{ClockTrack, MAX_DRIFT};

/// Nanoseconds that are added to each bound: the clocks are read in whole nanoseconds.
const READING_ERROR: i128 = 2;

/// The highest time of a clock that counts from the start of a host, 36 years in nanoseconds. A
/// packet with another time is left out.
const MAX_TIME: u64 = 1 << 60;

/// A packet: when it was sent, on the clock of its sender, and when it was received, on that of its
/// receiver, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketTimes {
    /// The time of the sender's clock.
    pub sent: i64,
    /// The time of the receiver's clock.
    pub received: i64,
}

/// The offset of one clock from another over time, from packets in both directions.
#[derive(Debug, Clone)]
pub struct PacketTrack {
    /// The highest line that agrees with all packets.
    high: Ceiling,
    /// The lowest one, with offsets of the other sign.
    low: Ceiling,
    packets: usize,
    last: i64,
}

/// Why there is no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketTrackError {
    /// No packet was sent in one of the directions: the offset has a bound on one side only.
    OneDirection,
    /// No constant drift agrees with all packets: one of the clocks was stopped, or its rate has
    /// changed.
    NoConstantDrift,
}

impl PacketTrack {
    /// Relates two clocks by packets from the host of the first clock to that of the other, and by
    /// those in the other direction.
    ///
    /// # Errors
    /// If the packets tell no offset.
    pub fn new(there: &[PacketTimes], back: &[PacketTimes]) -> Result<Self, PacketTrackError> {
        let upper = there
            .iter()
            .filter_map(|packet| bound(packet.sent, packet.received));
        let upper: Vec<_> = upper.collect();
        // With offsets of the other sign, so that they are upper bounds, too.
        let lower = back
            .iter()
            .filter_map(|packet| bound(packet.received, packet.sent));
        let lower: Vec<_> = lower.map(Point::flipped).collect();
        let packets = upper.len() + lower.len();
        let last = [&upper, &lower].map(|points| points.iter().map(|point| point.time).max());
        let [Some(last_upper), Some(last_lower)] = last else {
            return Err(PacketTrackError::OneDirection);
        };
        let padded = |mut point: Point| {
            point.ahead += READING_ERROR;
            point
        };
        let [upper, lower] =
            [upper, lower].map(|points| lower_hull(points.into_iter().map(padded).collect()));
        let max = Rate {
            rise: MAX_DRIFT.into(),
            run: 1_000_000_000,
        };
        let rates = rates_between(&upper, &lower, max);
        let [lowest, highest] = rates.ok_or(PacketTrackError::NoConstantDrift)?;
        Ok(Self {
            high: Ceiling::new(&upper, [lowest, highest]),
            low: Ceiling::new(&lower, [highest.negated(), lowest.negated()]),
            packets,
            last: saturate(last_upper.max(last_lower)),
        })
    }

    /// Returns the number of packets.
    #[must_use]
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Returns the time of the first clock when the last packet was sent or received.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.last
    }
}

impl ClockTrack for PacketTrack {
    fn offset_at(&self, time: i64) -> Option<ClockOffset> {
        let time = time.into();
        Some(ClockOffset::between(
            -self.low.at(time)?,
            self.high.at(time)?,
        ))
    }

    fn bends(&self) -> impl Iterator<Item = i64> {
        let bends = self.high.bends().chain(self.low.bends());
        bends.map(|bend| saturate(bend.time))
    }
}

/// Returns what a packet says at the time `here` of the first clock, if that of the other is
/// `there`.
fn bound(here: i64, there: i64) -> Option<Point> {
    let are_possible = [here, there]
        .iter()
        .all(|time| time.unsigned_abs() < MAX_TIME);
    are_possible.then(|| Point {
        time: here.into(),
        ahead: i128::from(there) - i128::from(here),
    })
}
