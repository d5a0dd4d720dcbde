//! Staying awake: a peer that asks again as soon as it is answered is looked out for a moment longer,
//! since to fall asleep and be woken takes longer than it does.

use std::future::poll_fn;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use tokio::net::TcpStream;

use crate::limits::{ASKS_AT_ONCE, AWAKE, QUICK, RESTED};

/// Those of all connections: one for two processors, since whoever it talks to may need the other.
pub(super) static VIGILS: LazyLock<Vigils> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Vigils::new(processors / 2)
});

/// How many connections are looked out for without sleep. Each keeps a processor busy.
#[derive(Debug)]
pub(super) struct Vigils {
    kept: AtomicUsize,
    most: usize,
}

/// That of one connection.
#[derive(Debug)]
pub(super) struct Vigil {
    vigils: &'static Vigils,
    /// Times that the peer has asked at once, one after the other.
    in_a_row: i32,
    is_kept: bool,
}

impl Vigils {
    const fn new(most: usize) -> Self {
        let kept = AtomicUsize::new(0);
        Self { kept, most }
    }

    fn take(&self) -> bool {
        let one_more = |kept: usize| (kept < self.most).then_some(kept + 1);
        let taken = self
            .kept
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok()
    }
}

impl Vigil {
    pub(super) fn new(vigils: &'static Vigils) -> Self {
        Self {
            vigils,
            in_a_row: 0,
            is_kept: false,
        }
    }

    /// Waits until there is something to read. May be dropped at any time.
    pub(super) async fn readable(&mut self, socket: &TcpStream) -> io::Result<()> {
        let begun = Instant::now();
        if self.is_kept {
            let before = displaced();
            let ready = look_out(socket, begun + AWAKE).await;
            if displaced() != before {
                self.rest();
            } else if ready.is_none() {
                self.give_up();
            }
            if let Some(ready) = ready {
                return ready;
            }
        }
        socket.readable().await?;
        self.note(begun.elapsed());
        Ok(())
    }

    fn note(&mut self, waited: Duration) {
        if waited > QUICK {
            return self.give_up();
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row >= ASKS_AT_ONCE && !self.is_kept {
            self.is_kept = self.vigils.take();
        }
    }

    /// Somebody else needs the processor.
    fn rest(&mut self) {
        self.give_up();
        self.in_a_row = -RESTED;
    }

    fn give_up(&mut self) {
        self.in_a_row = 0;
        if std::mem::take(&mut self.is_kept) {
            self.vigils.kept.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Asks the system again and again what has come. None: nothing until then.
async fn look_out(socket: &TcpStream, until: Instant) -> Option<io::Result<()>> {
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
fn displaced() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.involuntary_context_switches())
}

impl Drop for Vigil {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_are_kept_and_only_for_those_who_ask_at_once_all_the_time() {
        static ONE: Vigils = Vigils::new(1);
        let ask = |vigil: &mut Vigil, times, waited| {
            (0..times).for_each(|_| vigil.note(waited));
            vigil.is_kept
        };
        let [mut one, mut other] = [(); 2].map(|()| Vigil::new(&ONE));
        assert!(!ask(&mut one, ASKS_AT_ONCE - 1, QUICK));
        assert!(!ask(&mut one, 1, 2 * QUICK));
        assert!(ask(&mut one, ASKS_AT_ONCE, QUICK));
        assert!(
            !ask(&mut other, ASKS_AT_ONCE, QUICK),
            "there is one already"
        );
        assert!(!ask(&mut one, 1, 2 * QUICK));
        assert!(ask(&mut other, 1, QUICK));
        drop(other);
        assert!(ask(&mut one, ASKS_AT_ONCE, QUICK));
    }
}
