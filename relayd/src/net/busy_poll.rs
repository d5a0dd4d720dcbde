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
use tokio::net::TcpStream;

use crate::limits::{SPIN_AFTER_FAST_WAITS, SPIN_COOLDOWN, SPIN_DURATION, SPIN_THRESHOLD};

/// Those of all connections: one for two processors, since whoever it talks to may need the other.
pub(super) static SPIN_SLOTS: LazyLock<SpinSlots> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    SpinSlots::new(processors / 2)
});

/// How many connections are looked out for without sleep. Each keeps a processor busy.
#[derive(Debug)]
pub(super) struct SpinSlots {
    spinning: AtomicUsize,
    max: usize,
}

/// That of one connection.
#[derive(Debug)]
pub(super) struct BusyPoll {
    slots: &'static SpinSlots,
    /// Times that the peer has asked at once, one after the other.
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

    /// Waits until there is something to read. May be dropped at any time.
    pub(super) async fn readable(&mut self, socket: &TcpStream) -> io::Result<()> {
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

    /// Somebody else needs the processor.
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

/// Asks the system again and again what has come. None: nothing until then.
async fn spin(socket: &TcpStream, until: Instant) -> Option<io::Result<()>> {
    while Instant::now() < until {
        let now = poll_fn(|context| match socket.poll_read_ready(context) {
            Poll::Ready(ready) => Poll::Ready(Some(ready)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(ready) = now.await {
            return Some(ready);
        }
        // Others have their turn, and the system is asked.
        tokio::task::yield_now().await;
    }
    None
}

/// How often a thread of this process had to leave its processor to others.
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
    fn only_so_many_are_kept_and_only_for_those_who_ask_at_once_all_the_time() {
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
            "there is one already"
        );
        assert!(!ask(&mut one, 1, 2 * SPIN_THRESHOLD));
        assert!(ask(&mut other, 1, SPIN_THRESHOLD));
        drop(other);
        assert!(ask(&mut one, SPIN_AFTER_FAST_WAITS, SPIN_THRESHOLD));
    }
}
