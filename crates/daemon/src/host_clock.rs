//! The clocks of this host, and what they count from.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the clock of events, `CLOCK_MONOTONIC`, in nanoseconds. It counts from the start of the
/// system, is never set, and stops while the system is suspended.
#[must_use]
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// Returns the time of day, `CLOCK_REALTIME`, in nanoseconds since 1970, UTC; 0 before that year.
#[must_use]
pub fn realtime() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the id that the kernel has had since it was started, as a UUID in text. None: the system
/// does not tell it.
#[must_use]
pub fn boot_id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    // Read once: it is the same as long as this process lives.
    let id = ID.get_or_init(|| {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(id.trim_end().to_owned()).filter(|id| !id.is_empty())
    });
    id.as_deref()
}
