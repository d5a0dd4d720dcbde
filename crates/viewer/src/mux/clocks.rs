//! Checks whether the clocks of all streams can be compared.

use ctf::metadata::{ClockOrigin, StreamClass, Trace};

/// Compares the clocks of the streams that are put in order.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    first: Option<ClockOrigin>,
    is_reported: bool,
}

impl Clocks {
    /// Adds the clock of one more stream. Returns true, once, if it cannot be compared with those
    /// before.
    pub(super) fn differ(&mut self, trace: &Trace, stream: &StreamClass) -> bool {
        let Some(origin) = trace.clock_origin(stream) else {
            return false;
        };
        let first = *self.first.get_or_insert(origin);
        let differ = !self.is_reported && first != origin;
        self.is_reported |= differ;
        differ
    }
}

/// Whether the times of a stream count from 1970, UTC.
pub fn is_since_1970(trace: &Trace, stream: &StreamClass) -> bool {
    trace.clock_origin(stream) == Some(ClockOrigin::Unix)
}
