//! Logs the connections that a port has refused or evicted: the first at once, then a summary of
//! each interval, because a peer could fill the log.

use std::net::SocketAddr;

use tokio::time::Instant;
use tracing::warn;

use crate::limits::REFUSAL_LOG_INTERVAL;

/// Counts and logs what has happened on a port since the last summary.
#[derive(Debug)]
pub(super) struct RefusalLog {
    port: &'static str,
    counts: Counts,
    /// The peer of the last refused connection.
    last: Option<SocketAddr>,
    /// Time at which the next summary is due. None: the next refusal is logged at once.
    due: Option<Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    refused: u64,
    evicted: u64,
}

impl RefusalLog {
    pub(super) fn new(port: &'static str) -> Self {
        Self {
            port,
            counts: Counts::default(),
            last: None,
            due: None,
        }
    }

    /// Records that a connection of this peer was closed at once, because a limit is reached.
    pub(super) fn record_refused(&mut self, peer: SocketAddr, now: Instant) {
        self.counts.refused += 1;
        self.last = Some(peer);
        self.report_if_due(now);
    }

    /// Records that a connection without a handshake was closed for that of another peer.
    pub(super) fn record_evicted(&mut self, now: Instant) {
        self.counts.evicted += 1;
        self.report_if_due(now);
    }

    /// Completes when the next summary is due.
    pub(super) async fn wait_until_due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Logs a summary if it is due and anything has happened.
    pub(super) fn report_if_due(&mut self, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        let counts = std::mem::take(&mut self.counts);
        self.due = (counts != Counts::default()).then(|| now + REFUSAL_LOG_INTERVAL);
        let (port, Counts { refused, evicted }) = (self.port, counts);
        match self.last.take() {
            Some(peer) => warn!(
                port,
                refused,
                evicted,
                last = %peer,
                "connection refused: too many connections"
            ),
            None if evicted > 0 => warn!(
                port,
                evicted, "connection without a handshake evicted: too many connections"
            ),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn first_refusal_is_logged_at_once_and_others_once_in_an_interval() {
        let mut log = RefusalLog::new("control");
        let (peer, begin) = ("10.0.0.1:7".parse().unwrap(), Instant::now());
        log.record_refused(peer, begin);
        assert_eq!(log.counts, Counts::default(), "logged");
        for milliseconds in 0..100 {
            let now = begin + Duration::from_millis(milliseconds);
            log.record_refused(peer, now);
            log.record_evicted(now);
        }
        let counts = Counts {
            refused: 100,
            evicted: 100,
        };
        assert_eq!(log.counts, counts);
        let due = begin + REFUSAL_LOG_INTERVAL;
        assert_eq!(log.due, Some(due));
        log.report_if_due(due);
        assert_eq!(log.counts, Counts::default(), "logged");
        // A calm interval: the next refusal is logged at once.
        log.report_if_due(due + REFUSAL_LOG_INTERVAL);
        assert_eq!(log.due, None);
    }
}
