//! The decision which recording may write to which directory: recordings of different hosts never one below the
//! other, those of one host where their trees do not meet. A host that has started again takes over from
//! the session daemon that it had before.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Component, Path};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::warn;
use wire::EpochSeconds;

use super::session::Session;
use super::{Occupied, Registry};
use crate::store::chunk::is_temporary;

/// The sessions by the first part of their directories, the host mostly: only those with the same can be in
/// each other's way. Each part has a lock of its own, since to take over from a session is to write its files:
/// a disk that hangs then keeps no other host from opening sessions.
#[derive(Debug, Default)]
pub(super) struct SessionsByRoot(Mutex<ByRoot>);

#[derive(Debug, Default)]
struct ByRoot {
    sessions_by_root: HashMap<OsString, Arc<RootSessions>>,
    /// Number of roots at which those without sessions are looked for.
    prune_at: usize,
}

/// The sessions of one root. Locked while it is found out whether a recording may write somewhere, and until
/// those have ended that it takes over from; taken before the registry's tables.
#[derive(Debug, Default)]
struct RootSessions(Mutex<Vec<Weak<Session>>>);

impl SessionsByRoot {
    /// The root of a session. A session without a directory has one of its own.
    fn of(&self, session: &Session) -> Arc<RootSessions> {
        let Some(root) = root(session) else {
            return Arc::default();
        };
        let mut by_root = self.0.lock();
        if by_root.sessions_by_root.len() >= by_root.prune_at {
            // One that is held elsewhere is about to get a session.
            let is_used = |sessions: &mut Arc<RootSessions>| {
                Arc::get_mut(sessions).is_none_or(|own| own.has_sessions())
            };
            by_root
                .sessions_by_root
                .retain(|_, sessions| is_used(sessions));
            // Doubled, so that a walk over all is paid by as many new roots.
            by_root.prune_at = (2 * by_root.sessions_by_root.len()).max(64);
        }
        Arc::clone(by_root.sessions_by_root.entry(root).or_default())
    }
}

impl RootSessions {
    fn has_sessions(&mut self) -> bool {
        let mut sessions = self.0.get_mut().iter();
        sessions.any(|session| session.strong_count() > 0)
    }
}

/// The sessions that have not ended: one has when its producer is gone and no stream waits.
fn active(sessions: &mut Vec<Weak<Session>>) -> Vec<Arc<Session>> {
    let mut active = Vec::new();
    sessions.retain(|session| {
        let session = session.upgrade();
        let session = session.filter(|session| !(session.is_over() && session.is_empty()));
        let is_kept = session.is_some();
        active.extend(session);
        is_kept
    });
    active
}

/// The first part of a session's directory.
fn root(session: &Session) -> Option<OsString> {
    let directory: &Path = session.identity().directory.as_ref()?.as_ref();
    Some(directory.components().next()?.as_os_str().to_owned())
}

impl Session {
    /// Whether both are of one host: its address and its name.
    fn is_of_the_host_of(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        own.producer == theirs.producer && own.host == theirs.host
    }

    /// Whether this one is of a session daemon that was started on the same host after that of the
    /// other: then that one is dead, whatever its connections look like.
    fn succeeds(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        let daemons = own.daemon.zip(theirs.daemon);
        self.is_of_the_host_of(other)
            && daemons.is_some_and(|(own, theirs)| own != theirs)
            && own.id > theirs.id
    }

    /// Whether the other one is of another recording that is being written.
    fn is_beside(&self, other: &Self) -> bool {
        !Arc::ptr_eq(self.recording(), other.recording()) && other.recording().is_written()
    }

    /// Whether it may not have its directory because of the other one: that of another host lies there,
    /// above or below; or one lies where chunks of the other are moved.
    fn is_hindered_by(&self, other: &Self) -> bool {
        let directories = (&self.identity().directory, &other.identity().directory);
        let (Some(own), Some(theirs)) = directories else {
            return false;
        };
        let (own, theirs): (&Path, &Path) = (own.as_ref(), theirs.as_ref());
        let Ok(between) = own.strip_prefix(theirs).or(theirs.strip_prefix(own)) else {
            return false;
        };
        let is_moved = match between.components().next() {
            Some(Component::Normal(first)) => is_temporary(first),
            _ => false,
        };
        (is_moved || !self.is_of_the_host_of(other)) && self.is_beside(other)
    }

