//! The viewers of a session: those that are attached, and those that have lost their connection and
//! are expected back.

use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::VIEWER_GRACE_PERIOD;

/// The viewers of one session.
///
/// A viewer has no identity that outlives its connection: each viewer that attaches counts as one
/// of those that were lost.
#[derive(Debug, Default)]
pub struct SessionViewers(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    attached: u32,
    /// Viewers whose connection was lost, and that have not attached again.
    lost: u32,
    /// End of the grace period of the lost viewers.
    lost_until: Option<Instant>,
    /// The network between the relay and the traced host has failed: until then, attached viewers
    /// may have lost their connections too, although the relay has not noticed it.
    doubted_until: Option<Instant>,
    /// The session is that of a relay before this one: until then its viewers are expected, however
    /// many there were.
    restored_until: Option<Instant>,
}

impl SessionViewers {
    /// Number of attached viewers.
    #[must_use]
    pub fn attached(&self) -> u32 {
        self.0.lock().attached
    }

    /// Adds a viewer that attaches.
    pub fn attach(&self) {
        let mut counts = self.0.lock();
        counts.attached += 1;
        counts.lost = counts.lost.saturating_sub(1);
    }

    /// Removes an attached viewer that has detached, or has read everything.
    pub fn detach(&self) {
        self.0.lock().attached -= 1;
    }

    /// Removes an attached viewer whose connection has ended before that.
    pub fn lose(&self, now: Instant) {
        let mut counts = self.0.lock();
        counts.attached -= 1;
        counts.lost = counts.lost_at(now).saturating_add(1);
        counts.lost_until = Some(now + VIEWER_GRACE_PERIOD);
    }

    /// Doubts the connections of the attached viewers, because the producer had to resume the
    /// session. Those that are lost could perhaps not come back before, and have the whole grace
    /// period once more.
    pub(super) fn doubt(&self, now: Instant) {
        let until = Some(now + VIEWER_GRACE_PERIOD);
        let mut counts = self.0.lock();
        counts.doubted_until = until;
        counts.lost_until = until;
        // Only prolonged: viewers of an earlier relay are not expected in a session of this one.
        counts.restored_until = counts.restored_until.and(until);
    }

    /// Expects the viewers that the session had at a relay before this one.
    pub(super) fn expect_restored(&self, now: Instant) {
        self.0.lock().restored_until = Some(now + VIEWER_GRACE_PERIOD);
    }

    /// Whether a viewer is expected back, for which the session stays listed when it has ended.
    #[must_use]
    pub fn are_expected(&self, now: Instant) -> bool {
        let counts = self.0.lock();
        counts.lost_at(now) > 0
            || counts.attached > 0 && is_before(now, counts.doubted_until)
            || is_before(now, counts.restored_until)
    }

    /// Whether a viewer is attached or expected back.
    pub(super) fn are_any(&self, now: Instant) -> bool {
        self.attached() > 0 || self.are_expected(now)
    }
}

impl Counts {
    fn lost_at(&self, now: Instant) -> u32 {
        if is_before(now, self.lost_until) {
            self.lost
        } else {
            0
        }
    }
}

fn is_before(now: Instant, until: Option<Instant>) -> bool {
    until.is_some_and(|until| now < until)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_viewer_is_expected_until_it_attaches_again() {
        let (viewers, now) = (SessionViewers::default(), Instant::now());
        viewers.attach();
        viewers.attach();
        assert!(!viewers.are_expected(now) && viewers.are_any(now));
        viewers.lose(now);
        viewers.lose(now);
        viewers.attach();
        assert!(viewers.are_expected(now), "one of two is back");
        viewers.attach();
        assert!(!viewers.are_expected(now));
        viewers.detach();
        viewers.detach();
        assert!(!viewers.are_any(now));
    }

    #[test]
    fn a_lost_viewer_is_expected_for_the_grace_period_only() {
        let (viewers, begin) = (SessionViewers::default(), Instant::now());
        viewers.attach();
        viewers.lose(begin);
        let end = begin + VIEWER_GRACE_PERIOD;
        assert!(!viewers.are_any(end));
        // Another one that is lost later does not renew the period of the first.
        viewers.attach();
        viewers.lose(end);
        viewers.attach();
        assert!(!viewers.are_expected(end));
    }

    #[test]
    fn viewers_of_a_resumed_session_are_doubted_while_they_are_attached() {
        let (viewers, now) = (SessionViewers::default(), Instant::now());
        viewers.doubt(now);
        assert!(!viewers.are_expected(now));
        viewers.attach();
        assert!(viewers.are_expected(now));
        assert!(!viewers.are_expected(now + VIEWER_GRACE_PERIOD));
        viewers.detach();
        assert!(!viewers.are_expected(now));
    }

    #[test]
    fn viewers_that_were_lost_before_their_session_is_resumed_have_a_new_grace_period() {
        let now = Instant::now();
        let end = now + VIEWER_GRACE_PERIOD;
        let lost = SessionViewers::default();
        lost.attach();
        lost.lose(now);
        let restored = SessionViewers::default();
        restored.expect_restored(now);
        for viewers in [lost, restored] {
            assert!(!viewers.are_expected(end));
            viewers.doubt(end);
            assert!(viewers.are_expected(end));
            assert!(!viewers.are_expected(end + VIEWER_GRACE_PERIOD));
        }
    }

    #[test]
    fn viewers_of_a_restored_session_are_expected_for_the_grace_period() {
        let (viewers, now) = (SessionViewers::default(), Instant::now());
        viewers.expect_restored(now);
        viewers.attach();
        viewers.detach();
        assert!(viewers.are_expected(now));
        assert!(!viewers.are_any(now + VIEWER_GRACE_PERIOD));
    }
}
