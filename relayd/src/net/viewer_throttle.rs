//! Slows down viewers that read much while producers wait for a processor.
//!
//! Each viewer reads a copy of everything, as fast as it can. Where the processors do not suffice for both, producers come
//! first: a tracer that waits for the relay loses events, and a viewer only sees them later. The evidence is a thread of
//! producers that is busy and often runnable without running, by `/proc/PID/task/TID/schedstat`. Viewers look at it
//! themselves: without viewers it costs nothing.
//!
//! Each KiB that a viewer is sent takes it some time. One that reads less than that allows never waits, so that the viewers
//! of small sessions are not late because of large ones.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use rustix::thread::gettid;
use tokio::time::{Instant, sleep_until};

use crate::limits::{
    BUSY_PERCENT, MAX_VIEWER_DELAY, MIN_VIEWER_DELAY, THROTTLE_EXPIRY, THROTTLE_INTERVAL,
    VIEWER_BURST, WAITING_PERCENT,
};

/// How much viewers are slowed down, the same for all.
#[derive(Debug)]
pub(super) struct ViewerThrottle {
    created: Instant,
    /// Time that each KiB takes a viewer, in nanoseconds. 0: producers do not wait.
    delay: AtomicU64,
    /// When the threads are looked at again, in nanoseconds since `created`.
    next_look: AtomicU64,
    threads: Mutex<ProducerThreads>,
}

/// The threads that serve producers.
#[derive(Debug)]
struct ProducerThreads {
    threads: Vec<ProducerThread>,
    looked: Instant,
}

#[derive(Debug)]
struct ProducerThread {
    id: Pid,
    used: Schedstat,
}

/// What a thread has used so far, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Schedstat {
    ran: u64,
    /// It was runnable, and another ran.
    waited: u64,
}

impl Default for ViewerThrottle {
    fn default() -> Self {
        let created = Instant::now();
        Self {
            created,
            delay: AtomicU64::new(0),
            next_look: AtomicU64::new(0),
            threads: Mutex::new(ProducerThreads {
                threads: Vec::new(),
                looked: created,
            }),
        }
    }
}

impl ViewerThrottle {
    /// The calling thread serves a producer. Where the system has no `schedstat`, viewers are never slowed down.
    pub(super) fn add_this_thread(&self) {
        let id = gettid();
        let mut threads = self.threads.lock();
        if threads.threads.iter().all(|known| known.id != id) {
            threads.threads.push(ProducerThread {
                id,
                used: Schedstat::default(),
            });
        }
    }

    /// The time for each KiB, in nanoseconds. One of the viewers that ask in an interval looks at the threads.
    fn delay(&self, now: Instant) -> u64 {
        let elapsed = nanos(now - self.created);
        let next = self.next_look.load(Ordering::Relaxed);
        let delay = self.delay.load(Ordering::Relaxed);
        if elapsed < next {
            return delay;
        }
        let after = elapsed + nanos(THROTTLE_INTERVAL);
        let claimed =
            self.next_look
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            return delay;
        }
        // Nobody has looked for a while: what was then says nothing about now.
        let delay = match elapsed - next > nanos(THROTTLE_EXPIRY) {
            true => 0,
            false => delay,
        };
        let delay = next_delay(delay, self.threads.lock().has_waiting(now));
        self.delay.store(delay, Ordering::Relaxed);
        delay
    }
}

/// The time for each KiB after one more look at the threads, in nanoseconds: it doubles while producers wait, and falls more
/// slowly.
fn next_delay(delay: u64, is_waiting: bool) -> u64 {
    if is_waiting {
        return (delay * 2).clamp(MIN_VIEWER_DELAY, MAX_VIEWER_DELAY);
    }
    match delay - delay / 8 {
        less if less < MIN_VIEWER_DELAY => 0,
        less => less,
    }
}

impl ProducerThreads {
    /// Whether a thread was busy, and waited, since the last look.
    fn has_waiting(&mut self, now: Instant) -> bool {
        let elapsed = nanos(now - std::mem::replace(&mut self.looked, now));
        let mut has_waiting = false;
        self.threads.retain_mut(|thread| {
            let used = match Schedstat::read(thread.id) {
                Ok(used) => used,
                // A thread that has ended has no file any more. Other errors, as too many open files, may pass.
                Err(error) => return error.kind() != io::ErrorKind::NotFound,
            };
            let before = std::mem::replace(&mut thread.used, used);
            has_waiting |= is_waiting(before, used, elapsed);
            true
        });
        has_waiting
    }
}

