//! The relay's metrics in the Prometheus text format 0.0.4. All label values are fixed: a label for
//! each session or stream would leave a series for each one that has ended.

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;

use super::{Port, QuicCounters};
use crate::publish::viewer_lag::Lags;
use crate::registry::Registry;
use crate::registry::resumption::ResumeEvent;
use crate::store::fault::FaultKind;
use crate::store::sync::Syncer;

/// Writes one metric after the other.
#[derive(Default)]
pub(super) struct MetricsWriter(String);

impl MetricsWriter {
    pub(super) fn write_header(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(super) fn write_gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.write_header(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    pub(super) fn write_counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.write_header(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Writes the line of a series.
    pub(super) fn write_line(&mut self, line: &str) {
        let _ = writeln!(self.0, "{line}");
    }

    /// The text of all metrics that were written.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// A metric with one label.
    pub(super) fn write_labelled<'a>(
        &mut self,
        name: &str,
        label: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.write_header(name, kind, help);
        for (label_value, value) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{label_value}\"}} {value}");
        }
    }
}

/// All metrics of a relay.
pub(super) fn render(registry: &Registry, ports: &[Port], quic: Option<&QuicCounters>) -> String {
    let mut metrics = MetricsWriter::default();
    write_stream_metrics(&mut metrics, registry);
    write_session_metrics(&mut metrics, registry);
    write_file_metrics(&mut metrics, registry);
    if let Some(syncer) = registry.settings().pool.syncer() {
        write_sync_metrics(&mut metrics, syncer);
    }
    let connections = ports.iter();
    metrics.write_labelled(
        "relayd_connections",
        "port",
        "gauge",
        "Open connections.",
        connections.map(|port| (port.name, (port.connections)() as u64)),
    );
    if let Some(quic) = quic {
        metrics.write_counter(
            "relayd_quic_resets_total",
            "Packets that a producer abandoned on a QUIC connection.",
            quic.resets.load(Ordering::Relaxed),
        );
        metrics.write_counter(
            "relayd_quic_path_changes_total",
            "Changes of a producer's address on a QUIC connection.",
            quic.path_changes.load(Ordering::Relaxed),
        );
    }
    metrics.0
}

fn write_stream_metrics(metrics: &mut MetricsWriter, registry: &Registry) {
    let (open, totals) = registry.totals();
    metrics.write_counter(
        "relayd_packets_total",
        "Packets written to tracefiles.",
        totals.packets,
    );
    metrics.write_counter(
        "relayd_bytes_total",
        "Bytes of packets written to tracefiles, padding included.",
        totals.bytes,
    );
    metrics.write_counter(
        "relayd_packets_lost_total",
        "Packets that never arrived and were given up.",
        totals.lost,
    );
    metrics.write_counter(
        "relayd_packets_out_of_order_total",
        "Packets that arrived before one with a lower number.",
        totals.early,
    );
    metrics.write_gauge(
        "relayd_reorder_buffered_packets",
        "Early packets that are buffered until a missing packet arrives.",
        totals.waiting_packets,
    );
    metrics.write_gauge(
        "relayd_reorder_buffered_bytes",
        "Bytes of early packets that are buffered.",
        totals.waiting_bytes,
    );
    let budget = registry.reorder_budget();
    metrics.write_gauge(
        "relayd_reorder_memory_bytes",
        "Memory reserved for early packets, including those that are still arriving.",
        budget.used(),
    );
    metrics.write_gauge(
        "relayd_reorder_memory_limit_bytes",
        "Maximum memory for early packets.",
        budget.limit(),
    );
    metrics.write_gauge("relayd_streams", "Open data streams.", open);
    metrics.write_gauge(
        "relayd_streams_paused",
        "Data streams that are paused until disk space is available.",
        totals.paused,
    );
}

