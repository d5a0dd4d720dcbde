//! The time of events from the processor's counter, as `TRACE_RING_CLOCK=counter` asks for: most
//! of the cost of an event is the call that returns CLOCK_MONOTONIC. To wait until all instructions
//! before the counter are complete, as that call does, would cost nearly as much as the call.
//!
//! The kernel computes CLOCK_MONOTONIC from this counter, at a rate that NTP changes. Here a *line*
//! stands for it: a reading of both, and the rate since the reading before. A line serves all
//! threads of the process, so that their times are in the order of the counter, and ends after
//! [`INTERVAL`], so that a change of the rate matters for no longer. The next line begins no
//! earlier than the last one has come: times do not step back.
//!
//! What does not fit is not used, and the time is that of the clock call: a reading that took long,
//! or a rate that the one before does not confirm (suspended, moved to another host, or a counter
//! that the kernel has given up, too).

mod latch;
#[cfg(test)]
mod model_tests;
pub(crate) mod source;
#[cfg(test)]
mod tests;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use self::latch::Latch;
use self::source::{CURRENT_CLOCK_SOURCE, System, TimeSource};

/// Nanoseconds for which a line is used. NTP changes the rate by 1000 ppm at most, from one limit
/// to the other, which makes 100 ns of an interval. A thread that writes thousands of events in an
/// interval does not notice a reading.
const INTERVAL: u64 = 100_000;
/// Nanoseconds that a reading may take: its counter is that of the middle, to one half of this.
/// Three times what two clock calls take.
const MAX_READING_TIME: u64 = 250;
/// A rate confirms another one that differs by one part of this number at most: NTP makes 1000 ppm
/// of it, and two readings that are wrong 2500 ppm. What a suspend can hide in the tolerance makes
/// 400 ns of an interval.
const RATE_TOLERANCE: u64 = 256;

/// CLOCK_MONOTONIC as a function of the counter. Without `ticks` it says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Line {
    /// The counter where the line begins.
    counter: u64,
    /// Nanoseconds of the clock there.
    time: u64,
    /// Nanoseconds of a tick, times 2^32.
    rate: u64,
    /// Ticks for which the line is used.
    ticks: u64,
}

impl Line {
    #[inline]
    fn time_at(&self, counter: u64) -> Option<u64> {
        // A counter before the beginning is one far beyond the end.
        let ticks = counter.wrapping_sub(self.counter);
        (ticks < self.ticks).then(|| self.time_after(ticks))
    }

    /// No product overflows: an interval times 2^32 has 49 bits.
    #[inline]
    fn time_after(&self, ticks: u64) -> u64 {
        self.time.wrapping_add(ticks.wrapping_mul(self.rate) >> 32)
    }

    /// Returns the latest time that the line has given, or may have.
    fn latest_time_at(&self, counter: u64) -> u64 {
        self.time_after(counter.wrapping_sub(self.counter).min(self.ticks))
    }
}

/// The readings so far.
#[derive(Debug, Default)]
struct Calibration {
    /// Counter and time of the last reading.
    counter: u64,
    time: u64,
    /// The rate between the last two readings, as in [`Line`].
    rate: u64,
    line: Line,
    /// Time of the clock before which there is no other reading.
    next_reading: u64,
}

impl Calibration {
    /// Adds a reading: the counter between two calls of the clock. The line is empty afterwards if
    /// the reading cannot be trusted.
    fn add(&mut self, before: u64, counter: u64, after: u64) {
        let last_line = std::mem::take(&mut self.line);
        self.next_reading = after.saturating_add(INTERVAL);
        let reading_time = after.saturating_sub(before);
        if reading_time > MAX_READING_TIME {
            return;
        }
        let time = before + reading_time / 2;
        let ticks = counter.wrapping_sub(self.counter);
        let elapsed = time.saturating_sub(self.time);
        let rate = (u128::from(elapsed) << 32).checked_div(ticks.into());
        let rate = rate.and_then(|rate| u64::try_from(rate).ok()).unwrap_or(0);
        let is_confirmed = self.rate.abs_diff(rate) <= self.rate / RATE_TOLERANCE;
        (self.counter, self.time, self.rate) = (counter, time, rate);
        let Some(ticks) = (INTERVAL << 32).checked_div(rate).filter(|_| is_confirmed) else {
            return;
        };
        self.line = Line {
            counter,
            time: last_line.latest_time_at(counter).max(time),
            rate,
            ticks,
        };
        self.next_reading = 0;
    }
}

/// The clock of the threads of a process. A forked child has another one.
#[derive(Debug)]
pub(crate) struct CounterClock<S = System> {
    source: S,
    line: Latch<AtomicU64, 4>,
    calibration: Mutex<Calibration>,
}

impl CounterClock {
    /// A clock of the processor's counter; `None` if that is not what the kernel computes its own
    /// clock from.
    pub(crate) fn of_system() -> Option<Self> {
        source::is_counter_used(CURRENT_CLOCK_SOURCE).then(|| Self::new(System))
    }
}

impl<S: TimeSource> CounterClock<S> {
    fn new(source: S) -> Self {
        Self {
            source,
            line: Latch::new(),
            calibration: Mutex::default(),
        }
    }

    /// Returns CLOCK_MONOTONIC in nanoseconds, about. The processor may read the counter before
    /// memory accesses in front of the call are complete.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let [counter, time, rate, ticks] = self.line.load();
        let line = Line {
            counter,
            time,
            rate,
            ticks,
        };
        line.time_at(self.source.counter())
            .unwrap_or_else(|| self.read())
    }

    /// Returns the time without a line, and makes one if it is time for that. Waits for no other
    /// thread; a signal handler may have interrupted one that is here.
    #[cold]
    fn read(&self) -> u64 {
        let Ok(mut calibration) = self.calibration.try_lock() else {
            return self.source.monotonic();
        };
        let before = self.source.monotonic();
        let counter = self.source.counter_in_order();
        if let Some(time) = calibration.line.time_at(counter) {
            // Another thread has been here.
            return time;
        }
        if before < calibration.next_reading {
            return before;
        }
        let after = self.source.monotonic();
        calibration.add(before, counter, after);
        let line = calibration.line;
        self.line
            .store([line.counter, line.time, line.rate, line.ticks]);
        line.time_at(counter).unwrap_or(after)
    }
}
