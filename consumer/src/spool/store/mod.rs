//! All sessions of a spool: which of them may write, which segments are dropped when the spool is
//! full, and what happens when the disk fails. It knows no thread, task or clock; its caller runs
//! it again when time has passed.

mod forward;
mod space;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use daemon::durability::Durability;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::disk::Disk;
use super::session::StoredSession;
use super::write::{Batch, PendingStep, Written};
use super::{SpoolFullPolicy, SpoolSettings};
use crate::limits::{MAX_SEGMENT_BYTES, SEGMENTS_OF_A_SPOOL};
use crate::queue::{Permits, SpoolSender, Step, StreamKey};
use crate::status::SpoolCounters;

/// A session's number in this process.
pub(super) type StoreKey = u64;

/// The sessions of a spool.
#[derive(Debug)]
pub(super) struct Store<D> {
    pub(super) disk: D,
    capacity: u64,
    segment_bytes: u64,
    on_full: SpoolFullPolicy,
    durability: Durability,
    sessions: BTreeMap<StoreKey, OpenSession>,
    /// Sessions with steps to be written, in the order in which they came.
    waiting: VecDeque<StoreKey>,
    /// Sessions with steps to be read.
    readable: VecDeque<StoreKey>,
    /// Bytes of all files.
    used: u64,
    /// Whether space was freed since the sessions that are blocked have last tried to write.
    has_freed: bool,
    /// Packets dropped since that was last logged.
    unreported_drops: u64,
    counters: Arc<SpoolCounters>,
}

/// A session that is open in this process.
#[derive(Debug)]
struct OpenSession {
    stored: StoredSession,
    /// The end of the queue to the uplink. None after the last step, and if the uplink has stopped.
    sender: Option<SpoolSender>,
    /// Asks for capacity of that queue, in bytes.
    requests: mpsc::UnboundedSender<usize>,
    pending: VecDeque<PendingStep>,
    /// Told when the pending steps are written, or (false) will not be.
    accepted: Option<oneshot::Sender<bool>>,
    is_waiting: bool,
    is_readable: bool,
    is_awaiting_capacity: bool,
    /// Whether the last attempt to write has failed for want of space or by an error.
    is_blocked: bool,
    /// Whether the last attempt to read has failed.
    has_read_failed: bool,
    /// Whether the uplink has stopped before the last step.
    is_uplink_gone: bool,
}

/// Why a session's steps are not written.
enum Blocked {
    Full,
    Failed(io::Error),
}

impl<D: Disk> Store<D> {
    pub(super) fn new(disk: D, settings: &SpoolSettings, counters: Arc<SpoolCounters>) -> Self {
        counters.capacity.add(settings.bytes);
        Self {
            disk,
            capacity: settings.bytes,
            segment_bytes: (settings.bytes / SEGMENTS_OF_A_SPOOL).min(MAX_SEGMENT_BYTES),
            on_full: settings.on_full,
            durability: settings.durability,
            sessions: BTreeMap::new(),
            waiting: VecDeque::new(),
            readable: VecDeque::new(),
            used: 0,
            has_freed: false,
            unreported_drops: 0,
            counters,
        }
    }

    /// Adds a session, whose steps go to the uplink by `sender`.
    pub(super) fn open(
        &mut self,
        key: StoreKey,
        stored: StoredSession,
        sender: SpoolSender,
        requests: mpsc::UnboundedSender<usize>,
    ) {
        let is_recovered = stored.identity.is_recovered;
        self.account(0, stored.bytes);
        self.counters.sessions.add(1);
        let session = OpenSession {
            stored,
            sender: Some(sender),
            requests,
            pending: VecDeque::new(),
            accepted: None,
            is_waiting: false,
            is_readable: false,
            is_awaiting_capacity: false,
            is_blocked: false,
            has_read_failed: false,
            is_uplink_gone: false,
        };
        self.sessions.insert(key, session);
        if is_recovered {
            self.add_readable(key);
        }
    }

    /// Counts the bytes of a recovered session that is not open yet.
    pub(super) fn reserve(&mut self, bytes: u64) {
        self.account(0, bytes);
    }

    /// Ends the reservation for a recovered session.
    pub(super) fn release_reservation(&mut self, bytes: u64) {
        self.account(bytes, 0);
    }

    /// Adds steps to be written. `accepted` is told when they are.
    pub(super) fn append(
        &mut self,
        key: StoreKey,
        steps: Vec<Step>,
        accepted: oneshot::Sender<bool>,
    ) {
        let Some(session) = self.sessions.get_mut(&key) else {
            // The receiver of a sender that is dropped gets an error.
            return;
        };
        session
            .pending
            .extend(steps.into_iter().map(PendingStep::Step));
        session.accepted = Some(accepted);
        self.add_waiting(key);
    }

