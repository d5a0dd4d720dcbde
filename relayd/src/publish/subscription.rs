//! Subscriptions to changes. A viewer with a push connection has a [`ChangeQueue`], and a
//! [`Subscription`] to each session and stream that it follows. Several changes of one thing before
//! the queue is read are one entry in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use viewer_proto::server::Change;

/// The changes that one viewer has not read yet.
#[derive(Debug, Default)]
pub struct ChangeQueue {
    pending: Mutex<Vec<Arc<Subscription>>>,
    wake: Notify,
    /// Whether beacons are left out of the queue.
    ignores_beacons: AtomicBool,
}

/// A viewer's subscription to one session, one stream, or the list of sessions.
#[derive(Debug)]
pub struct Subscription {
    changes: Arc<ChangeQueue>,
    about: Change,
    is_pending: AtomicBool,
}

/// All subscriptions to one session, one stream, or the list of sessions, which holds them under
/// its own lock.
#[derive(Debug, Default)]
pub struct Subscriptions(Vec<Arc<Subscription>>);

impl ChangeQueue {
    /// Waits until something has changed since [`take_changes`](Self::take_changes).
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Sets whether beacons are queued, which is the default. When this returns, a reader of the
    /// stream finds the last beacon that was not queued.
    pub fn set_beacon_interest(&self, on: bool) {
        self.ignores_beacons.store(!on, Ordering::SeqCst);
    }

    /// Takes the queued changes. Later changes are queued again, so read the streams and sessions
    /// after this call, not before.
    pub fn take_changes(&self) -> Vec<Change> {
        let pending = std::mem::take(&mut *self.pending.lock());
        pending
            .into_iter()
            .map(|subscription| {
                // Exchanged, not stored, so that this thread sees every change whose notifier found
                // the subscription pending already.
                subscription.is_pending.swap(false, Ordering::SeqCst);
                subscription.about
            })
            .collect()
    }
}

impl Subscription {
    /// A subscription that adds to this queue.
    #[must_use]
    pub fn new(changes: &Arc<ChangeQueue>, about: Change) -> Arc<Self> {
        Arc::new(Self {
            changes: Arc::clone(changes),
            about,
            is_pending: AtomicBool::new(false),
        })
    }

    fn enqueue(self: &Arc<Self>) {
        if !self.is_pending.swap(true, Ordering::SeqCst) {
            self.changes.pending.lock().push(Arc::clone(self));
            // If nobody waits, the permit is kept for the next call of `changed`.
            self.changes.wake.notify_one();
        }
    }
}

impl Subscriptions {
    /// Adds a subscription, which is notified from the next change on.
    pub fn add(&mut self, subscription: &Arc<Subscription>) {
        self.0.push(Arc::clone(subscription));
    }

    /// Removes a subscription. One that was not added is no error.
    pub fn remove(&mut self, subscription: &Arc<Subscription>) {
        self.0.retain(|other| !Arc::ptr_eq(other, subscription));
    }

    /// Notifies all subscribers. Call it after the change, so that a subscriber that reads at once
    /// sees the change.
    pub fn notify(&self) {
        self.0.iter().for_each(Subscription::enqueue);
    }

    /// Notifies the subscribers that want beacons. Call it under the lock under which the beacon is
    /// read.
    pub fn notify_of_beacon(&self) {
        let cares = |subscription: &&Arc<Subscription>| {
            !subscription.changes.ignores_beacons.load(Ordering::SeqCst)
        };
        self.0.iter().filter(cares).for_each(Subscription::enqueue);
    }
}

#[cfg(test)]
mod tests {
    use wire::StreamId;

    use super::*;

    #[test]
    fn changes_of_one_thing_are_queued_once_until_the_queue_is_read() {
        let changes = Arc::default();
        let about = [1, 2].map(|id| Change::Stream(StreamId(id)));
        let mut subscriptions = about.map(|about| {
            let (mut subscriptions, subscription) =
                (Subscriptions::default(), Subscription::new(&changes, about));
            subscriptions.add(&subscription);
            (subscriptions, subscription)
        });
        for _ in 0..1000 {
            subscriptions
                .iter()
                .for_each(|(subscriptions, _)| subscriptions.notify());
        }
        assert_eq!(changes.take_changes(), about);
        assert_eq!(changes.take_changes(), []);
        let [_, (second, subscription)] = &mut subscriptions;
        second.notify();
        assert_eq!(changes.take_changes(), [about[1]]);
        second.remove(subscription);
        second.notify();
        assert_eq!(changes.take_changes(), []);
    }

    #[test]
    fn beacons_are_queued_for_subscribers_that_want_them() {
        let queues = [Arc::default(), Arc::default()];
        let about = Change::Stream(StreamId(1));
        let mut subscriptions = Subscriptions::default();
        for changes in &queues {
            subscriptions.add(&Subscription::new(changes, about));
        }
        let pending = || {
            queues
                .each_ref()
                .map(|changes| changes.take_changes().len())
        };
        queues[0].set_beacon_interest(false);
        subscriptions.notify_of_beacon();
        assert_eq!(pending(), [0, 1]);
        subscriptions.notify();
        assert_eq!(pending(), [1, 1]);
        queues[0].set_beacon_interest(true);
        subscriptions.notify_of_beacon();
        assert_eq!(pending(), [1, 1]);
    }
}
