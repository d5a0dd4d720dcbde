//! The relay's numbers in Prometheus' text format 0.0.4. Labels only have values that are written here:
//! sessions and streams come and go, and would be a series each for ever.

use std::fmt::{Display, Write};

use super::Port;
use crate::publish::viewer_lag::Lags;
use crate::registry::Registry;
use crate::store::fault::FaultKind;

/// Text that grows by one metric after the other.
#[derive(Default)]
struct Text(String);

impl Text {
    fn metric(&mut self, name: &str, sort: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {sort}");
    }

    /// A metric without labels.
    fn one(&mut self, name: &str, sort: &str, help: &str, value: impl Display) {
        self.metric(name, sort, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// A metric with one label.
    fn each<'a>(
        &mut self,
        (name, label): (&str, &str),
        sort: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        self.metric(name, sort, help);
        for (of, value) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{of}\"}} {value}");
        }
    }
}

pub(super) fn text(registry: &Registry, ports: &[Port]) -> String {
    let mut text = Text::default();
    streams(&mut text, registry);
    sessions(&mut text, registry);
    files(&mut text, registry);
    let connections = ports.iter();
    text.each(
        ("relayd_connections", "port"),
        "gauge",
        "Connections that are open.",
        connections.map(|port| (port.name, (port.connections)() as u64)),
    );
    text.0
}

fn streams(text: &mut Text, registry: &Registry) {
    let (open, totals) = registry.totals();
    text.one(
        "relayd_packets_total",
        "counter",
        "Packets written to tracefiles.",
        totals.packets,
    );
    text.one(
        "relayd_bytes_total",
        "counter",
        "Bytes of those packets, padding included.",
        totals.bytes,
    );
    text.one(
        "relayd_packets_lost_total",
        "counter",
        "Packets that never came, and were given up.",
        totals.lost,
    );
    text.one(
        "relayd_packets_waiting",
        "gauge",
        "Packets that came early, and wait for one before them.",
        totals.waiting_packets,
    );
    text.one(
        "relayd_bytes_waiting",
        "gauge",
        "Bytes of those packets.",
        totals.waiting_bytes,
    );
    let budget = registry.reorder_budget();
    text.one(
        "relayd_reorder_memory_bytes",
        "gauge",
        "Memory reserved for early packets, those that are still arriving included.",
        budget.used(),
    );
    text.one(
        "relayd_reorder_memory_limit_bytes",
        "gauge",
        "Memory that may be reserved for early packets.",
        budget.limit(),
    );
    text.one(
        "relayd_streams",
        "gauge",
        "Streams of packets that are open.",
        open,
    );
    text.one(
        "relayd_streams_paused",
        "gauge",
        "Streams that wait for space on the disk.",
        totals.paused,
    );
}

fn sessions(text: &mut Text, registry: &Registry) {
    let (sessions, lingering) = (registry.sessions(), registry.lingering());
    text.each(
        ("relayd_sessions", "state"),
        "gauge",
        "Sessions whose producer is connected, and those that only wait for packets.",
        [
            ("connected", sessions.len() as u64),
            ("ending", lingering.len() as u64),
        ],
    );
    let mut lags = Lags::default();
    for session in sessions.iter().chain(&lingering) {
        lags.add_all(&session.viewer_lag().lags());
    }
    text.one(
        "relayd_viewers",
        "gauge",
        "Viewers attached to sessions.",
        lags.viewers,
    );
    text.each(
        ("relayd_viewer_lag_packets", "of"),
        "gauge",
        "Packets that viewers have not asked for yet.",
        [("all", lags.sum.packets), ("slowest", lags.most.packets)],
    );
    text.each(
        ("relayd_viewer_lag_bytes", "of"),
        "gauge",
        "Bytes of those packets.",
        [("all", lags.sum.bytes), ("slowest", lags.most.bytes)],
    );
}

fn files(text: &mut Text, registry: &Registry) {
    let pool = &registry.settings().pool;
    let (open, most) = pool.open_files();
    text.one(
        "relayd_trace_files_open",
        "gauge",
        "Trace files that are open.",
        open,
    );
    text.one(
        "relayd_trace_files_limit",
        "gauge",
        "Trace files that may be open.",
        most,
    );
    // Of the directory's entries one is the directory itself.
    if let Ok(all) = std::fs::read_dir("/proc/self/fd") {
        text.one(
            "process_open_fds",
            "gauge",
            "File descriptors of the process.",
            all.count().saturating_sub(1),
        );
    }
    text.each(
        ("relayd_write_errors_total", "kind"),
        "counter",
        "Errors of files that traces are written to.",
        FaultKind::ALL.map(|kind| (kind.name(), pool.faults().of(kind))),
    );
}
