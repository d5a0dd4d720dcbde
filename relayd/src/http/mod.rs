//! The status endpoint: metrics, sessions, health and readiness of a relay, read-only. All values
//! are read from the registry when they are scraped, and cost nothing between scrapes. `net::http`
//! has the sockets.
//!
//! Read in this order: [`StatusApi`] here, `metrics` (Prometheus text format) with
//! `process_metrics`, `output_metrics` and `archive_metrics`, `sessions` (JSON).

mod archive_metrics;
mod metrics;
mod output_metrics;
mod process_metrics;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use crate::archiver::status::ArchiveStatus;
use crate::health::Health;
use crate::registry::Registry;
use crate::registry::draining::DrainingSessions;
use crate::store::retention::{OutputStatus, RetentionSettings};

/// The reply of `/readyz` of a relay that has drained begins with it.
pub const DRAINED: &str = "drained";

/// Answers requests to the status endpoint of one relay.
#[derive(Debug)]
pub struct StatusApi {
    registry: Arc<Registry>,
    health: Arc<Health>,
    ports: Vec<Port>,
    /// Counters of the QUIC port. None if the relay has none.
    quic: Option<Arc<QuicCounters>>,
    /// The output as it was measured last, and the counters of what was removed.
    output: Arc<OutputStatus>,
    retention: RetentionSettings,
    /// State of the archive. None: there is none.
    archive: Option<Arc<ArchiveStatus>>,
    /// Start of the relay, for the metric.
    started: SystemTime,
    /// Whether shutdown has begun.
    is_stopping: AtomicBool,
}

/// A port of the relay, for the metric of its connections.
pub struct Port {
    /// Value of the label `port`.
    pub name: &'static str,
    /// Returns the number of open connections.
    pub connections: Box<dyn Fn() -> usize + Send + Sync>,
}

/// Counters of what has happened on all connections of the QUIC port.
#[derive(Debug, Default)]
pub struct QuicCounters {
    resets: AtomicU64,
    path_changes: AtomicU64,
}

