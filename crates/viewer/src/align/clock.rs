//! The clock of a trace, and which clocks are the same.

use ctf::metadata::Trace;
use ctf::model::{EnvironmentValue, Uuid};

/// A monotonic clock: what it counts from, and the host, since containers of one kernel may have
/// clocks of their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Host { name: String, boot: Uuid },
    Relay { boot: Uuid },
}

/// The clock of a trace.
#[derive(Debug)]
pub(super) struct TraceClock {
    pub(super) node: Node,
    /// Nanoseconds from 1970 to the zero of the clock.
    pub(super) offset: i64,
}

impl TraceClock {
    /// None unless the trace names its host, and has one clock in nanoseconds that is identified.
    pub(super) fn of(trace: &Trace) -> Option<Self> {
        let name = host_of(trace)?.to_owned();
        let [clock] = trace.clocks() else { return None };
        let seconds = clock.offset_seconds.checked_mul(1_000_000_000)?;
        let rest = i64::try_from(clock.offset_cycles).ok()?;
        (clock.frequency == 1_000_000_000).then_some(())?;
        let boot = clock.uuid?;
        Some(Self {
            node: Node::Host { name, boot },
            offset: seconds.checked_add(rest)?,
        })
    }
}

/// The host that a trace names.
pub(super) fn host_of(trace: &Trace) -> Option<&str> {
    match trace.environment_value("hostname") {
        Some(EnvironmentValue::Text(host)) => Some(host),
        _ => None,
    }
}
