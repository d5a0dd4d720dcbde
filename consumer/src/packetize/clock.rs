//! The clock of the traces that are written here: the host's monotonic clock.

use ctf::model::Uuid;
use ctf::write::TraceClock;
use daemon::host_clock::{boot_id, monotonic, realtime};
use wire::Timestamp;

/// How often both clocks are read; the reading with the shortest interruption counts.
const READINGS: usize = 8;

/// The monotonic clock of the host, in nanoseconds since boot, and its offset from the time of day.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    /// Nanoseconds since 1970 when the monotonic clock was 0; 0 if that was before 1970.
    offset: u64,
}

impl HostClock {
    /// Measures the offset of the monotonic clock from the time of day. To be done once for a
    /// trace: a later correction would change the order of events.
    #[must_use]
    pub fn measure() -> Self {
        let offset = (0..READINGS)
            .map(|_| {
                // The time of day is read between two readings of the monotonic clock, and is taken
                // as that of their middle.
                let before = monotonic();
                let day = realtime();
                let after = monotonic();
                (after - before, day.saturating_sub(before.midpoint(after)))
            })
            // The shortest reading has the smallest error: the thread may be interrupted in any of
            // them.
            .min()
            .map_or(0, |(_, offset)| offset);
        Self { offset }
    }

    /// Returns the present time.
    #[must_use]
    pub fn now() -> Timestamp {
        Timestamp(monotonic())
    }

    /// Returns the nanoseconds since 1970 when the clock was 0.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// Returns the declaration of the clock for the metadata.
    #[must_use]
    pub fn trace_clock(self) -> TraceClock {
        TraceClock {
            // The id of the boot: clocks of the same UUID count from the same moment.
            uuid: boot_id().and_then(Uuid::parse),
            offset_seconds: i64::try_from(self.offset / 1_000_000_000).unwrap_or(i64::MAX),
            offset_nanoseconds: self.offset % 1_000_000_000,
        }
    }
}
