//! The turns of the main thread: it handles what sources report, and then shows what can be shown.
//! What is new must not keep it from showing what it knows.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

use crate::attach::SourceEvent;

/// Time after which what can be shown is shown, before further events of sources are handled.
/// Sources may be faster than they are handled: metadata takes long to parse.
const MAX_TURN: Duration = Duration::from_millis(20);

/// A turn in which events of sources are handled.
pub struct Turn(Instant);

impl Turn {
    /// Begins a turn, which is over after a short time.
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// The next event that has arrived. `None` if there is none, or if the turn is over.
    pub fn next_event(&self, events: &mut Receiver<SourceEvent>) -> Option<SourceEvent> {
        if self.0.elapsed() >= MAX_TURN {
            return None;
        }
        events.try_recv().ok()
    }
}

/// Time for which events wait for newcomers, streams that came after others had begun and of whose
/// times nothing is known yet. A new session has such streams until their first packets or beacons,
/// which come once per live timer: mostly a second.
const MAX_NEWCOMER_HOLD: Duration = Duration::from_secs(3);

/// How long events wait for newcomers. Where they come all the time, events wait half of the time
/// at most.
#[derive(Debug, Default)]
pub struct NewcomerHold {
    /// The time at which the events that wait now are shown. Absent if none waits.
    until: Option<Instant>,
    /// The time until which no event waits, because others have waited in vain.
    free_until: Option<Instant>,
}

impl NewcomerHold {
    /// Whether events shall wait no longer for newcomers. `is_held` says whether any waits for one.
    pub fn is_over(&mut self, is_held: bool, now: Instant) -> bool {
        if !is_held {
            self.until = None;
            return false;
        }
        // Newcomers that come all the time get only every other period.
        if self.free_until.is_some_and(|free_until| now < free_until) {
            return true;
        }
        let until = *self.until.get_or_insert(now + MAX_NEWCOMER_HOLD);
        if now < until {
            return false;
        }
        (self.until, self.free_until) = (None, Some(now + MAX_NEWCOMER_HOLD));
        true
    }

    /// Returns when to ask again, if no event of a source comes before.
    pub fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_wait_half_of_the_time_at_most_for_newcomers_that_come_all_the_time() {
        let begun = Instant::now();
        let mut hold = NewcomerHold::default();
        let mut is_over = |seconds, is_held| {
            let over = hold.is_over(is_held, begun + Duration::from_secs(seconds));
            (over, hold.deadline().map(|until| (until - begun).as_secs()))
        };
        assert_eq!(is_over(0, false), (false, None));
        assert_eq!(is_over(10, true), (false, Some(13)));
        // The stream has had a packet.
        assert_eq!(is_over(12, false), (false, None));
        let held: Vec<_> = (20..32).filter(|at| !is_over(*at, true).0).collect();
        assert_eq!(held, [20, 21, 22, 26, 27, 28]);
        assert_eq!(is_over(60, true), (false, Some(63)));
    }
}
