//! The clock of traces that are made here: the host's monotonic clock.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use ctf::model::Uuid;
use ctf::write::TraceClock;
use rustix::time::{ClockId, clock_gettime};
use wire::Timestamp;

/// How often both clocks are read, to find a moment when nothing came between.
const READINGS: usize = 8;

/// Times of events, in nanoseconds since the host has started.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    trace: TraceClock,
}

impl HostClock {
    /// Measures how far the monotonic clock is from the time of day, once: to correct it later would
    /// make events trade places.
    #[must_use]
    pub fn measure() -> Self {
        let offset = (0..READINGS)
            .map(|_| {
                let before = monotonic();
                let day = SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_nanos());
                let after = monotonic();
                let middle = u128::from(before) + u128::from(after - before) / 2;
                (after - before, day.saturating_sub(middle))
            })
            .min()
            .map_or(0, |(_, offset)| offset);
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

    /// Now.
    #[must_use]
    pub fn now() -> Timestamp {
        Timestamp(monotonic())
    }

    /// What the metadata says of it.
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