/// Whether a thread was busy, and waited, in this number of nanoseconds.
fn is_waiting(before: Schedstat, now: Schedstat, elapsed: u64) -> bool {
    let percent =
        |before: u64, now: u64| now.saturating_sub(before).saturating_mul(100) / elapsed.max(1);
    percent(before.ran, now.ran) >= BUSY_PERCENT
        && percent(before.waited, now.waited) >= WAITING_PERCENT
}

impl Schedstat {
    /// Reads what a thread of this process has used. The file does not stay open: relays have many others.
    fn read(thread: Pid) -> io::Result<Self> {
        let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
        let text = fs::read_to_string(path)?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Parses time on a processor, time runnable and number of time slices.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Self { ran, waited })
    }
}

/// The limit of the rate of one connection of a viewer.
#[derive(Debug)]
pub(super) struct ConnectionThrottle {
    throttle: Arc<ViewerThrottle>,
    /// When the bytes that were sent have taken their time.
    next_at: Instant,
}

impl ConnectionThrottle {
    pub(super) fn new(throttle: Arc<ViewerThrottle>) -> Self {
        Self {
            throttle,
            next_at: Instant::now(),
        }
    }

    /// Waits for as long as these bytes take: not at all unless producers wait and the viewer reads much.
    pub(super) async fn throttle(&mut self, bytes: usize) {
        let now = Instant::now();
        let delay = self.throttle.delay(now);
        if delay == 0 {
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let cost = Duration::from_nanos(bytes.saturating_mul(delay) / 1024);
        let earliest = now.checked_sub(VIEWER_BURST).unwrap_or(now);
        self.next_at = self.next_at.max(earliest) + cost;
        if self.next_at > now {
            sleep_until(self.next_at).await;
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(ran: u64, waited: u64) -> Schedstat {
        Schedstat { ran, waited }
    }

    #[test]
    fn only_a_thread_that_is_busy_and_waits_slows_viewers_down() {
        let before = percent(1000, 1000);
        let of = |ran, waited| is_waiting(before, percent(1000 + ran, 1000 + waited), 100);
        assert!(of(BUSY_PERCENT, WAITING_PERCENT));
        assert!(!of(BUSY_PERCENT - 1, 50));
        assert!(!of(90, WAITING_PERCENT - 1));
        assert!(!is_waiting(before, before, 0));
    }

    #[test]
    fn pace_rises_while_producers_wait_and_ends_when_they_do_not() {
        let mut delay = next_delay(0, true);
        assert_eq!(delay, MIN_VIEWER_DELAY);
        for _ in 0..100 {
            delay = next_delay(delay, true);
        }
        assert_eq!(delay, MAX_VIEWER_DELAY);
        let steps = (0..1000).take_while(|_| {
            delay = next_delay(delay, false);
            delay > 0
        });
        // Less than a second.
        assert!(steps.count() < 100);
        assert_eq!(next_delay(0, false), 0);
    }

    #[test]
    fn schedstat_of_this_thread_is_read_and_each_thread_is_added_once() {
        assert_eq!(Schedstat::parse("12 34 5\n"), Some(percent(12, 34)));
        assert_eq!(Schedstat::parse("12"), None);
        let throttle = ViewerThrottle::default();
        throttle.add_this_thread();
        throttle.add_this_thread();
        let mut threads = throttle.threads.lock();
        assert_eq!(threads.threads.len(), 1);
        let ran = |threads: &ProducerThreads| threads.threads.first().map(|thread| thread.used.ran);
        // The system counts when another thread may run.
        while ran(&threads) == Some(0) {
            std::thread::yield_now();
            threads.has_waiting(Instant::now());
        }
        assert!(ran(&threads) > Some(0));
        drop(threads);
        std::thread::scope(|scope| {
            scope.spawn(|| throttle.add_this_thread());
        });
        let mut threads = throttle.threads.lock();
        assert_eq!(threads.threads.len(), 2);
        // The other one has ended, or is about to.
        while threads.threads.len() > 1 {
            std::thread::yield_now();
            threads.has_waiting(Instant::now());
        }
    }

    #[tokio::test]
    async fn viewer_waits_for_what_it_reads_beyond_its_share() {
        let throttle = Arc::new(ViewerThrottle::default());
        // Nobody looks: the delay stays.
        throttle.next_look.store(u64::MAX, Ordering::Relaxed);
        let mut viewer = ConnectionThrottle::new(Arc::clone(&throttle));
        let begun = Instant::now();
        viewer.throttle(1 << 30).await;
        assert!(viewer.next_at <= Instant::now());
        throttle.delay.store(MAX_VIEWER_DELAY, Ordering::Relaxed);
        viewer.throttle(64 << 10).await;
        let share = Duration::from_nanos(64 * MAX_VIEWER_DELAY);
        assert!(begun.elapsed() + VIEWER_BURST >= share);
    }
}
