//! Points and lines in the plane of times and offsets, in whole numbers: nothing is rounded but
//! results, and those outwards.
//!
//! Times are below 2^60 and offsets below 2^62, so that products of two differences fit into 128
//! bits.

use std::cmp::Ordering;

/// The most bends of a [`Ceiling`]. A convex hull of many random points has some dozens; only a
/// trace that was made up for it has more.
const MAX_BENDS: usize = 32;

/// An offset at a time of the first clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) time: i128,
    pub(crate) ahead: i128,
}

/// How fast an offset grows: `rise` in `run` nanoseconds, which are more than 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) rise: i128,
    pub(crate) run: i128,
}

/// The highest of all lines that are below some points and whose rates are in a range. It is convex
/// over time.
#[derive(Debug, Clone)]
pub(crate) struct Ceiling {
    /// In order of time; at least one.
    bends: Vec<Point>,
    /// The rates before the first bend and after the last one.
    outside: [Rate; 2],
}

impl Point {
    /// Returns the point on the other side of the time axis.
    pub(crate) fn flipped(self) -> Self {
        let ahead = -self.ahead;
        Self { ahead, ..self }
    }

    /// Returns the same point if time ran backwards.
    fn reversed(self) -> Self {
        let time = -self.time;
        Self { time, ..self }
    }

    /// Returns the rate from a point to a later one.
    fn rate_to(self, later: Self) -> Rate {
        Rate {
            rise: later.ahead - self.ahead,
            run: later.time - self.time,
        }
    }
}

impl Rate {
    pub(crate) fn negated(self) -> Self {
        let rise = -self.rise;
        Self { rise, ..self }
    }

    pub(crate) fn compare(self, other: Self) -> Ordering {
        (self.rise * other.run).cmp(&(other.rise * self.run))
    }

    fn exceeds(self, other: Self) -> bool {
        self.compare(other).is_gt()
    }

    fn min(self, other: Self) -> Self {
        if self.exceeds(other) { other } else { self }
    }

    /// Returns the rise in a time, rounded up.
    fn rise_in(self, time: i128) -> i128 {
        -(-self.rise * time).div_euclid(self.run)
    }
}

/// Returns the points that any line must pass below to be below all points: the lower convex hull,
/// in order of time (Andrew's monotone chain).
pub(crate) fn lower_hull(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_unstable();
    // The first of each time is the lowest.
    points.dedup_by_key(|point| point.time);
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        while let [.., before, last] = hull.as_slice()
            && !last.rate_to(point).exceeds(before.rate_to(*last))
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// Returns the lowest and the highest rate of the lines that are below all points of `upper` and
/// above all points of `lower`, in the range from `-max` to `max`. None if there is no such line.
/// Both are hulls, that of `lower` after [`Point::flipped`].
pub(crate) fn rates_between(upper: &[Point], lower: &[Point], max: Rate) -> Option<[Rate; 2]> {
    let is_crossed = |upper: &Point| {
        let beside = lower.binary_search_by_key(&upper.time, |lower| lower.time);
        let beside = beside.ok().and_then(|place| lower.get(place));
        beside.is_some_and(|lower| lower.flipped().ahead > upper.ahead)
    };
    if upper.iter().any(is_crossed) {
        return None;
    }
    let highest = highest_rate(upper, lower, max);
    let reversed = |points: &[Point]| -> Vec<Point> {
        points.iter().rev().map(|point| point.reversed()).collect()
    };
    let lowest = highest_rate(&reversed(upper), &reversed(lower), max).negated();
    (!lowest.exceeds(highest)).then_some([lowest, highest])
}

/// Returns the highest rate, at most `max`, with which a line passes below each point of `upper`
/// and above each earlier point of `lower`.
fn highest_rate(upper: &[Point], lower: &[Point], max: Rate) -> Rate {
    let edges: Vec<_> = lower.windows(2).collect();
    let steepest = upper.iter().filter_map(|upper| {
        // The tangent from the point to the part of the hull before it, by a binary search: along
        // the hull, points are above the line from the upper point until it touches.
        let end = lower.partition_point(|lower| lower.time < upper.time);
        let edges = edges.get(..end.saturating_sub(1)).unwrap_or_default();
        let touched = edges.partition_point(|edge| match edge {
            [from, to] => {
                let [from, to] = [from.flipped(), to.flipped()];
                from.rate_to(to).exceeds(from.rate_to(*upper))
            }
            _ => false,
        });
        let touched = lower.get(..end)?.get(touched)?;
        Some(touched.flipped().rate_to(*upper))
    });
    steepest.fold(max, Rate::min)
}

impl Ceiling {
    /// The hull has at least one point.
    pub(crate) fn new(hull: &[Point], [lowest, highest]: [Rate; 2]) -> Self {
        let rates: Vec<_> = hull
            .windows(2)
            .filter_map(|pair| Some(pair.first()?.rate_to(*pair.last()?)))
            .collect();
        // The edges whose rates are in the range; with one rate only, the point that it touches.
        let first = rates.partition_point(|rate| !rate.exceeds(lowest));
        let last = rates.partition_point(|rate| highest.exceeds(*rate));
        let bends = hull.get(first..=last.max(first)).unwrap_or_default();
        // Without some of them, the ceiling is higher: it is still one.
        let step = bends.len().div_ceil(MAX_BENDS).max(1);
        let kept = bends.iter().step_by(step).chain(bends.last());
        let mut bends: Vec<_> = kept.copied().collect();
        bends.dedup();
        Self {
            bends,
            outside: [lowest, highest],
        }
    }

    pub(crate) fn bends(&self) -> impl Iterator<Item = &Point> {
        self.bends.iter()
    }

    /// Returns the offset at a time, rounded up.
    pub(crate) fn at(&self, time: i128) -> Option<i128> {
        let next = self.bends.partition_point(|bend| bend.time <= time);
        let before = next.checked_sub(1).and_then(|place| self.bends.get(place));
        let [lowest, highest] = self.outside;
        let (bend, rate) = match (before, self.bends.get(next)) {
            (Some(before), Some(next)) => (before, before.rate_to(*next)),
            (Some(last), None) => (last, highest),
            (None, Some(first)) => (first, lowest),
            (None, None) => return None,
        };
        Some(bend.ahead + rate.rise_in(time - bend.time))
    }
}