    /// Records that the frontend has ended the session.
    pub(super) fn end(&mut self, key: StoreKey) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.pending.push_back(PendingStep::End);
            self.add_waiting(key);
        }
    }

    /// Records that the relay has acknowledged all packets before these.
    pub(super) fn acknowledge(&mut self, key: StoreKey, positions: BTreeMap<StreamKey, u64>) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.stored.acknowledge(positions);
            self.free(key, !self.waiting.is_empty());
        }
    }

    /// Forwards the step that has waited for capacity of the queue to the uplink, and those after
    /// it.
    pub(super) fn forward(&mut self, key: StoreKey, permits: Permits) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.is_awaiting_capacity = false;
            self.read(key, Some(permits));
        }
    }

    /// Records that the uplink has stopped, and will not take more steps.
    pub(super) fn detach(&mut self, key: StoreKey) {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.sender = None;
            session.is_uplink_gone = true;
            // Its steps are tried once more, and if that fails as well, the frontend is told not to
            // wait.
            session.is_blocked = false;
        }
    }

    /// Closes a session whose files stay for the next start. Returns the number of its packets that
    /// are not acknowledged.
    pub(super) fn close(&mut self, key: StoreKey) -> u64 {
        let Some(mut session) = self.sessions.remove(&key) else {
            return 0;
        };
        let bytes = session.stored.bytes;
        let recorded = session.stored.record_acknowledged(&mut self.disk);
        let synced = match self.durability {
            Durability::Process => Ok(()),
            Durability::Interval | Durability::Packet => session.stored.sync(&mut self.disk),
        };
        if let Err(error) = recorded.and(synced) {
            self.report_fault(format!("cannot write to the spool: {error}"));
        }
        let unwritten = packets_of(&session.pending);
        if unwritten > 0 {
            warn!(session = %session.stored.description.name, packets = unwritten, "packets lost: they could not be written to the spool before the end");
        }
        self.account(bytes, 0);
        self.counters.sessions.subtract(1);
        session.stored.unacknowledged()
    }

    /// Closes a session and removes its files.
    pub(super) fn remove(&mut self, key: StoreKey) {
        let Some(mut session) = self.sessions.remove(&key) else {
            return;
        };
        let (bytes, directory) = (session.stored.bytes, session.stored.directory.clone());
        let packets = session.stored.unforwarded() + packets_of(&session.pending);
        if packets > 0 {
            // The uplink has given the session up.
            self.counters.dropped.add(packets);
            warn!(%directory, packets, "packets dropped from the spool: their session has failed");
        }
        if let Err(error) = session.stored.remove(&mut self.disk) {
            error!(%directory, "cannot remove a session from the spool: {error}; it will be sent again after the next start");
        }
        self.account(bytes, 0);
        self.counters.sessions.subtract(1);
    }

    /// Writes the steps of all sessions that have some, as far as there is space.
    pub(super) fn write_waiting(&mut self) {
        let has_freed = std::mem::take(&mut self.has_freed);
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else {
                break;
            };
            let Some(session) = self.sessions.get_mut(&key) else {
                continue;
            };
            // Without new space the attempt would fail again, and this is called after every
            // command.
            if session.is_blocked && !has_freed {
                self.waiting.push_back(key);
                continue;
            }
            session.is_blocked = false;
            let written = self.write(key);
            self.finish_write(key, written);
        }
    }

    fn finish_write(&mut self, key: StoreKey, written: Result<(), Blocked>) {
        let on_full = self.on_full;
        let fault = match &written {
            Ok(()) => None,
            Err(Blocked::Full) => Some(format!("full: {} bytes", self.used)),
            Err(Blocked::Failed(error)) => Some(format!("cannot write: {error}")),
        };
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        if fault.is_some() {
            session.is_blocked = true;
            // The steps that must not be dropped remain.
            let is_accepted = match on_full {
                SpoolFullPolicy::DropOldest => Some(true),
                // No acknowledgement will make space any more.
                SpoolFullPolicy::Block if session.is_uplink_gone => Some(false),
                SpoolFullPolicy::Block => None,
            };
            if let Some(is_accepted) = is_accepted
                && let Some(accepted) = session.accepted.take()
            {
                let _ = accepted.send(is_accepted);
            }
            self.waiting.push_back(key);
        } else {
            session.is_waiting = false;
            if let Some(accepted) = session.accepted.take() {
                // The task of the session may be gone.
                let _ = accepted.send(true);
            }
        }
        match fault {
            Some(fault) => self.report_fault(fault),
            None => self.clear_fault(),
        }
    }

    /// Writes all pending steps of a session.
    fn write(&mut self, key: StoreKey) -> Result<(), Blocked> {
        loop {
            let Some(session) = self.sessions.get_mut(&key) else {
                return Ok(());
            };
            if session.pending.is_empty() {
                return Ok(());
            }
            let max_bytes = usize::try_from(self.segment_bytes).unwrap_or(usize::MAX);
            let batch = Batch::encode(&session.stored, &session.pending, max_bytes);
            // Steps of the session log are written to a full spool as well: they are few, and a
            // relay cannot take the packets without them.
            if batch.has_data() && !self.make_space(key, batch.bytes()) {
                match self.on_full {
                    SpoolFullPolicy::Block => return Err(Blocked::Full),
                    SpoolFullPolicy::DropOldest => self.drop_pending(key),
                }
                continue;
            }
            let is_synced = self.durability == Durability::Packet;
            let Some(session) = self.sessions.get_mut(&key) else {
                return Ok(());
            };
            let bytes = session.stored.bytes;
            let was_caught_up = session.stored.is_caught_up();
            let written =
                session
                    .stored
                    .write(&mut self.disk, &batch, self.segment_bytes, is_synced);
            let now = session.stored.bytes;
            match written {
                Err(error) => {
                    self.account(bytes, now);
                    if self.on_full == SpoolFullPolicy::DropOldest {
                        // What is dropped may make space on a disk that other programs have filled.
                        if self.drop_segment() {
                            continue;
                        }
                        self.drop_pending(key);
                    }
                    return Err(Blocked::Failed(error));
                }
                Ok(written) => {
                    session.pending.drain(..batch.steps);
                    if self.durability == Durability::Process {
                        // At this durability nothing syncs these files, and the list would grow
                        // with each segment.
                        session.stored.unsynced.clear();
                    }
                    self.account(bytes, now);
                    self.record_written(key, batch, &written, was_caught_up);
                }
            }
        }
    }

    /// Counts a batch that was written, and forwards it to the uplink.
    fn record_written(
        &mut self,
        key: StoreKey,
        batch: Batch,
        written: &Written,
        was_caught_up: bool,
    ) {
        self.counters.accepted.add(batch.packets - batch.too_long);
        if batch.too_long > 0 {
            self.counters.dropped.add(batch.too_long);
            error!(
                packets = batch.too_long,
                "packets dropped: too long for the spool"
            );
        }
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let Some(sender) = &session.sender else {
            return;
        };
        let is_direct = was_caught_up && !session.is_awaiting_capacity;
        let progress = session
            .stored
            .forward_written(batch, written, sender, is_direct);
        self.handle_progress(key, progress);
    }

    /// Tries again what has failed, and reports drops. To be called once in a while.
    pub(super) fn retry(&mut self) {
        // Another program may have made space on the disk, which nobody tells.
        self.has_freed = true;
        let failed = self
            .sessions
            .iter()
            .filter(|(_, session)| session.has_read_failed);
        let failed: Vec<StoreKey> = failed.map(|(key, _)| *key).collect();
        for key in failed {
            self.add_readable(key);
        }
        let dropped = std::mem::take(&mut self.unreported_drops);
        if dropped > 0 {
            let total = self.counters.dropped.get();
            warn!(packets = dropped, total, "spool full: packets dropped");
        }
    }

    /// Records in the session logs what has been acknowledged.
    pub(super) fn record_acknowledged(&mut self) {
        self.update_all(StoredSession::record_acknowledged);
    }

    /// Makes everything that was written safe against a power failure, at the durability
    /// `interval`.
    pub(super) fn sync(&mut self) {
        if self.durability == Durability::Interval {
            self.update_all(StoredSession::sync);
        }
    }

    fn update_all(&mut self, update: impl Fn(&mut StoredSession, &mut D) -> io::Result<()>) {
        let mut fault = None;
        for session in self.sessions.values_mut() {
            let bytes = session.stored.bytes;
            let updated = update(&mut session.stored, &mut self.disk);
            self.used += session.stored.bytes - bytes;
            fault = fault.or(updated.err());
        }
        if let Some(error) = fault {
            self.report_fault(format!("cannot write: {error}"));
        }
    }

    /// Whether no session is open.
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether a session waits for the disk.
    pub(super) fn is_waiting(&self) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|session| session.is_blocked || session.has_read_failed)
    }

    fn add_waiting(&mut self, key: StoreKey) {
        if let Some(session) = self.sessions.get_mut(&key)
            && !std::mem::replace(&mut session.is_waiting, true)
        {
            self.waiting.push_back(key);
        }
    }

    fn add_readable(&mut self, key: StoreKey) {
        if let Some(session) = self.sessions.get_mut(&key)
            && !std::mem::replace(&mut session.is_readable, true)
        {
            self.readable.push_back(key);
        }
    }

    fn account(&mut self, before: u64, now: u64) {
        self.used = (self.used + now).saturating_sub(before);
        self.has_freed |= now < before;
        self.counters.bytes.set(self.used);
    }

    /// Reports what keeps the spool from working: in the log if it is new, and in the status.
    fn report_fault(&self, fault: String) {
        if self.counters.fault().is_none() {
            match self.on_full {
                SpoolFullPolicy::Block => {
                    warn!("spool {fault}; frontends wait, it is tried again every second")
                }
                SpoolFullPolicy::DropOldest => {
                    warn!("spool {fault}; packets are dropped, it is tried again every second")
                }
            }
        }
        self.counters.set_fault(Some(fault));
    }

    fn clear_fault(&self) {
        if self.counters.fault().is_some() && !self.is_waiting() {
            info!("spool accepts packets again");
            self.counters.set_fault(None);
        }
    }
}

fn packets_of(pending: &VecDeque<PendingStep>) -> u64 {
    let is_packet =
        |pending: &&PendingStep| matches!(pending, PendingStep::Step(Step::Packet { .. }));
    pending.iter().filter(is_packet).count() as u64
}
