//! The origin of a clock, by which the times of streams can be compared.

use super::classes::StreamClass;
use super::trace::Trace;
use crate::model::{EnvironmentValue, Uuid};

/// The origin of a stream's clock. Times of two streams can be compared if it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOrigin {
    /// The beginning of 1970, UTC.
    Unix,
    /// The start of a clock, which others with this identity share.
    Clock(Uuid),
    /// So many seconds from the beginning of 1970 or the start of a clock: more than 292 years.
    Far(i64),
    /// An origin that the metadata does not say.
    Unknown,
}

impl Trace {
    /// The origin of the clock of this stream class; `None` if its events have no time.
    #[must_use]
    pub fn clock_origin(&self, stream: &StreamClass) -> Option<ClockOrigin> {
        let far_seconds = stream.timescale()?.far_seconds();
        if far_seconds != 0 {
            return Some(ClockOrigin::Far(far_seconds));
        }
        let Some(clock) = self.clock_of(stream) else {
            // Without a declared clock, times count from 1970.
            return Some(ClockOrigin::Unix);
        };
        // LTTng's clock counts from 1970 with its offset, although the metadata does not declare it
        // absolute.
        let by_lttng = || match self.environment_value("tracer_name") {
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
}
