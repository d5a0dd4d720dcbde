//! Forwards what is on disk to the uplink, and handles damage that is found by that.

use tracing::{error, info, warn};

use super::{Store, StoreKey};
use crate::limits::MAX_SPOOL_READ_ATTEMPTS;
use crate::queue::Permits;
use crate::spool::damage::Repair;
use crate::spool::disk::Disk;
use crate::spool::read::{Progress, ReadFault};

impl<D: Disk> Store<D> {
    /// Reads steps of each session that has some, and forwards them. Returns whether there are
    /// more.
    pub(in crate::spool) fn read_readable(&mut self) -> bool {
        // Each session gets one turn: sessions that have more are added to the end of the same
        // queue, and commands are executed before the next turn.
        for _ in 0..self.readable.len() {
            let Some(key) = self.readable.pop_front() else {
                break;
            };
            if let Some(session) = self.sessions.get_mut(&key) {
                session.is_readable = false;
                // Otherwise the command that brings the capacity reads on.
                if !session.is_awaiting_capacity {
                    self.read(key, None);
                }
            }
        }
        !self.readable.is_empty()
    }

    pub(super) fn read(&mut self, key: StoreKey, permits: Option<Permits>) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let Some(sender) = &session.sender else {
            return;
        };
        session.has_read_failed = false;
        let read = session
            .stored
            .forward_stored(&mut self.disk, sender, permits);
        match read {
            Ok(progress) => {
                self.handle_progress(key, progress);
                // A segment that is acknowledged is freed only once it has been read to its end.
                self.free(key, !self.waiting.is_empty());
            }
            Err(fault) => self.handle_read_fault(key, fault),
        }
    }

    pub(super) fn handle_progress(&mut self, key: StoreKey, progress: Progress) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        match progress {
            Progress::More => self.add_readable(key),
            Progress::CaughtUp => {}
            Progress::NeedsCapacity(bytes) => {
                session.is_awaiting_capacity = true;
                // Without its task, the session is closed soon.
                let _ = session.requests.send(bytes);
            }
            // The uplink sees the end of the session.
            Progress::Ended => session.sender = None,
            Progress::Closed => {
                session.sender = None;
                session.is_uplink_gone = true;
            }
        }
    }

    fn handle_read_fault(&mut self, key: StoreKey, fault: ReadFault) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let name = session.stored.description.name.clone();
        let bytes = session.stored.bytes;
        let stored = &mut session.stored;
        let repaired = match fault {
            ReadFault::Segment {
                segment,
                offset,
                damage,
            } => {
                let file = stored.segment_path(segment);
                let repaired = stored.repair_segment(&mut self.disk, segment, offset, damage);
                match &repaired {
                    Ok(Repair::Truncated) => {
                        info!(session = %name, %file, offset, "incomplete record at the end cut off")
                    }
                    Ok(Repair::Quarantined) => {
                        warn!(session = %name, %file, offset, "damaged segment set aside: its packets from this offset on are lost")
                    }
                    Err(_) => {}
                }
                repaired
            }
            // A bad block stays bad. The packets of the other segments should not wait for it for
            // ever.
            ReadFault::Disk(_) if stored.reader.failures >= MAX_SPOOL_READ_ATTEMPTS => {
                let segment = stored.reader.segment;
                warn!(session = %name, file = %stored.segment_path(segment), "segment cannot be read, and is set aside: its remaining packets are lost");
                stored.quarantine_segment(&mut self.disk, segment);
                stored.reader.failures = 0;
                Ok(Repair::Quarantined)
            }
            ReadFault::Disk(error) => Err(error),
            ReadFault::Log => {
                error!(session = %name, directory = %stored.directory, "session log damaged: the rest of the session is kept for inspection");
                stored.is_broken = true;
                // For the uplink this is the end of the session: it sends what it has got until
                // here.
                session.sender = None;
                self.counters.quarantined.add(1);
                return;
            }
        };
        match repaired {
            Ok(repair) => {
                let now = session.stored.bytes;
                self.account(bytes, now);
                if repair == Repair::Quarantined {
                    self.counters.quarantined.add(1);
                }
                self.add_readable(key);
            }
            Err(error) => {
                session.stored.reader.failures += 1;
                session.has_read_failed = true;
                self.report_fault(format!("cannot read: {error}"));
            }
        }
    }
}
