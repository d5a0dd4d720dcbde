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

/// Watches over the clocks of the streams that are put in order.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    first: Option<ClockOrigin>,
    said: bool,
}

impl Clocks {
    /// Adds the clock of one more stream. Returns true, once, if it cannot be compared with those before.
    pub(super) fn differ(&mut self, trace: &Trace, stream: &StreamClass) -> bool {
        let Some(origin) = origin(trace, stream) else {
            return false;
        };
        let first = *self.first.get_or_insert(origin);
        let differ = !self.said && first != origin;
        self.said |= differ;
        differ
    }
}

fn origin(trace: &Trace, stream: &StreamClass) -> Option<ClockOrigin> {
    stream.timescale()?;
    let Some(clock) = trace.clock_of(stream) else {
        // None is declared: since 1970 then.
        return Some(ClockOrigin::Unix);
    };
    // LTTng's clock is, although LTTng does not say so.
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
