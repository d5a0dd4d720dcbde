//! The samples of one pair of clocks, in pieces within which the offset does not jump.

use crate::sample::{ClockOffset, ClockSample, saturate};

/// The width of the band in which the rate of the drift stays, in parts per billion: oscillators
/// change by a few parts per million with the temperature, and NTP corrects them by some more.
pub const RATE_BAND: u64 = 100_000;

/// The highest rate of the drift, in parts per billion: that to which NTP limits its corrections.
/// Oscillators drift by 100,000 at most.
pub const MAX_DRIFT: u64 = 500_000;

/// Change of the time of day beside the monotonic clock from which on a new piece begins, in
/// nanoseconds. A host is not suspended for less, and readings of two clocks differ by some
/// microseconds.
const MIN_STEP: u64 = 1_000_000;

const BILLION: i128 = 1_000_000_000;

/// The offset of one clock from another over time.
pub trait ClockTrack {
    /// Returns the offset at a time of the first clock. None if nothing is known of it.
    fn offset_at(&self, time: i64) -> Option<ClockOffset>;
    /// Returns the times of the first clock at which the offset bends.
    fn bends(&self) -> impl Iterator<Item = i64>;
}

/// The offset of one clock from another, from samples.
#[derive(Debug, Clone, Default)]
pub struct OffsetTrack {
    pieces: Vec<Piece>,
}

/// Samples between which the offset does not jump, in the order of their times; at least one.
#[derive(Debug, Clone)]
struct Piece {
    samples: Vec<ClockSample>,
}

impl OffsetTrack {
    /// Adds samples, in any order of times.
    pub fn add(&mut self, samples: impl IntoIterator<Item = ClockSample>) {
        // All at once: to put each into its place would take a time that grows with their square.
        let mut all: Vec<_> = self.samples().copied().chain(samples).collect();
        all.sort_by_key(|sample| sample.time);
        self.pieces.clear();
        for sample in all {
            self.append(sample);
        }
    }

    /// Returns the samples that the offset follows from.
    pub fn samples(&self) -> impl DoubleEndedIterator<Item = &ClockSample> {
        self.pieces.iter().flat_map(|piece| &piece.samples)
    }

    /// Returns the number of pieces. The offset may have jumped from each to the next.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Adds a sample that is not earlier than any other.
    fn append(&mut self, sample: ClockSample) {
        let last = self.pieces.last_mut();
        match last.filter(|piece| piece.last().is_some_and(|last| is_continued(last, &sample))) {
            Some(piece) => piece.append(sample),
            None => self.pieces.push(Piece {
                samples: vec![sample],
            }),
        }
    }
}

impl ClockTrack for OffsetTrack {
    /// Returns the times of the samples, and beside a jump the moments after the
    /// sample before it and before the sample after it.
    fn bends(&self) -> impl Iterator<Item = i64> {
        self.pieces.iter().flat_map(|piece| {
            let before = piece.first().map(|first| first.time.saturating_sub(1));
            let after = piece.last().map(|last| last.time.saturating_add(1));
            let times = piece.samples.iter().map(|sample| sample.time);
            before.into_iter().chain(times).chain(after)
        })
    }

    fn offset_at(&self, time: i64) -> Option<ClockOffset> {
        let begun = |piece: &Piece| piece.first().is_some_and(|first| first.time <= time);
        let next = self.pieces.partition_point(begun);
        let before = next.checked_sub(1).and_then(|place| self.pieces.get(place));
        match (before, self.pieces.get(next)) {
            (None, None) => None,
            (None, Some(next)) => next.before_first(time),
            (Some(piece), None) => piece.offset_at(time),
            (Some(piece), Some(_)) if piece.last()?.time >= time => piece.offset_at(time),
            (Some(piece), Some(next)) => {
                Some(piece.offset_at(time)?.hull(next.before_first(time)?))
            }
        }
    }
}

/// Whether the offset cannot have jumped between two samples.
fn is_continued(last: &ClockSample, next: &ClockSample) -> bool {
    let steps = [
        last.realtime.abs_diff(next.realtime),
        last.other_realtime.abs_diff(next.other_realtime),
    ];
    let drift = drift(next.time.abs_diff(last.time), MAX_DRIFT);
    let possible = padded_error(last) + padded_error(next) + drift;
    steps.iter().all(|step| *step < MIN_STEP)
        && i128::from(last.ahead.abs_diff(next.ahead)) <= possible
}

impl Piece {
    fn first(&self) -> Option<&ClockSample> {
        self.samples.first()
    }

