//! Monitors the workers and runs the registry's periodic tasks, from a thread that makes no file
//! calls: requests heartbeats, runs [`Registry::tick`] on threads that may block, and reports to
//! `health` which side responds.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::worker_pool::WorkerPool;
use crate::health::Health;
use crate::limits::{MAX_REPLACEMENT_WORKERS, TICK, TICK_TIMEOUT};
use crate::registry::Registry;

/// Monitors the workers of both sides and runs the periodic tasks. Never returns.
pub(super) async fn monitor(
    registry: Arc<Registry>,
    health: Arc<Health>,
    producers: WorkerPool,
    viewers: WorkerPool,
) {
    let mut ticks = TickRunner::new(registry);
    let mut interval = interval(TICK);
    // Missed ticks are not made up for: several requests at once would count as missed heartbeats.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let now = Instant::now();
        // Both are called whatever the other returns, because they do the work.
        let has_producers = producers.check_workers();
        let has_ticks = ticks.run(now);
        if has_producers && has_ticks {
            health.producers.record_heartbeat(now);
        }
        if viewers.check_workers() {
            health.viewers.record_heartbeat(now);
        }
    }
}

/// Runs [`Registry::tick`], one at a time unless one hangs.
#[derive(Debug)]
struct TickRunner {
    registry: Arc<Registry>,
    /// Calls that have not returned, and when they began.
    running: Vec<(Instant, JoinHandle<()>)>,
    /// Number of hung calls that has been logged.
    reported: usize,
}

impl TickRunner {
    fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            running: Vec::new(),
            reported: 0,
        }
    }

    /// Starts the next call if it has anything to do, unless one that does not hang is running.
    /// Returns whether no call hangs.
    fn run(&mut self, now: Instant) -> bool {
        self.running.retain(|(_, tick)| !tick.is_finished());
        let hangs = |begun: &Instant| now.saturating_duration_since(*begun) >= TICK_TIMEOUT;
        let hung = self.running.iter().filter(|(begun, _)| hangs(begun));
        let hung = hung.count();
        if hung > self.reported {
            warn!(
                hung,
                "beacons not written, idle files not closed: a file call hangs; the next round starts without it"
            );
        }
        self.reported = hung;
        let may_start = hung == self.running.len() && hung < MAX_REPLACEMENT_WORKERS;
        if may_start && self.registry.has_periodic_work(now) {
            let registry = Arc::clone(&self.registry);
            let tick = tokio::task::spawn_blocking(move || registry.tick(now));
            self.running.push((now, tick));
        }
        hung == 0
    }
}
