//! Waits for a packet that is arriving when a viewer requests its index. Without this the viewer
//! would be told that there is none, and request it again only after an interval of its own, which
//! is usually longer than the packet takes.
//!
//! While producers are busy a thread of viewers that has slept is late itself, and the packet may
//! be read late on purpose (`coalescing`). Then the viewer gets the packet sooner by requesting it
//! again: after a packet that was late the next [`PACKET_WAIT_COOLDOWN`] replies do not wait.

use std::time::Instant;

use crate::limits::{LATE_PACKET_WAIT, MAX_PACKET_WAIT, PACKET_WAIT_COOLDOWN};
use crate::publish::subscription::ChangeQueue;

/// Decides for a viewer how long its replies wait.
#[derive(Debug, Default)]
pub(super) struct PacketWait {
    /// Number of the next replies that do not wait, although they could.
    unwaited: u32,
}

impl PacketWait {
    /// Waits until the packet's stream has changed, for [`MAX_PACKET_WAIT`] at most. The viewer
    /// must be subscribed to nothing else: the changes are taken out of the queue.
    pub(super) async fn wait(&mut self, changes: &ChangeQueue) {
        if self.unwaited > 0 {
            self.unwaited -= 1;
            // Taken, so that what has changed until now does not end a later wait at once.
            changes.take_changes();
            return;
        }
        let begun = Instant::now();
        let changed = async {
            while changes.take_changes().is_empty() {
                changes.changed().await;
            }
        };
        // Whether it has changed is seen when the stream is asked again.
        let _ = tokio::time::timeout(MAX_PACKET_WAIT, changed).await;
        if begun.elapsed() > LATE_PACKET_WAIT {
            self.unwaited = PACKET_WAIT_COOLDOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use viewer_proto::server::Change;
    use wire::StreamId;

    use super::*;
    use crate::publish::subscription::{Subscription, Subscriptions};

    #[tokio::test]
    async fn a_late_packet_is_waited_for_once_and_the_next_requests_are_answered_at_once() {
        let changes = Arc::<ChangeQueue>::default();
        let mut stream = Subscriptions::default();
        stream.add(&Subscription::new(&changes, Change::Stream(StreamId(1))));
        let mut wait = PacketWait::default();
        // The packet has come meanwhile.
        stream.notify();
        wait.wait(&changes).await;
        assert_eq!(wait.unwaited, 0);
        let begun = Instant::now();
        wait.wait(&changes).await;
        assert!(begun.elapsed() >= MAX_PACKET_WAIT);
        for left in (0..PACKET_WAIT_COOLDOWN).rev() {
            stream.notify();
            wait.wait(&changes).await;
            assert_eq!(wait.unwaited, left);
        }
        // What has changed during these requests does not end the wait.
        let begun = Instant::now();
        wait.wait(&changes).await;
        assert!(begun.elapsed() >= MAX_PACKET_WAIT);
        assert_eq!(wait.unwaited, PACKET_WAIT_COOLDOWN);
    }
}
