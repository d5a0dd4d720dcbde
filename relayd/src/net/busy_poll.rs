//! Busy-polling: a connection whose peer answers within [`SPIN_THRESHOLD`] again and again polls its socket
//! for [`SPIN_DURATION`] before its thread sleeps, because to sleep and be woken takes longer than the peer does.
//!
//! It engages after [`SPIN_AFTER_FAST_WAITS`] fast waits in a row, on one connection for two processors at
//! most, and stops for [`SPIN_COOLDOWN`] further waits when another thread needed the processor (involuntary
//! context switches). An idle connection costs nothing: the first slow wait ends it.

use std::future::poll_fn;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use transport::socket::Socket;

use crate::limits::{SPIN_AFTER_FAST_WAITS, SPIN_COOLDOWN, SPIN_DURATION, SPIN_THRESHOLD};

/// The slots of the whole process: one for two processors, because the peer may run on this host and need the
/// other.
pub(super) static SPIN_SLOTS: LazyLock<SpinSlots> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    SpinSlots::new(processors / 2)
});

/// Limits the connections that busy-poll at the same time. Each occupies a processor.
#[derive(Debug)]
pub(super) struct SpinSlots {
    spinning: AtomicUsize,
    max: usize,
}

/// Busy-poll state of one connection.
#[derive(Debug)]
pub(super) struct BusyPoll {
    slots: &'static SpinSlots,
    /// Consecutive waits that took no longer than [`SPIN_THRESHOLD`]. Negative during the cooldown.
    fast_waits: i32,
    is_spinning: bool,
}

impl SpinSlots {
    const fn new(max: usize) -> Self {
        let spinning = AtomicUsize::new(0);
        Self { spinning, max }
    }

    fn try_acquire(&self) -> bool {
        let one_more = |spinning: usize| (spinning < self.max).then_some(spinning + 1);
        let taken = self
            .spinning
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok()
    }
}

impl BusyPoll {
    pub(super) fn new(slots: &'static SpinSlots) -> Self {
        Self {
            slots,
            fast_waits: 0,
            is_spinning: false,
        }
    }

    /// Waits until the socket is readable. Cancel-safe.
    pub(super) async fn readable(&mut self, socket: &Socket) -> io::Result<()> {
        let begun = Instant::now();
        if self.is_spinning {
            let before = involuntary_switches();
            let ready = spin(socket, begun + SPIN_DURATION).await;
            if involuntary_switches() != before {
                self.cool_down();
            } else if ready.is_none() {
                self.stop_spinning();
            }
            if let Some(ready) = ready {
                return ready;
            }
        }
        socket.readable().await?;
        self.record_wait(begun.elapsed());
        Ok(())
    }

    fn record_wait(&mut self, waited: Duration) {
        if waited > SPIN_THRESHOLD {
            return self.stop_spinning();
        }
        self.fast_waits = self.fast_waits.saturating_add(1);
        if self.fast_waits >= SPIN_AFTER_FAST_WAITS && !self.is_spinning {
            self.is_spinning = self.slots.try_acquire();
        }
    }

    /// Stops spinning for [`SPIN_COOLDOWN`] further fast waits: another thread needs the processor.
    fn cool_down(&mut self) {
        self.stop_spinning();
        self.fast_waits = -SPIN_COOLDOWN;
    }

    fn stop_spinning(&mut self) {
        self.fast_waits = 0;
        if std::mem::take(&mut self.is_spinning) {
            self.slots.spinning.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Polls the socket until it is readable. Returns None when the time is over.
async fn spin(socket: &Socket, until: Instant) -> Option<io::Result<()>> {
    while Instant::now() < until {
        let now = poll_fn(|context| Poll::Ready(socket.poll_read_ready(context)));
        if let Poll::Ready(ready) = now.await {
            return Some(ready);
        }
        // Runs other tasks of this worker, and polls the system for events.
        tokio::task::yield_now().await;
    }
    None
}

/// Involuntary context switches of all threads of this process so far.
fn involuntary_switches() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.involuntary_context_switches())
}

impl Drop for BusyPoll {
    fn drop(&mut self) {
        self.stop_spinning();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_poll_engages_after_fast_waits_and_only_while_a_slot_is_free() {
        static ONE: SpinSlots = SpinSlots::new(1);
        let ask = |busy_poll: &mut BusyPoll, times, waited| {
            (0..times).for_each(|_| busy_poll.record_wait(waited));
            busy_poll.is_spinning
        };
        let [mut one, mut other] = [(); 2].map(|()| BusyPoll::new(&ONE));
        assert!(!ask(&mut one, SPIN_AFTER_FAST_WAITS - 1, SPIN_THRESHOLD));
        assert!(!ask(&mut one, 1, 2 * SPIN_THRESHOLD));
        assert!(ask(&mut one, SPIN_AFTER_FAST_WAITS, SPIN_THRESHOLD));
        assert!(
            !ask(&mut other, SPIN_AFTER_FAST_WAITS, SPIN_THRESHOLD),
            "the only slot is taken"
        );
        assert!(!ask(&mut one, 1, 2 * SPIN_THRESHOLD));
        assert!(ask(&mut other, 1, SPIN_THRESHOLD));
        drop(other);
        assert!(ask(&mut one, SPIN_AFTER_FAST_WAITS, SPIN_THRESHOLD));
    }
}
