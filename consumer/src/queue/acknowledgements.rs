//! What a relay has acknowledged of a spooled session: from the uplink to the spool.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::step::StreamKey;

/// The acknowledgements of a session that the spool has not taken yet: for each stream a position,
/// before which all packets are acknowledged. Any number of them take the memory of one for each
/// stream.
#[derive(Debug, Default)]
pub(crate) struct Acknowledgements {
    positions: Mutex<BTreeMap<StreamKey, u64>>,
    added: Notify,
}

impl Acknowledgements {
    /// Acknowledges all packets of the stream before this sequence number.
    pub(super) fn add(&self, stream: StreamKey, before: u64) {
        let mut positions = self.positions.lock();
        let position = positions.entry(stream).or_default();
        *position = before.max(*position);
        // The woken task would wait for the lock at once.
        drop(positions);
        // Stores a permit if nobody waits at the moment, so that no acknowledgement is missed
        // between `take` and the next `wait`.
        self.added.notify_one();
    }

    /// Takes the positions of all streams with new acknowledgements.
    pub(crate) fn take(&self) -> BTreeMap<StreamKey, u64> {
        std::mem::take(&mut self.positions.lock())
    }

    /// Waits until there are acknowledgements.
    pub(crate) async fn wait(&self) {
        self.added.notified().await;
    }
}
