//! A viewer's subscriptions to the sessions and streams that it follows. They exist while the
//! viewer has a push connection. Without one, a stream is subscribed to only while a reply waits
//! for its next packet.

use std::sync::Arc;

use viewer_proto::server::Change;

use crate::publish::published::{Published, PublishedMetadata};
use crate::publish::subscription::{ChangeQueue, Subscription};
use crate::registry::session::Session;

/// A session or stream that notifies subscribers of its changes.
pub(super) trait Observable {
    /// Adds a subscription, which is notified from the next change on.
    fn subscribe(&self, subscription: &Arc<Subscription>);
    /// Removes a subscription. One that was not added is no error.
    fn unsubscribe(&self, subscription: &Arc<Subscription>);
}

/// A session or stream that a viewer follows, and the viewer's subscription to it if there is one.
#[derive(Debug)]
pub(super) struct Subscribed<T: Observable> {
    observed: Arc<T>,
    about: Change,
    changes: Arc<ChangeQueue>,
    subscription: Option<Arc<Subscription>>,
}

impl<T: Observable> Subscribed<T> {
    /// Follows `observed` without a subscription. A subscription reports changes as `about`.
    pub(super) fn new(observed: Arc<T>, about: Change, changes: &Arc<ChangeQueue>) -> Self {
        Self {
            observed,
            about,
            changes: Arc::clone(changes),
            subscription: None,
        }
    }

    /// Subscribes or unsubscribes. A renewed subscription replaces the one before.
    pub(super) fn set_subscribed(&mut self, on: bool) {
        if let Some(subscription) = self.subscription.take() {
            self.observed.unsubscribe(&subscription);
        }
        if on {
            let subscription = Subscription::new(&self.changes, self.about);
            self.observed.subscribe(&subscription);
            self.subscription = Some(subscription);
        }
    }
}

impl<T: Observable> std::ops::Deref for Subscribed<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.observed
    }
}

impl<T: Observable> Drop for Subscribed<T> {
    fn drop(&mut self) {
        self.set_subscribed(false);
    }
}

macro_rules! observable {
    ($( $observed:ty ),*) => {$(
        impl Observable for $observed {
            fn subscribe(&self, subscription: &Arc<Subscription>) {
                self.subscribe(subscription);
            }

            fn unsubscribe(&self, subscription: &Arc<Subscription>) {
                self.unsubscribe(subscription);
            }
        }
    )*};
}

observable!(Published, PublishedMetadata, Session);
