//! Who wants to hear what changes. A viewer that listens has an [`Inbox`], and an [`Ear`] at each
//! thing that it follows. An ear takes note once, until the inbox is looked at: what has changed in
//! the meantime, however much, is one number there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use viewer_proto::server::Change;

/// What has changed for one viewer.
#[derive(Debug, Default)]
pub struct Inbox {
    noted: Mutex<Vec<Arc<Ear>>>,
    wake: Notify,
    /// Beacons are not noted.
    ignores_beacons: AtomicBool,
}

/// A viewer's ear at one thing.
#[derive(Debug)]
pub struct Ear {
    inbox: Arc<Inbox>,
    about: Change,
    has_noted: AtomicBool,
}

/// The ears at one thing.
#[derive(Debug, Default)]
pub struct Ears(Vec<Arc<Ear>>);

impl Inbox {
    /// Waits until something has changed since [`take`](Self::take).
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Whether beacons are noted, as they are at first. Of those that are not, whoever looks for them
    /// after this has returned finds the last.
    pub fn heed_beacons(&self, on: bool) {
        self.ignores_beacons.store(!on, Ordering::SeqCst);
    }

    /// What has changed. What changes from now on is noted anew, so that it is to be looked at
    /// afterwards.
    pub fn take(&self) -> Vec<Change> {
        let noted = std::mem::take(&mut *self.noted.lock());
        noted
            .into_iter()
            .map(|ear| {
                // Exchanged, not stored: so all is seen that was changed by those who found it noted.
                ear.has_noted.swap(false, Ordering::SeqCst);
                ear.about
            })
            .collect()
    }
}

impl Ear {
    /// An ear that fills this inbox.
    #[must_use]
    pub fn new(inbox: &Arc<Inbox>, about: Change) -> Arc<Self> {
        Arc::new(Self {
            inbox: Arc::clone(inbox),
            about,
            has_noted: AtomicBool::new(false),
        })
    }

    fn note(self: &Arc<Self>) {
        if !self.has_noted.swap(true, Ordering::SeqCst) {
            self.inbox.noted.lock().push(Arc::clone(self));
            self.inbox.wake.notify_one();
        }
    }
}

impl Ears {
    /// From now on, this one hears.
    pub fn add(&mut self, ear: &Arc<Ear>) {
        self.0.push(Arc::clone(ear));
    }

    /// From now on, it does not.
    pub fn remove(&mut self, ear: &Arc<Ear>) {
        self.0.retain(|other| !Arc::ptr_eq(other, ear));
    }

    /// To be called after the change, so that who looks because of it sees it.
    pub fn ring(&self) {
        self.0.iter().for_each(Ear::note);
    }

    /// The same of a beacon, for those who care. To be called under the lock under which the beacon
    /// is looked for.
    pub fn ring_for_beacon(&self) {
        let cares = |ear: &&Arc<Ear>| !ear.inbox.ignores_beacons.load(Ordering::SeqCst);
        self.0.iter().filter(cares).for_each(Ear::note);
    }
}

#[cfg(test)]
mod tests {
    use wire::StreamId;

    use super::*;

    #[test]
    fn whatever_changes_is_noted_once_until_somebody_looks() {
        let inbox = Arc::default();
        let about = [1, 2].map(|id| Change::Stream(StreamId(id)));
        let mut ears = about.map(|about| {
            let (mut ears, ear) = (Ears::default(), Ear::new(&inbox, about));
            ears.add(&ear);
            (ears, ear)
        });
        for _ in 0..1000 {
            ears.iter().for_each(|(ears, _)| ears.ring());
        }
        assert_eq!(inbox.take(), about);
        assert_eq!(inbox.take(), []);
        let [_, (second, ear)] = &mut ears;
        second.ring();
        assert_eq!(inbox.take(), [about[1]]);
        second.remove(ear);
        second.ring();
        assert_eq!(inbox.take(), []);
    }

    #[test]
    fn beacons_are_noted_for_those_who_care() {
        let inboxes = [Arc::default(), Arc::default()];
        let about = Change::Stream(StreamId(1));
        let mut ears = Ears::default();
        for inbox in &inboxes {
            ears.add(&Ear::new(inbox, about));
        }
        let noted = || inboxes.each_ref().map(|inbox| inbox.take().len());
        inboxes[0].heed_beacons(false);
        ears.ring_for_beacon();
        assert_eq!(noted(), [0, 1]);
        ears.ring();
        assert_eq!(noted(), [1, 1]);
        inboxes[0].heed_beacons(true);
        ears.ring_for_beacon();
        assert_eq!(noted(), [1, 1]);
    }
}
