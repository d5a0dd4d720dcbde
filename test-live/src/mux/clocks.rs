//! Whether the times of all streams may be compared.

use ctf::metadata::{StreamClass, Trace};
use ctf::model::{EnvironmentValue, Uuid};

/// What the times of a stream are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// 1970.
    Unix,
    /// When a clock began, which others with this identity share.
    Clock(Uuid),
    /// Nobody knows.
    Unknown,
}

/// Watches over the clocks of the streams that are put in order.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    first: Option<Origin>,
    said: bool,
}

impl Clocks {
    /// Takes the clock of one more stream. True, once, if it cannot be compared with those before.
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

fn origin(trace: &Trace, stream: &StreamClass) -> Option<Origin> {
    stream.timescale()?;
    let Some(clock) = trace.clock_of(stream) else {
        // None is declared: since 1970 then.
        return Some(Origin::Unix);
    };
    // LTTng's clock is, although LTTng does not say so.
    let by_lttng = || match trace.environment_value("tracer_name") {
        Some(EnvironmentValue::Text(tracer)) => tracer.starts_with("lttng"),
        _ => false,
    };
    Some(
        if clock.absolute || &*clock.name == "monotonic" && by_lttng() {
            Origin::Unix
        } else {
            clock.uuid.map_or(Origin::Unknown, Origin::Clock)
        },
    )
}
