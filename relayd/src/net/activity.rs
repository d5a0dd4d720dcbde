//! The number of data connections of a worker that receive packets at the moment: with one, latency
//! counts; with several, the number of wake-ups does. And whether a connection was silent before.
//!
//! It is always on, and costs two comparisons for each read. An idle connection costs nothing.

use std::cell::Cell;
use std::time::Instant;

use crate::limits::ACTIVITY_WINDOW;

thread_local! {
    /// The windows of the worker that runs on this thread.
    static WINDOWS: Cell<Option<Windows>> = const { Cell::new(None) };
}

/// Activity of one data connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Number of the window in which the connection was last counted.
    counted_in: Option<u64>,
    /// Time at which something was last received, or the socket was found empty.
    last: Option<Instant>,
}

/// Two consecutive windows of a worker, each [`ACTIVITY_WINDOW`] long.
#[derive(Debug, Clone, Copy)]
struct Windows {
    /// The beginning of window 0.
    start: Instant,
    /// Number of the current window.
    number: u64,
    /// Connections that were active in the current window so far.
    current: usize,
    /// Connections that were active in the window before.
    previous: usize,
}

impl Activity {
    /// Records that the connection receives something. Returns the number of active connections of
    /// this worker, this one included.
    pub(super) fn record(&mut self, now: Instant) -> usize {
        self.last = Some(now);
        let windows = WINDOWS.get().unwrap_or_else(|| Windows::new(now));
        let windows = windows.with(&mut self.counted_in, now);
        WINDOWS.set(Some(windows));
        windows.active()
    }

    /// Whether the connection has received nothing for [`ACTIVITY_WINDOW`].
    pub(super) fn is_after_silence(&self, now: Instant) -> bool {
        let is_long = |last| now.saturating_duration_since(last) >= ACTIVITY_WINDOW;
        self.last.is_none_or(is_long)
    }
}

impl Windows {
    const fn new(start: Instant) -> Self {
        Self {
            start,
            number: 0,
            current: 0,
            previous: 0,
        }
    }

    /// Counts a connection, which was last counted in that window.
    fn with(mut self, counted_in: &mut Option<u64>, now: Instant) -> Self {
        let elapsed = now.saturating_duration_since(self.start).as_nanos();
        let elapsed = elapsed / ACTIVITY_WINDOW.as_nanos();
        let number = u64::try_from(elapsed).unwrap_or(u64::MAX);
        if number != self.number {
            // With a window in between, nothing was active in the one before.
            let is_next = number == self.number + 1;
            self.previous = if is_next { self.current } else { 0 };
            self.current = 0;
            self.number = number;
        }
        if *counted_in != Some(number) {
            *counted_in = Some(number);
            self.current += 1;
        }
        self
    }

    fn active(&self) -> usize {
        // At the beginning of a window, few connections have been counted in it.
        self.current.max(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_active_for_a_window_after_they_last_received_something() {
        let start = Instant::now();
        let [mut one, mut other] = [(); 2].map(|()| Activity::default());
        // On this thread, which runs no worker.
        assert_eq!(one.record(start), 1);
        assert_eq!(one.record(start), 1);
        assert_eq!(other.record(start), 2);
        assert_eq!(one.record(start + ACTIVITY_WINDOW), 2);
        assert_eq!(one.record(start + 2 * ACTIVITY_WINDOW), 1);
    }

    #[test]
    fn a_connection_is_silent_until_it_receives_something_and_after_a_window_without() {
        let start = Instant::now();
        let mut activity = Activity::default();
        assert!(activity.is_after_silence(start));
        activity.record(start);
        assert!(!activity.is_after_silence(start + ACTIVITY_WINDOW / 2));
        assert!(activity.is_after_silence(start + ACTIVITY_WINDOW));
    }
}
