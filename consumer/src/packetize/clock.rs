//! The clock of the traces that are written here: the host's monotonic clock.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use ctf::model::Uuid;
use ctf::write::TraceClock;
use rustix::time::{ClockId, clock_gettime};
use wire::Timestamp;

/// How often both clocks are read; the reading with the shortest interruption counts.
const READINGS: usize = 8;

/// The monotonic clock of the host, in nanoseconds since boot, and its offset from the time of day.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    trace: TraceClock,
}

impl HostClock {
    /// Measures the offset of the monotonic clock from the time of day. To be done once: a later
    /// correction would change the order of events.
    #[must_use]
    pub fn measure() -> Self {
        let offset = (0..READINGS)
            .map(|_| {
                // The time of day is read between two readings of the monotonic clock, and is taken
                // as that of their middle.
                let before = monotonic();
                let day = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_nanos());
                let after = monotonic();
                let middle = u128::from(before) + u128::from(after - before) / 2;
                (after - before, day.saturating_sub(middle))
            })
            // The shortest reading has the smallest error: the thread may be interrupted in any of
            // them.
            .min()
            .map_or(0, |(_, offset)| offset);
        // The id of the boot: clocks of the same UUID count from the same moment.
        let uuid = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .and_then(|text| Uuid::parse(text.trim()));
        Self {
            trace: TraceClock {
                uuid,
                offset_seconds: i64::try_from(offset / 1_000_000_000).unwrap_or(i64::MAX),
                offset_nanoseconds: u64::try_from(offset % 1_000_000_000).unwrap_or(0),
            },
        }
    }

    /// Returns the present time.
    #[must_use]
    pub fn now() -> Timestamp {
        Timestamp(monotonic())
    }

    /// Returns the declaration of the clock for the metadata.
    #[must_use]
    pub fn trace_clock(self) -> TraceClock {
        self.trace
    }
}

fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}
