//! Slows down viewers that read much while producers wait for a processor.
//!
//! Each viewer reads a copy of everything, as fast as it can. Where the processors do not suffice for both, producers come
//! first: a tracer that waits for the relay loses events, and a viewer only sees them later. The evidence is a thread of
//! producers that is busy and often runnable without running, by `/proc/PID/task/TID/schedstat`. Viewers look at it
//! themselves: without viewers it costs nothing.
//!
//! A viewer pays with time for what it has been sent. One that reads less than its share has always paid: it never waits,
//! so that the viewers of small sessions are not late because of large ones.

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
    BUSY_PERCENT, MAX_VIEWER_PACE, MIN_VIEWER_PACE, PACING_EXPIRY, PACING_INTERVAL, VIEWER_BURST,
    WAITING_PERCENT,
};

/// The pace of all viewers.
#[derive(Debug)]
pub(super) struct ViewerPacing {
    created: Instant,
    /// Nanoseconds that a viewer pays for each KiB. 0: producers do not wait.
    pace: AtomicU64,
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

impl Default for ViewerPacing {
    fn default() -> Self {
        let created = Instant::now();
        Self {
            created,
            pace: AtomicU64::new(0),
            next_look: AtomicU64::new(0),
            threads: Mutex::new(ProducerThreads {
                threads: Vec::new(),
                looked: created,
            }),
        }
    }
}

impl ViewerPacing {
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

    /// The pace now. One of the viewers that ask in an interval looks at the threads.
    fn pace(&self, now: Instant) -> u64 {
        let elapsed = nanos(now - self.created);
        let next = self.next_look.load(Ordering::Relaxed);
        let pace = self.pace.load(Ordering::Relaxed);
        if elapsed < next {
            return pace;
        }
        let after = elapsed + nanos(PACING_INTERVAL);
        let claimed =
            self.next_look
                .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err() {
            return pace;
        }
        // Nobody has looked for a while: what was then says nothing about now.
        let pace = match elapsed - next > nanos(PACING_EXPIRY) {
            true => 0,
            false => pace,
        };
        let pace = next_pace(pace, self.threads.lock().has_waiting(now));
        self.pace.store(pace, Ordering::Relaxed);
        pace
    }
}

/// The pace after one more look at the threads.
fn next_pace(pace: u64, is_waiting: bool) -> u64 {
    if is_waiting {
        return (pace + pace / 2).clamp(MIN_VIEWER_PACE, MAX_VIEWER_PACE);
    }
    match pace - pace / 8 {
        less if less < MIN_VIEWER_PACE => 0,
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

/// What the connection of one viewer has paid.
#[derive(Debug)]
pub(super) struct ViewerPace {
    pacing: Arc<ViewerPacing>,
    /// Until then it has been sent its share.
    paid_until: Instant,
}

impl ViewerPace {
    pub(super) fn new(pacing: Arc<ViewerPacing>) -> Self {
        Self {
            pacing,
            paid_until: Instant::now(),
        }
    }

    /// Waits until the viewer has paid for these bytes: not at all unless producers wait and it reads much.
    pub(super) async fn pay(&mut self, bytes: usize) {
        let now = Instant::now();
        let pace = self.pacing.pace(now);
        if pace == 0 {
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let cost = Duration::from_nanos(bytes.saturating_mul(pace) / 1024);
        let earliest = now.checked_sub(VIEWER_BURST).unwrap_or(now);
        self.paid_until = self.paid_until.max(earliest) + cost;
        if self.paid_until > now {
            sleep_until(self.paid_until).await;
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
        let mut pace = next_pace(0, true);
        assert_eq!(pace, MIN_VIEWER_PACE);
        for _ in 0..100 {
            pace = next_pace(pace, true);
        }
        assert_eq!(pace, MAX_VIEWER_PACE);
        let steps = (0..1000).take_while(|_| {
            pace = next_pace(pace, false);
            pace > 0
        });
        // Less than a second.
        assert!(steps.count() < 100);
        assert_eq!(next_pace(0, false), 0);
    }

    #[test]
    fn schedstat_of_this_thread_is_read_and_each_thread_is_added_once() {
        assert_eq!(Schedstat::parse("12 34 5\n"), Some(percent(12, 34)));
        assert_eq!(Schedstat::parse("12"), None);
        let pacing = ViewerPacing::default();
        pacing.add_this_thread();
        pacing.add_this_thread();
        let mut threads = pacing.threads.lock();
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
            scope.spawn(|| pacing.add_this_thread());
        });
        let mut threads = pacing.threads.lock();
        assert_eq!(threads.threads.len(), 2);
        // The other one has ended, or is about to.
        while threads.threads.len() > 1 {
            std::thread::yield_now();
            threads.has_waiting(Instant::now());
        }
    }

    #[tokio::test]
    async fn viewer_waits_for_what_it_reads_beyond_its_share() {
        let pacing = Arc::new(ViewerPacing::default());
        // Nobody looks: the pace stays.
        pacing.next_look.store(u64::MAX, Ordering::Relaxed);
        let mut viewer = ViewerPace::new(Arc::clone(&pacing));
        let begun = Instant::now();
        viewer.pay(1 << 30).await;
        assert!(viewer.paid_until <= Instant::now());
        pacing.pace.store(MAX_VIEWER_PACE, Ordering::Relaxed);
        viewer.pay(64 << 10).await;
        let share = Duration::from_nanos(64 * MAX_VIEWER_PACE);
        assert!(begun.elapsed() + VIEWER_BURST >= share);
    }
}