    /// Whether both have the same directory, in which one that rotates has to be alone: the names for
    /// chunks that are moved are fixed.
    fn shares_directory_with(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        own.directory.is_some() && own.directory == theirs.directory && self.is_beside(other)
    }
}

impl Registry {
    /// Adds a session that a producer has opened.
    ///
    /// # Errors
    /// If a recording of another host is being written there, or below or above: each may move and
    /// delete what is in its directory.
    pub fn add_session(&self, session: Arc<Session>) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(&session);
        let mut sessions = root.0.lock();
        check_unhindered(&active(&mut sessions), &session)?;
        session.recording().expect_chunk();
        sessions.push(Arc::downgrade(&session));
        self.sessions.write().insert(session.id(), session);
        drop(sessions);
        self.subscriptions.lock().notify();
        Ok(())
    }

    /// A session is about to make a chunk. If it had none for a while, another recording may have begun
    /// in its directory. One that has a chunk already rotates, and has to be alone there.
    ///
    /// # Errors
    /// If another recording is in the way that it does not take over from.
    pub fn begin_chunk(
        &self,
        session: &Arc<Session>,
        rotates: bool,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let others = active(&mut sessions);
        check_unhindered(&others, session)?;
        let own = session.recording().claimed();
        let is_in_the_way = |other: &Session| {
            rotates && session.shares_directory_with(other)
                || session.is_beside(other)
                    && own.iter().any(|claim| other.recording().claims(claim))
        };
        self.take_over((session, &others), is_in_the_way, now)?;
        session.recording().expect_chunk();
        Ok(())
    }

    /// A session is about to have a chunk moved to the archives, for which it has to be alone in its
    /// directory.
    ///
    /// # Errors
    /// If another recording is there that it does not take over from.
    pub fn begin_archiving(
        &self,
        session: &Arc<Session>,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let others = active(&mut sessions);
        let is_in_the_way = |other: &Session| session.shares_directory_with(other);
        self.take_over((session, &others), is_in_the_way, now)
    }

    /// A session is about to write below a directory, which is given below the relay's output.
    ///
    /// # Errors
    /// If another recording writes there, above or below that it does not take over from.
    pub fn claim(
        &self,
        session: &Arc<Session>,
        directory: &Path,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        if session.recording().has_claimed(directory) {
            return Ok(());
        }
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let others = active(&mut sessions);
        let is_in_the_way =
            |other: &Session| session.is_beside(other) && other.recording().claims(directory);
        self.take_over((session, &others), is_in_the_way, now)?;
        // Not before those are gone that were there.
        session.recording().claim(directory);
        Ok(())
    }

    /// Ends the recordings that are in the way, if the session's daemon has succeeded theirs.
    fn take_over(
        &self,
        (session, others): (&Arc<Session>, &[Arc<Session>]),
        is_in_the_way: impl Fn(&Session) -> bool,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let rivals = others.iter().filter(|other| is_in_the_way(other));
        let rivals: Vec<_> = rivals.collect();
        if let Some(rival) = rivals.iter().find(|rival| !session.succeeds(rival)) {
            return Err(Occupied(Arc::clone(rival)));
        }
        for rival in rivals {
            let recording = rival.recording();
            let of_it = |other: &Arc<Session>| Arc::ptr_eq(other.recording(), recording);
            for old in others.iter().filter(|other| of_it(other)) {
                warn!(
                    session = %old,
                    successor = %session,
                    "session ended: its host has started again and records to the same directory"
                );
                self.end_superseded(old);
            }
            recording.archive_chunks(now, &self.settings().time_zone);
        }
        Ok(())
    }

    /// Ends a session whose producer is dead: closes its connections, writes what has come, and lets go of
    /// its files.
    fn end_superseded(&self, session: &Arc<Session>) {
        self.sessions.write().remove(&session.id());
        self.lingering
            .lock()
            .retain(|(_, other)| !Arc::ptr_eq(other, session));
        self.subscriptions.lock().notify();
        session.supersede();
        self.forget_all_closed(session);
    }
}

fn check_unhindered(others: &[Arc<Session>], session: &Session) -> Result<(), Occupied> {
    let is_in_the_way = |other: &&Arc<Session>| session.is_hindered_by(other);
    match others.iter().find(is_in_the_way) {
        Some(other) => Err(Occupied(Arc::clone(other))),
        None => Ok(()),
    }
}
