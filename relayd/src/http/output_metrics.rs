//! The metrics of the output directory: its file system, and what retention has removed.

use super::metrics::MetricsWriter;
use crate::store::retention::{OutputNumbers, RetentionSettings};

/// The metrics of the output, as it was measured last.
pub(super) fn render(output: OutputNumbers, settings: RetentionSettings) -> String {
    let mut metrics = MetricsWriter::default();
    metrics.write_gauge(
        "relayd_output_free_bytes",
        "Free space of the file system of the output.",
        output.free,
    );
    metrics.write_gauge(
        "relayd_output_size_bytes",
        "Size of the file system of the output.",
        output.size,
    );
    if settings == RetentionSettings::default() {
        return metrics.into_text();
    }
    metrics.write_gauge(
        "relayd_output_used_bytes",
        "Disk space of all sessions in the output.",
        output.used,
    );
    if let Some(age) = settings.max_age {
        metrics.write_gauge(
            "relayd_retention_age_limit_seconds",
            "Age at which closed sessions are removed.",
            age.as_secs(),
        );
    }
    if let Some(bytes) = settings.max_bytes {
        metrics.write_gauge(
            "relayd_retention_size_limit_bytes",
            "Disk space of all sessions above which closed sessions are removed.",
            bytes,
        );
    }
    metrics.write_counter(
        "relayd_retention_removed_sessions_total",
        "Sessions that were removed.",
        output.removed_sessions,
    );
    metrics.write_counter(
        "relayd_retention_removed_bytes_total",
        "Disk space of the sessions that were removed.",
        output.removed_bytes,
    );
    metrics.write_counter(
        "relayd_retention_errors_total",
        "Sessions that could not be examined or removed.",
        output.errors,
    );
    metrics.into_text()
}
