//! The resumable sessions that have lost their connections, and how many of them are kept. Each has
//! descriptors and memory that no connection answers for: when there are too many, the oldest of
//! the address that has most of them is given up.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::session::Session;
use crate::limits::MAX_DETACHED_LOG_BYTES;

/// The detached sessions of a relay, those that have been detached for longest at the front.
#[derive(Debug)]
pub(super) struct DetachedSessions {
    max: usize,
    entries: Mutex<VecDeque<DetachedSession>>,
}

#[derive(Debug)]
struct DetachedSession {
    session: Arc<Session>,
    /// Number of the control connection that the session has lost. A session that has another
    /// number by now was taken over by another connection.
    generation: u64,
    address: IpAddr,
    log_bytes: u64,
}

impl DetachedSessions {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            entries: Mutex::default(),
        }
    }

    /// Adds a session, and returns those to be given up for it.
    pub(super) fn add(&self, session: &Arc<Session>) -> Vec<Arc<Session>> {
        // Before the lock is taken: the size of the log is behind a lock that is held while the log
        // is written, and the monitor, which must not wait for a disk, looks into the entries.
        let entry = DetachedSession::new(session);
        let mut entries = self.entries.lock();
        entries.push_back(entry);
        let log_bytes = |entries: &VecDeque<DetachedSession>| -> u64 {
            entries.iter().map(|entry| entry.log_bytes).sum()
        };
        let is_above = |entries: &VecDeque<DetachedSession>| {
            entries.len() > self.max || log_bytes(entries) > MAX_DETACHED_LOG_BYTES
        };
        // Those of sessions that were resumed are removed only here, where their number matters.
        let outdated = match is_above(&entries) {
            true => take_outdated(&mut entries),
            false => VecDeque::new(),
        };
        let mut given_up = Vec::new();
        while is_above(&entries) {
            match take_oldest(&mut entries) {
                Some(session) => given_up.push(session),
                None => break,
            }
        }
        drop(entries);
        drop(outdated);
        given_up
    }

    /// The session to be given up next. None: no session is detached.
    pub(super) fn take(&self) -> Option<Arc<Session>> {
        let mut entries = self.entries.lock();
        let outdated = take_outdated(&mut entries);
        let oldest = take_oldest(&mut entries);
        drop(entries);
        drop(outdated);
        oldest
    }

    /// Removes and returns the sessions that have been detached for too long.
    pub(super) fn take_expired(&self, now: Instant) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        let mut entries = self.entries.lock();
        let outdated = take_outdated(&mut entries);
        entries.retain(|entry| {
            let has_expired = entry.session.expire(Some(now));
            if has_expired {
                expired.push(Arc::clone(&entry.session));
            }
            !has_expired
        });
        drop(entries);
        drop(outdated);
        expired
    }

    /// Whether some session may be detached.
    pub(super) fn may_have_any(&self) -> bool {
        !self.entries.lock().is_empty()
    }
}

impl DetachedSession {
    fn new(session: &Arc<Session>) -> Self {
        Self {
            generation: session.generation(),
            address: session.address(),
            log_bytes: session.log_bytes(),
            session: Arc::clone(session),
        }
    }

    fn is_current(&self) -> bool {
        self.session.is_detached() && self.session.is_owned_by(self.generation)
    }
}

/// Removes the sessions that are no longer detached. The caller drops them without a lock, because
/// the last reference to a session may close files.
fn take_outdated(entries: &mut VecDeque<DetachedSession>) -> VecDeque<DetachedSession> {
    let (current, outdated) = entries.drain(..).partition(DetachedSession::is_current);
    *entries = current;
    outdated
}

/// Removes the oldest session of the address that has most of them.
fn take_oldest(entries: &mut VecDeque<DetachedSession>) -> Option<Arc<Session>> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for entry in entries.iter() {
        *counts.entry(entry.address).or_default() += 1;
    }
    let most = counts.values().max().copied();
    let is_of_most = |entry: &DetachedSession| counts.get(&entry.address).copied() == most;
    let oldest = entries.iter().position(is_of_most)?;
    entries.remove(oldest).map(|entry| entry.session)
}
