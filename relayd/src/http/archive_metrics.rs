//! The metrics of the archive.

use std::time::Instant;

use super::metrics::MetricsWriter;
use crate::archiver::status::{ArchiveStatus, RequestResult};

/// The metrics of an archive.
pub(super) fn render(archive: &ArchiveStatus, now: Instant) -> String {
    let mut metrics = MetricsWriter::default();
    metrics.write_gauge(
        "relayd_archive_behind_seconds",
        "Time for which the oldest data waits to be archived.",
        archive.behind(now).as_secs_f64(),
    );
    metrics.write_gauge(
        "relayd_archive_available",
        "1 while the store answers, 0 after a failed request.",
        u8::from(archive.failure().is_none() && !archive.has_stopped()),
    );
    metrics.write_counter(
        "relayd_archive_objects_total",
        "Objects that were stored.",
        archive.objects(),
    );
    metrics.write_counter(
        "relayd_archive_parts_total",
        "Parts among the objects that were stored.",
        archive.parts(),
    );
    metrics.write_counter(
        "relayd_archive_bytes_total",
        "Bytes of the objects that were stored.",
        archive.bytes(),
    );
    metrics.write_counter(
        "relayd_archive_sessions_taken_over_total",
        "Sessions that another relay has begun, and that go on here.",
        archive.taken_over(),
    );
    metrics.write_counter(
        "relayd_archive_logs_moved_total",
        "Logs of relays that are gone that were moved to parts.",
        archive.logs_moved(),
    );
    metrics.write_gauge(
        "relayd_archive_copies",
        "Sessions of the archive that are copied here for viewers.",
        archive.copies(),
    );
    metrics.write_counter(
        "relayd_archive_copied_bytes_total",
        "Bytes of packets that were copied here for viewers.",
        archive.copied_bytes(),
    );
    metrics.write_counter(
        "relayd_archive_copy_failures_total",
        "Sessions that could not be copied for viewers, or not further.",
        archive.copy_failures(),
    );
    metrics.write_counter(
        "relayd_archive_list_failures_total",
        "Attempts to list the sessions of the archive for viewers that have failed.",
        archive.list_failures(),
    );
    metrics.write_labelled(
        "relayd_archive_requests_total",
        "result",
        "counter",
        "Requests that create objects. Without an answer (unknown), they may have succeeded.",
        RequestResult::ALL.map(|result| (result.name(), archive.requests(result))),
    );
    metrics.write_counter(
        "relayd_archive_store_seconds_total",
        "Time that storing objects took, repeated requests included.",
        archive.store_time().as_secs_f64(),
    );
    metrics.into_text()
}
