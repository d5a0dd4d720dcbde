//! A ring with what its thread needs to know beside it.

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
    pub(crate) writer: RingWriter<RingMapping>,
}
