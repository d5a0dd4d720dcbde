//! What has to be done all the time, on a thread that makes no file calls: asks workers for heartbeats,
//! has the registry's rounds made on threads where they may block, and says to `health` who responds.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::worker_pool::WorkerPool;
use crate::health::Health;
use crate::limits::{HEARTBEAT_INTERVAL, MAX_REPLACEMENT_WORKERS, TICK, TICK_TIMEOUT};
use crate::registry::Registry;

/// Monitors until it is dropped.
pub(super) async fn monitor(
    registry: Arc<Registry>,
    health: Arc<Health>,
    producers: WorkerPool,
    viewers: WorkerPool,
) {
    let mut rounds = Rounds::new(registry);
    let mut interval = interval(HEARTBEAT_INTERVAL);
    // Several at once would make workers miss them.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let now = Instant::now();
        let (workers, rounds) = (producers.check(), rounds.check(now));
        if workers && rounds {
            health.producers.record_heartbeat(now);
        }
        if viewers.check() {
            health.viewers.record_heartbeat(now);
        }
    }
}

/// The rounds of [`Registry::tick`], one at a time unless one hangs.
#[derive(Debug)]
struct Rounds {
    registry: Arc<Registry>,
    /// Those that have not ended, and when they began.
    running: Vec<(Instant, JoinHandle<()>)>,
    next: Option<Instant>,
    /// How many hung when that was logged.
    reported: usize,
}

impl Rounds {
    fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            running: Vec::new(),
            next: None,
            reported: 0,
        }
    }

    /// Begins the next round when it is time. Gives whether none hangs.
    fn check(&mut self, now: Instant) -> bool {
        self.running.retain(|(_, round)| !round.is_finished());
        let hangs = |begun: &Instant| now.saturating_duration_since(*begun) >= TICK_TIMEOUT;
        let hung = self
            .running
            .iter()
            .filter(|(begun, _)| hangs(begun))
            .count();
        if hung > self.reported {
            warn!(
                hung,
                "beacons not written, idle files not closed: a file call hangs; what comes after it is done without it"
            );
        }
        self.reported = hung;
        let is_due = self.next.is_none_or(|next| now >= next);
        if is_due && hung == self.running.len() && hung < MAX_REPLACEMENT_WORKERS {
            let registry = Arc::clone(&self.registry);
            let round = tokio::task::spawn_blocking(move || registry.tick(now));
            self.running.push((now, round));
            self.next = Some(now + TICK);
        }
        hung == 0
    }
}