impl QuicCounters {
    /// Counts a stream that a producer has reset because its packet was not delivered in time.
    pub fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a change of a producer's address in mid-connection.
    pub fn count_path_change(&self) {
        self.path_changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct StatusReply {
    /// HTTP status code of the reply.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// The body, which ends with a newline.
    pub body: String,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl StatusApi {
    /// Creates the status endpoint of a relay with these ports, and with these counters of its QUIC
    /// port, this output and this archive.
    #[must_use]
    pub fn new(
        registry: Arc<Registry>,
        health: Arc<Health>,
        ports: Vec<Port>,
        quic: Option<Arc<QuicCounters>>,
        output: Arc<OutputStatus>,
        retention: RetentionSettings,
        archive: Option<Arc<ArchiveStatus>>,
    ) -> Self {
        Self {
            registry,
            health,
            ports,
            quic,
            output,
            retention,
            archive,
            started: SystemTime::now(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Records that shutdown has begun: the relay is not ready any more.
    pub fn set_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Answers a GET request of a path.
    #[must_use]
    pub fn reply(&self, path: &str, now: Instant) -> StatusReply {
        match path {
            "/metrics" => StatusReply {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: self.metrics(now),
            },
            "/sessions" => StatusReply {
                status: 200,
                content_type: "application/json",
                body: sessions::render(&self.registry),
            },
            "/healthz" => health_reply(self.liveness_failure(now)),
            "/readyz" => {
                let failure = self.liveness_failure(now);
                let failure = failure.or_else(|| self.readiness_failure());
                let draining = self.draining(now);
                match (failure, draining, self.archive_failure(now)) {
                    (None, Some(left), _) => text_reply(503, &left),
                    // Producers stay: no other relay would be better off.
                    (None, None, Some(archive)) => text_reply(200, &archive),
                    (failure, ..) => health_reply(failure),
                }
            }
            "/" => text_reply(200, "/metrics\n/healthz\n/readyz\n/sessions"),
            _ => text_reply(404, "not found"),
        }
    }

    fn metrics(&self, now: Instant) -> String {
        let mut text = metrics::render(&self.registry, &self.ports, self.quic.as_deref());
        text += &process_metrics::render(self.started);
        text += &output_metrics::render(self.output.numbers(), self.retention);
        if let Some(archive) = &self.archive {
            text += &archive_metrics::render(archive, now);
        }
        text
    }

    /// The reason why the relay is unhealthy, so that only a restart could help. None if it is
    /// healthy.
    fn liveness_failure(&self, now: Instant) -> Option<&'static str> {
        if self.archive.as_ref().is_some_and(|own| own.has_stopped()) {
            return Some("unhealthy: the archive has stopped, see the log");
        }
        // At shutdown, ports are closed and workers end on purpose.
        (self.health.error_mask(now) != 0 && !self.is_stopping.load(Ordering::Relaxed))
            .then_some("unhealthy: workers do not respond, or a port is not listened on")
    }

    /// The reason why nothing is archived. None: the store answers, or there is no archive.
    fn archive_failure(&self, now: Instant) -> Option<String> {
        let archive = self.archive.as_ref()?;
        let failure = archive.failure()?;
        let seconds = archive.behind(now).as_secs();
        Some(format!(
            "ok, but the archive is {seconds} s behind: {failure}"
        ))
    }

    /// What a relay that drains still waits for. It begins with [`DRAINED`] if that is nothing.
    /// None: the relay does not drain.
    fn draining(&self, now: Instant) -> Option<String> {
        let DrainingSessions { fixed, returned } = self.registry.draining_sessions()?;
        let archive = self.archive.as_ref();
        let behind = archive.map(|archive| archive.behind(now));
        let behind = behind.unwrap_or_default();
        Some(match (fixed, returned) {
            (0, 0) if !behind.is_zero() => {
                let seconds = behind.as_secs_f64();
                format!("draining: the archive is {seconds:.1} s behind")
            }
            (0, 0) => DRAINED.to_owned(),
            // What the archive lacks is kept by their producers, which go on.
            (0, returned) => {
                format!("{DRAINED}; sessions that came back, for want of another relay: {returned}")
            }
            (fixed, _) => {
                format!("draining: sessions that cannot move to another relay: {fixed}")
            }
        })
    }

    /// The reason why the relay is not ready for further producers, although it is healthy. None if
    /// it is ready.
    fn readiness_failure(&self) -> Option<&'static str> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Some("stopping");
        }
        let (_, totals) = self.registry.totals();
        (totals.paused > 0).then_some("not ready: streams are paused until disk space is available")
    }
}

fn health_reply(failure: Option<&str>) -> StatusReply {
    failure.map_or_else(|| text_reply(200, "ok"), |failure| text_reply(503, failure))
}

fn text_reply(status: u16, text: &str) -> StatusReply {
    StatusReply {
        status,
        content_type: "text/plain; charset=utf-8",
        body: format!("{text}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HEALTH_HEARTBEAT_TIMEOUT;
    use crate::registry::RegistrySettings;
    use crate::store::pool::Pool;

    fn status(start: Instant) -> StatusApi {
        let registry = Registry::new(RegistrySettings::new("/nowhere".into(), Pool::new(7)));
        let port = Port {
            name: "control",
            connections: Box::new(|| 3),
        };
        StatusApi::new(
            registry,
            Arc::new(Health::new(start)),
            vec![port],
            None,
            Default::default(),
            Default::default(),
            Some(Default::default()),
        )
    }

    #[test]
    fn stopping_relay_is_healthy_but_not_ready() {
        let start = Instant::now();
        let api = status(start);
        let status = |path, now| api.reply(path, now).status;
        assert_eq!(status("/healthz", start), 200);
        assert_eq!(status("/readyz", start), 200);
        assert_eq!(status("/healthz", start + HEALTH_HEARTBEAT_TIMEOUT), 503);
        assert_eq!(status("/readyz", start + HEALTH_HEARTBEAT_TIMEOUT), 503);
        api.set_stopping();
        assert_eq!(status("/healthz", start), 200);
        assert_eq!(api.reply("/readyz", start).body, "stopping\n");
        assert_eq!(status("/no/such/thing", start), 404);
    }

    #[test]
    fn metrics_have_help_and_type_and_one_line_per_label_value() {
        let now = Instant::now();
        let text = status(now).reply("/metrics", now).body;
        assert!(text.ends_with('\n'));
        for line in [
            "# TYPE relayd_packets_total counter",
            "relayd_packets_total 0",
            "relayd_connections{port=\"control\"} 3",
            "relayd_trace_files_limit 7",
            "relayd_write_errors_total{kind=\"full\"} 0",
            "relayd_archive_requests_total{result=\"unknown\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().ok().or_else(|| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        assert_eq!(status(now).reply("/sessions", now).body, "[]\n");
    }
}
