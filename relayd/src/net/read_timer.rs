//! The timer of a data connection for incomplete packets, which is not set again for each of them.
//!
//! A timer that is set when a packet is incomplete, and cancelled when the rest has come, is each time the next of its worker
//! to expire. The event loop is woken up for that: a write to an eventfd(2) and a wait that returns at once. This timer
//! stays set, and looks at the deadline when it expires. It costs a connection whose packets are always complete nothing.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for one wait at a time, each with its own deadline.
#[derive(Debug, Default)]
pub(super) struct ReadTimer {
    /// None before the first wait.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl ReadTimer {
    /// Waits until `deadline`. Cancel-safe.
    pub(super) async fn wait_until(&mut self, deadline: Instant) {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            sleep.as_mut().await;
            // It was set for an earlier wait.
            if Instant::now() >= deadline {
                return;
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_at_its_own_deadline() {
        let mut timer = ReadTimer::default();
        let begun = Instant::now();
        let second = Duration::from_secs(1);
        // Cancelled, as by the rest of a packet.
        let cancelled = timeout(second, timer.wait_until(begun + 10 * second)).await;
        assert!(cancelled.is_err());
        // A later deadline, past the time for which the timer is set.
        timer.wait_until(begun + 15 * second).await;
        assert_eq!(begun.elapsed().as_secs(), 15);
        let cancelled = timeout(second, timer.wait_until(begun + 60 * second)).await;
        assert!(cancelled.is_err());
        // An earlier one, as when the relay stops.
        timer.wait_until(begun + 20 * second).await;
        assert_eq!(begun.elapsed().as_secs(), 20);
        // One that is over.
        timer.wait_until(begun).await;
        assert_eq!(begun.elapsed().as_secs(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_cancelled_does_not_set_the_timer_again() {
        let mut timer = ReadTimer::default();
        let begun = Instant::now();
        for number in 0..10 {
            let deadline = Instant::now() + Duration::from_secs(30);
            let wait = timeout(Duration::from_millis(1), timer.wait_until(deadline));
            assert!(wait.await.is_err(), "{number}");
        }
        let sleep = timer.sleep.unwrap();
        assert_eq!(sleep.deadline(), begun + Duration::from_secs(30));
    }
}
