//! What a relay tells over HTTP to those who keep watch over it: numbers, sessions, whether it is well.
//! It only ever tells: nothing can be changed this way. Everything is read from where it is kept when
//! somebody asks, so that it costs nobody anything else. Sees no socket: `net::http` has that.
//!
//! Read in this order: [`StatusApi`] here, `metrics` (Prometheus' text format), `sessions` (JSON).

mod metrics;
mod sessions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::health::Health;
use crate::registry::Registry;

/// Answers questions about a relay.
#[derive(Debug)]
pub struct StatusApi {
    registry: Arc<Registry>,
    health: Arc<Health>,
    ports: Vec<Port>,
    is_stopping: AtomicBool,
}

/// A port of the relay.
pub struct Port {
    /// What it is called.
    pub name: &'static str,
    /// Tells how many connections it has.
    pub connections: Box<dyn Fn() -> usize + Send + Sync>,
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's number for how it went.
    pub status: u16,
    /// What the body is.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

const TEXT: &str = "text/plain; charset=utf-8";

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl StatusApi {
    /// For a relay with these ports.
    #[must_use]
    pub fn new(registry: Arc<Registry>, health: Arc<Health>, ports: Vec<Port>) -> Self {
        Self {
            registry,
            health,
            ports,
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The relay is about to stop: it is not ready any more.
    pub fn stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Answers a request to read what is at this path.
    #[must_use]
    pub fn answer(&self, path: &str, now: Instant) -> Answer {
        match path {
            "/metrics" => Answer {
                status: 200,
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: metrics::text(&self.registry, &self.ports),
            },
            "/sessions" => Answer {
                status: 200,
                content_type: "application/json",
                body: sessions::json(&self.registry),
            },
            "/healthz" => self.verdict(self.liveness_failure(now)),
            "/readyz" => self.verdict(
                self.liveness_failure(now)
                    .or_else(|| self.readiness_failure()),
            ),
            "/" => Answer {
                status: 200,
                content_type: TEXT,
                body: "/metrics\n/healthz\n/readyz\n/sessions\n".to_owned(),
            },
            _ => Answer {
                status: 404,
                content_type: TEXT,
                body: "not found\n".to_owned(),
            },
        }
    }

    fn verdict(&self, trouble: Option<&str>) -> Answer {
        Answer {
            status: if trouble.is_none() { 200 } else { 503 },
            content_type: TEXT,
            body: format!("{}\n", trouble.unwrap_or("ok")),
        }
    }

    /// What is not well, so that only another start could help.
    fn liveness_failure(&self, now: Instant) -> Option<&'static str> {
        (self.health.error_mask(now) != 0 && !self.is_stopping.load(Ordering::Relaxed))
            .then_some("threads do not come round, or a port is not listened on")
    }

    /// Why producers had better go elsewhere, though it is well.
    fn readiness_failure(&self) -> Option<&'static str> {
        if self.is_stopping.load(Ordering::Relaxed) {
            return Some("stopping");
        }
        let (_, totals) = self.registry.totals();
        (totals.paused > 0).then_some("streams wait for space on the disk")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::WhenFull;
    use crate::ingest::reorder::Window;
    use crate::limits::HEALTH_HEARTBEAT_TIMEOUT;
    use crate::registry::Settings;
    use crate::store::layout::Grouping;
    use crate::store::pool::Pool;

    fn status(start: Instant) -> StatusApi {
        let registry = Registry::new(Settings {
            output: "/nowhere".into(),
            grouping: Grouping::ByHost,
            allows_clear: true,
            window: Window::default(),
            reorder_memory: 1 << 20,
            when_full: WhenFull::default(),
            time_zone: jiff::tz::TimeZone::UTC,
            pool: Pool::new(7),
        });
        let port = Port {
            name: "control",
            connections: Box::new(|| 3),
        };
        StatusApi::new(registry, Arc::new(Health::new(start)), vec![port])
    }

    #[test]
    fn one_that_stops_is_well_but_not_ready() {
        let start = Instant::now();
        let api = status(start);
        let status = |path, now| api.answer(path, now).status;
        assert_eq!(status("/healthz", start), 200);
        assert_eq!(status("/readyz", start), 200);
        assert_eq!(status("/healthz", start + HEALTH_HEARTBEAT_TIMEOUT), 503);
        assert_eq!(status("/readyz", start + HEALTH_HEARTBEAT_TIMEOUT), 503);
        api.stopping();
        assert_eq!(status("/healthz", start), 200);
        assert_eq!(api.answer("/readyz", start).body, "stopping\n");
        assert_eq!(status("/no/such/thing", start), 404);
    }

    #[test]
    fn each_number_has_its_type_and_one_line_for_each_of_its_labels() {
        let now = Instant::now();
        let text = status(now).answer("/metrics", now).body;
        assert!(text.ends_with('\n'));
        for line in [
            "# TYPE relayd_packets_total counter",
            "relayd_packets_total 0",
            "relayd_connections{port=\"control\"} 3",
            "relayd_trace_files_limit 7",
            "relayd_write_errors_total{kind=\"full\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            value.parse::<u64>().ok().or_else(|| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        assert_eq!(status(now).answer("/sessions", now).body, "[]\n");
    }
}