    fn last(&self) -> Option<&ClockSample> {
        self.samples.last()
    }

    fn append(&mut self, sample: ClockSample) {
        // A sample that was measured over a bad link says less than the samples around it.
        while let [.., before, middle] = self.samples.as_slice() {
            let without = interpolate(before, &sample, middle.time, RATE_BAND.into());
            if without.error >= middle.error && middle.time > before.time {
                break;
            }
            self.samples.pop();
        }
        match self.samples.last_mut() {
            Some(last) if last.time == sample.time => {
                if sample.error < last.error {
                    *last = sample;
                }
            }
            _ => self.samples.push(sample),
        }
    }

    /// Returns the offset at a time that is not before the first sample.
    fn offset_at(&self, time: i64) -> Option<ClockOffset> {
        let next = self.samples.partition_point(|sample| sample.time <= time);
        let Some(after) = self.samples.get(next) else {
            let (last, earlier) = self.samples.split_last()?;
            return Some(extrapolate(last, earlier.last(), time));
        };
        let before = self.samples.get(next.checked_sub(1)?)?;
        // Of the interval and of those on either side.
        let around = self.samples.get(next.saturating_sub(2)..)?;
        let slopes = around.windows(2).take(if next < 2 { 2 } else { 3 });
        let slopes = slopes.filter_map(|pair| slope(pair.first()?, pair.last()?));
        let (low, high) = slopes.fold((i128::MAX, i128::MIN), |(low, high), slope| {
            (low.min(slope), high.max(slope))
        });
        let band = i128::from(RATE_BAND) + (high - low).max(0);
        Some(interpolate(before, after, time, band))
    }

    /// Returns the offset at a time before the first sample.
    fn before_first(&self, time: i64) -> Option<ClockOffset> {
        let (first, later) = self.samples.split_first()?;
        Some(extrapolate(first, later.first(), time))
    }
}

/// Returns the offset between two samples, if the rate of the drift stays in a band of this width.
fn interpolate(before: &ClockSample, after: &ClockSample, time: i64, band: i128) -> ClockOffset {
    let (a, b) = (since(before.time, time), since(time, after.time));
    let length = (a + b).max(1);
    let rise = i128::from(after.ahead) - i128::from(before.ahead);
    let error = (padded_error(before) * b + padded_error(after) * a) / length;
    let curvature = band * (a * b / length) / BILLION;
    offset(
        i128::from(before.ahead) + rise * a / length,
        error + curvature,
    )
}

/// Returns the offset at a time outside of a piece: `end` is its last sample on that side,
/// `neighbour` the sample before that.
fn extrapolate(end: &ClockSample, neighbour: Option<&ClockSample>, time: i64) -> ClockOffset {
    let age = i128::from(time.abs_diff(end.time));
    let constant = offset(
        i128::from(end.ahead),
        padded_error(end) + drift(time.abs_diff(end.time), MAX_DRIFT),
    );
    let extended = neighbour.map(|neighbour| {
        let length = i128::from(end.time.abs_diff(neighbour.time)).max(1);
        let rise = i128::from(end.ahead) - i128::from(neighbour.ahead);
        // To the side of the end, which may be the later or the earlier one.
        let errors = padded_error(end) + padded_error(neighbour);
        offset(
            i128::from(end.ahead) + rise * age / length,
            padded_error(end) + errors * age / length + age * i128::from(RATE_BAND) / BILLION,
        )
    });
    match extended {
        Some(extended) if extended.error < constant.error => extended,
        _ => constant,
    }
}

/// Returns the rate of the drift between two samples, in parts per billion. None if they are of the
/// same time.
fn slope(before: &ClockSample, after: &ClockSample) -> Option<i128> {
    let rise = i128::from(after.ahead) - i128::from(before.ahead);
    (rise * BILLION).checked_div(since(before.time, after.time))
}

/// Returns the error of a sample, with the drift during its round trip.
fn padded_error(sample: &ClockSample) -> i128 {
    i128::from(sample.error) + drift(sample.error, MAX_DRIFT)
}

/// Returns by how much clocks drift apart in a time, at most; rounded up.
fn drift(time: u64, rate: u64) -> i128 {
    i128::from(time) * i128::from(rate) / BILLION + 1
}

fn since(from: i64, to: i64) -> i128 {
    i128::from(to) - i128::from(from)
}

/// Makes an offset of numbers that were rounded down.
fn offset(ahead: i128, error: i128) -> ClockOffset {
    ClockOffset {
        ahead: saturate(ahead),
        error: u64::try_from(error + 2).unwrap_or(u64::MAX),
    }
}
