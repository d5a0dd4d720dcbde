//! A ring with what its thread needs to know beside it.

use crate::clock::CounterClock;
use crate::clock::source::now;
use crate::format::SeverityClass;
use crate::memory::RingMapping;
use crate::process::Process;
use crate::protocol::RingWriter;

/// A ring that one thread at a time writes.
#[derive(Debug)]
pub(crate) struct ThreadRing {
    pub(crate) process: &'static Process,
    /// Generation of the process: a forked child must not touch the ring.
    pub(crate) generation: u32,
    pub(crate) class: SeverityClass,
    pub(crate) number: u32,
    /// Time of the next sample of the realtime clock, CLOCK_MONOTONIC in nanoseconds.
    pub(crate) next_clock_sample: u64,
    /// `None`: events have the time of the clock call.
    pub(crate) clock: Option<&'static CounterClock>,
    /// Time of the last event. Only the times of a [`CounterClock`] would go back without it.
    pub(crate) last_time: u64,
    pub(crate) writer: RingWriter<RingMapping>,
}

impl ThreadRing {
    /// Returns the time of the next event.
    #[inline(always)]
    pub(crate) fn read_clock(&mut self) -> u64 {
        let Some(clock) = self.clock else {
            return now();
        };
        self.last_time = self.last_time.max(clock.now());
        self.last_time
    }
}
