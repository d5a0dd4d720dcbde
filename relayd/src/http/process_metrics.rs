//! The metrics of the process, by the names that Prometheus gives them for all programs, and of its
//! build.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::metrics::MetricsWriter;
use crate::config::LTTNG_RELEASE;

/// The metrics of a process that was started at this time.
pub(super) fn render(started: SystemTime) -> String {
    let mut metrics = MetricsWriter::default();
    metrics.write_header(
        "relayd_build_info",
        "gauge",
        "Version of the relay and the LTTng release that it stands in for; always 1.",
    );
    let version = env!("CARGO_PKG_VERSION");
    metrics.write_line(&format!(
        "relayd_build_info{{version=\"{version}\",lttng=\"{LTTNG_RELEASE}\"}} 1"
    ));
    if let Ok(started) = started.duration_since(UNIX_EPOCH) {
        metrics.write_gauge(
            "process_start_time_seconds",
            "Start time of the process since the Unix epoch.",
            format!("{:.3}", started.as_secs_f64()),
        );
    }
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let milliseconds = used.tv_nsec / 1_000_000;
    metrics.write_counter(
        "process_cpu_seconds_total",
        "Processor time of the process, in user and in kernel mode.",
        format!("{}.{milliseconds:03}", used.tv_sec),
    );
    for (name, help, field) in [
        (
            "process_resident_memory_bytes",
            "Memory of the process that is in RAM.",
            "VmRSS:",
        ),
        (
            "process_virtual_memory_bytes",
            "Address space of the process.",
            "VmSize:",
        ),
    ] {
        if let Some(bytes) = memory(field) {
            metrics.write_gauge(name, help, bytes);
        }
    }
    // One of the entries is the descriptor of this directory.
    if let Ok(all) = std::fs::read_dir("/proc/self/fd") {
        metrics.write_gauge(
            "process_open_fds",
            "Open file descriptors of the process.",
            all.count().saturating_sub(1),
        );
    }
    if let Some(max) = getrlimit(Resource::Nofile).current {
        metrics.write_gauge(
            "process_max_fds",
            "Maximum number of open file descriptors of the process.",
            max,
        );
    }
    metrics.into_text()
}

/// A size in `/proc/self/status`, in bytes.
fn memory(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
    kilobytes.checked_mul(1024)
}