fn write_session_metrics(metrics: &mut MetricsWriter, registry: &Registry) {
    let (sessions, lingering) = (registry.sessions(), registry.lingering());
    let detached = sessions.iter().filter(|session| session.is_detached());
    let detached = detached.count();
    metrics.write_labelled(
        "relayd_sessions",
        "state",
        "gauge",
        "Sessions whose producer is connected, may resume them, or has left with packets in flight.",
        [
            ("connected", (sessions.len() - detached) as u64),
            ("detached", detached as u64),
            ("ending", lingering.len() as u64),
        ],
    );
    let counts = registry.resume_counts();
    metrics.write_labelled(
        "relayd_session_events_total",
        "event",
        "counter",
        "Resumable sessions that lost their connection, were resumed, restored at the start, or not resumed in time.",
        ResumeEvent::ALL.map(|event| (event.name(), counts.of(event))),
    );
    metrics.write_gauge(
        "relayd_draining",
        "1 while the relay sends producers to another one, until it is stopped.",
        u8::from(registry.is_draining()),
    );
    let mut lags = Lags::default();
    for session in sessions.iter().chain(&lingering) {
        lags.add_all(&session.viewer_lag().lags());
    }
    metrics.write_gauge(
        "relayd_viewers",
        "Viewers attached to sessions.",
        lags.viewers,
    );
    metrics.write_gauge(
        "relayd_viewer_lag_packets",
        "Packets that viewers have not requested yet, sum of all viewers.",
        lags.sum.packets,
    );
    metrics.write_gauge(
        "relayd_viewer_lag_max_packets",
        "Packets that a viewer has not requested yet, maximum of all viewers.",
        lags.most.packets,
    );
    metrics.write_gauge(
        "relayd_viewer_lag_bytes",
        "Bytes of packets that viewers have not requested yet, sum of all viewers.",
        lags.sum.bytes,
    );
    metrics.write_gauge(
        "relayd_viewer_lag_max_bytes",
        "Bytes of packets that a viewer has not requested yet, maximum of all viewers.",
        lags.most.bytes,
    );
}

fn write_file_metrics(metrics: &mut MetricsWriter, registry: &Registry) {
    let pool = &registry.settings().pool;
    let (open, max) = pool.open_files();
    metrics.write_gauge("relayd_trace_files_open", "Open trace files.", open);
    metrics.write_gauge(
        "relayd_trace_files_limit",
        "Maximum number of open trace files.",
        max,
    );
    metrics.write_labelled(
        "relayd_write_errors_total",
        "kind",
        "counter",
        "Errors of writes to trace files.",
        FaultKind::ALL.map(|kind| (kind.name(), pool.faults().of(kind))),
    );
}

/// Metrics of a relay that syncs its files. Without a syncer nothing is known of what is on the
/// disk.
fn write_sync_metrics(metrics: &mut MetricsWriter, syncer: &Syncer) {
    let tally = syncer.tally();
    let durations = tally.durations();
    metrics.write_counter(
        "relayd_syncs_total",
        "Rounds in which files were synced to the disk.",
        tally.rounds(),
    );
    metrics.write_counter(
        "relayd_synced_files_total",
        "Files and directories that were synced, in all rounds.",
        tally.files(),
    );
    metrics.write_counter(
        "relayd_sync_seconds_total",
        "Time that the rounds took.",
        durations.sum.as_secs_f64(),
    );
    metrics.write_gauge(
        "relayd_sync_max_seconds",
        "Time that the longest round took.",
        durations.max.as_secs_f64(),
    );
    metrics.write_gauge(
        "relayd_unsynced_bytes",
        "Bytes that are written and not yet synced.",
        tally.unsynced_bytes(),
    );
    metrics.write_gauge(
        "relayd_unsynced_files",
        "Files and directories that the next round syncs.",
        syncer.dirty_files(),
    );
    metrics.write_labelled(
        "relayd_sync_errors_total",
        "kind",
        "counter",
        "Files that could not be synced.",
        FaultKind::ALL.map(|kind| (kind.name(), tally.faults().of(kind))),
    );
}
