//! Checks whether the clocks of all streams can be compared.

use ctf::metadata::{StreamClass, Trace};
use ctf::model::{EnvironmentValue, Uuid};

/// The origin of a stream's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockOrigin {
    /// The beginning of 1970, UTC.
    Unix,
    /// The start of a clock, which others with this identity share.
    Clock(Uuid),
    /// An origin that the metadata does not say.
    Unknown,
}

/// Compares the clocks of the streams that are put in order.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    first: Option<ClockOrigin>,
    is_reported: bool,
}

impl Clocks {
    /// Adds the clock of one more stream. Returns true, once, if it cannot be compared with those before.
    pub(super) fn differ(&mut self, trace: &Trace, stream: &StreamClass) -> bool {
        let Some(origin) = origin(trace, stream) else {
            return false;
        };
        let first = *self.first.get_or_insert(origin);
        let differ = !self.is_reported && first != origin;
        self.is_reported |= differ;
        differ
    }
}

/// Whether the times of a stream count from 1970, UTC.
pub(crate) fn is_since_1970(trace: &Trace, stream: &StreamClass) -> bool {
    origin(trace, stream) == Some(ClockOrigin::Unix)
}

fn origin(trace: &Trace, stream: &StreamClass) -> Option<ClockOrigin> {
    stream.timescale()?;
    let Some(clock) = trace.clock_of(stream) else {
        // Without a declared clock, times count from 1970.
        return Some(ClockOrigin::Unix);
    };
    // LTTng's clock counts from 1970 with its offset, although the metadata does not declare it absolute.
    let by_lttng = || match trace.environment_value("tracer_name") {
        Some(EnvironmentValue::Text(tracer)) => tracer.starts_with("lttng"),
        _ => false,
    };
    Some(
        if clock.absolute || &*clock.name == "monotonic" && by_lttng() {
            ClockOrigin::Unix
        } else {
            clock.uuid.map_or(ClockOrigin::Unknown, ClockOrigin::Clock)
        },
    )
}
