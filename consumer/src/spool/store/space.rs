//! The space of a spool: who may write, and what is freed or dropped.

use daemon::durability::Durability;

use super::{PendingStep, SpoolFullPolicy, Store, StoreKey, packets_of};
use crate::queue::Step;
use crate::spool::disk::Disk;

impl<D: Disk> Store<D> {
    /// Makes space for `bytes`, if the policy allows it. Returns whether there is space.
    pub(super) fn make_space(&mut self, key: StoreKey, bytes: u64) -> bool {
        loop {
            let session = self.sessions.get(&key);
            // A session without packets in the spool may always write some: otherwise one session
            // that is never acknowledged could keep all others from writing for ever.
            let is_first = session.is_some_and(|session| session.stored.segments.is_empty());
            if is_first || self.used + bytes <= self.capacity {
                return true;
            }
            let used = self.used;
            let keys: Vec<StoreKey> = self.sessions.keys().copied().collect();
            // Segments that are acknowledged, but too small to be removed at other times, go before
            // any packet is dropped.
            for key in keys {
                self.free(key, true);
            }
            if self.used < used {
                continue;
            }
            if self.on_full == SpoolFullPolicy::Block || !self.drop_segment() {
                return false;
            }
        }
    }

    /// Drops the oldest segment that is not in flight, of the session with the most bytes. Returns
    /// whether there was one.
    pub(super) fn drop_segment(&mut self) -> bool {
        let sessions = self.sessions.iter();
        let droppable = sessions.filter_map(|(key, session)| {
            let segment = session.stored.droppable_segment()?;
            Some((session.stored.bytes, *key, segment))
        });
        // The session that fills the spool loses packets, not those that need little of it.
        let Some((bytes, key, segment)) = droppable.max() else {
            return false;
        };
        let Some(session) = self.sessions.get_mut(&key) else {
            return false;
        };
        // Before the removal: a segment from an earlier process has to be read for it.
        let packets = session.stored.count_packets(&mut self.disk, segment);
        if let Err(error) = session.stored.remove_segment(&mut self.disk, segment) {
            let segment = session.stored.segment_path(segment);
            self.report_fault(format!("cannot remove {segment}: {error}"));
            return false;
        }
        let now = session.stored.bytes;
        self.account(bytes, now);
        self.count_dropped(packets);
        true
    }

    /// Drops the packets and beacons that are to be written. The numbers of the packets become a
    /// gap.
    pub(super) fn drop_pending(&mut self, key: StoreKey) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let packets = packets_of(&session.pending);
        let stored = &mut session.stored;
        session.pending.retain(|pending| match pending {
            PendingStep::Step(Step::Packet { stream, .. }) => {
                stored.skip_packet(*stream);
                false
            }
            PendingStep::Step(Step::Beacon { .. }) => false,
            // Later packets of the session need these steps.
            _ => true,
        });
        self.count_dropped(packets);
    }

    fn count_dropped(&mut self, packets: u64) {
        self.counters.dropped.add(packets);
        self.unreported_drops += packets;
    }

    pub(super) fn free(&mut self, key: StoreKey, is_short_of_space: bool) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let bytes = session.stored.bytes;
        let is_synced = self.durability != Durability::Process;
        let freed = session
            .stored
            .free_segments(&mut self.disk, is_short_of_space, is_synced);
        let now = session.stored.bytes;
        self.account(bytes, now);
        if let Err(error) = freed {
            self.report_fault(format!("cannot free space: {error}"));
        }
    }
}
