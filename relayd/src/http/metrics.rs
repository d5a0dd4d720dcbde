//! The relay's metrics in the Prometheus text format 0.0.4. All label values are fixed: a label for each session or
//! stream would leave a series behind for each one that has ended.

use std::fmt::{Display, Write};

use super::Port;
use crate::publish::viewer_lag::Lags;
use crate::registry::Registry;
use crate::store::fault::FaultKind;

/// Writes one metric after the other.
#[derive(Default)]
struct MetricsWriter(String);

impl MetricsWriter {
    fn write_header(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn write_gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.write_header(name, "gauge", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn write_counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.write_header(name, "counter", help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// A metric with one label.
    fn write_labelled<'a>(
        &mut self,
        (name, label): (&str, &str),
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
pub(super) fn render(registry: &Registry, ports: &[Port]) -> String {
    let mut metrics = MetricsWriter::default();
    write_stream_metrics(&mut metrics, registry);
    write_session_metrics(&mut metrics, registry);
    write_file_metrics(&mut metrics, registry);
    let connections = ports.iter();
    metrics.write_labelled(
        ("relayd_connections", "port"),
        "gauge",
        "Open connections.",
        connections.map(|port| (port.name, (port.connections)() as u64)),
    );
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
    metrics.write_labelled(
        ("relayd_sessions", "state"),
        "gauge",
        "Sessions whose producer is connected, and sessions that wait for their last packets.",
        [
            ("connected", sessions.len() as u64),
            ("ending", lingering.len() as u64),
        ],
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
    // One of the entries is the descriptor of this directory.
    if let Ok(all) = std::fs::read_dir("/proc/self/fd") {
        metrics.write_gauge(
            "process_open_fds",
            "Open file descriptors of the process.",
            all.count().saturating_sub(1),
        );
    }
    metrics.write_labelled(
        ("relayd_write_errors_total", "kind"),
        "counter",
        "Errors of writes to trace files.",
        FaultKind::ALL.map(|kind| (kind.name(), pool.faults().of(kind))),
    );
}
