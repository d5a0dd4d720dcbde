//! Decides which recording may write to which directory. Of two recordings of different hosts,
//! neither lies in the directory of the other. Recordings of one host may, as long as no two write
//! to the same tree. A host that has restarted takes over the directories of the session daemon
//! that it ran before.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Component, Path};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tracing::warn;
use wire::EpochSeconds;

use super::session::Session;
use super::{DirectoryInUse, Occupied, Registry};
use crate::store::chunk::is_temporary;

/// The sessions by root, which is the first component of their directories and mostly the name of
/// the host. Only sessions of the same root can conflict.
///
/// Each root has a lock of its own, because a session that takes over from another writes the
/// other's files while it holds the lock: a disk that hangs then keeps no other host from opening
/// sessions.
#[derive(Debug, Default)]
pub(super) struct SessionsByRoot(Mutex<RootTable>);

#[derive(Debug, Default)]
struct RootTable {
    roots: HashMap<OsString, Arc<RootSessions>>,
    /// Number of roots at which those without sessions are removed.
    prune_at: usize,
}

/// The sessions of one root. The lock is held from the check whether a recording may write to a
/// directory until the recordings that it takes over from have ended. It is taken before the locks
/// of the registry's tables.
#[derive(Debug, Default)]
struct RootSessions(Mutex<Vec<Weak<Session>>>);

impl SessionsByRoot {
    /// The sessions of the same root as `session`. A session without a directory has a root of its
    /// own.
    fn of(&self, session: &Session) -> Arc<RootSessions> {
        let Some(root) = root(session) else {
            return Arc::default();
        };
        let mut table = self.0.lock();
        if table.roots.len() >= table.prune_at {
            // A root that another thread holds is about to get a session.
            table.roots.retain(|_, root| {
                Arc::get_mut(root).is_none_or(|root| {
                    let mut sessions = root.0.get_mut().iter();
                    sessions.any(|session| session.strong_count() > 0)
                })
            });
            // Doubled, so that the cost of a walk is shared by as many new roots as there were.
            table.prune_at = (2 * table.roots.len()).max(64);
        }
        Arc::clone(table.roots.entry(root).or_default())
    }
}

/// The sessions that have not ended. A session has ended when its producer is gone and none of its
/// streams is open.
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

/// The first component of a session's directory.
fn root(session: &Session) -> Option<OsString> {
    let directory: &Path = session.identity().directory.as_ref()?.as_ref();
    Some(directory.components().next()?.as_os_str().to_owned())
}

impl Session {
    /// Whether both sessions are of one host, by its address and its name.
    fn has_same_host(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        own.producer == theirs.producer && own.host == theirs.host
    }

    /// Whether the session daemon was started on the same host after that of `other`. Then the
    /// other daemon is dead, even if its connections still look open: a host that loses its power
    /// closes none.
    fn succeeds(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        let recordings = own.recording.zip(theirs.recording);
        self.has_same_host(other)
            && recordings.is_some_and(|((own, _), (theirs, _))| own != theirs)
            // Numbers of sessions grow, so that the daemon with the higher one was started later.
            && own.id > theirs.id
    }

    /// Whether `other` belongs to another recording that is still being written.
    fn is_rival(&self, other: &Self) -> bool {
        !Arc::ptr_eq(self.recording(), other.recording()) && other.recording().is_written()
    }

    /// Whether `other` keeps the session from having its directory: one of the two directories
    /// contains the other, and either the hosts differ or the inner one lies where chunks of the
    /// outer one are moved.
    fn is_excluded_by(&self, other: &Self) -> bool {
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
        (is_moved || !self.has_same_host(other)) && self.is_rival(other)
    }

    /// Whether a rival has the same directory. Only one recording can rotate there, because the
    /// names of the directories through which chunks are moved are fixed.
    fn shares_directory_with(&self, other: &Self) -> bool {
        let (own, theirs) = (self.identity(), other.identity());
        own.directory.is_some() && own.directory == theirs.directory && self.is_rival(other)
    }
}

impl Registry {
    /// Adds a session that a producer has opened.
    ///
    /// # Errors
    /// If a recording of another host is being written in the same directory, or in one above or
    /// below it: each of the two could move and delete what lies in its directory.
    pub fn add_session(&self, session: Arc<Session>) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(&session);
        let mut sessions = root.0.lock();
        check_not_excluded(&session, &active(&mut sessions))?;
        session.recording().expect_chunk();
        sessions.push(Arc::downgrade(&session));
        self.sessions.write().insert(session.id(), session);
        // What it has requested before was looked for in vain.
        self.periodic.add();
        drop(sessions);
        self.subscriptions.lock().notify();
        Ok(())
    }

    /// Prepares for a session that is about to create a chunk. While the session had no chunk,
    /// another recording may have begun in its directory. With `rotates` the session has a chunk
    /// already, and must be the only one in its directory.
    ///
    /// # Errors
    /// If it conflicts with a recording that it does not take over from.
    pub fn begin_chunk(
        &self,
        session: &Arc<Session>,
        rotates: bool,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let active = active(&mut sessions);
        check_not_excluded(session, &active)?;
        let claimed = session.recording().claims.lock().directories();
        let conflicts = |other: &Session| {
            rotates && session.shares_directory_with(other)
                || session.is_rival(other) && {
                    let theirs = other.recording().claims.lock();
                    claimed.iter().any(|directory| theirs.overlap(directory))
                }
        };
        self.take_over(session, &active, conflicts, now)?;
        // From here on the directory counts as used, although the chunk does not exist yet.
        session.recording().expect_chunk();
        Ok(())
    }

    /// Prepares for a session that is about to have a chunk moved to the archives, for which it
    /// must be the only one in its directory.
    ///
    /// # Errors
    /// If it conflicts with a recording that it does not take over from.
    pub fn begin_archiving(
        &self,
        session: &Arc<Session>,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let conflicts = |other: &Session| session.shares_directory_with(other);
        self.take_over(session, &active(&mut sessions), conflicts, now)
    }

    /// Calls `begin` if no other recording has the directory of a session. No other session of the
    /// same root begins meanwhile. The directory may not have anything in it either: a recording
    /// that has ended.
    ///
    /// # Errors
    /// If another recording has the directory.
    pub(super) fn begin_alone<T>(
        &self,
        session: &Session,
        begin: impl FnOnce() -> T,
    ) -> Result<T, DirectoryInUse> {
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let uses = |other: &Arc<Session>| {
            let is_same = session.identity().directory == other.identity().directory;
            let has_begun = || other.is_resumable() || !other.recording().claims.lock().is_empty();
            is_same && !Arc::ptr_eq(session.recording(), other.recording()) && has_begun()
        };
        let own = session.identity().directory.as_ref();
        let own = own.map(|own| self.settings().output.join(own));
        if active(&mut sessions).iter().any(uses) || own.is_some_and(|own| !is_empty(&own)) {
            return Err(DirectoryInUse);
        }
        Ok(begin())
    }

    /// Claims a directory for the recording of a session, which is about to write below it. The
    /// directory is relative to the relay's output.
    ///
    /// # Errors
    /// If a recording that the session does not take over from writes in the directory, or in one
    /// above or below it.
    pub fn claim(
        &self,
        session: &Arc<Session>,
        directory: &Path,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let claims = &session.recording().claims;
        // Every stream claims its directory, and most of them the same few.
        if claims.lock().contains(directory) {
            return Ok(());
        }
        let root = self.sessions_by_root.of(session);
        let mut sessions = root.0.lock();
        let conflicts = |other: &Session| {
            session.is_rival(other) && other.recording().claims.lock().overlap(directory)
        };
        self.take_over(session, &active(&mut sessions), conflicts, now)?;
        // Only when the recordings that were there have ended.
        claims.lock().add(directory);
        Ok(())
    }

    /// Ends the recordings of the active sessions that conflict, if the session's daemon has
    /// succeeded theirs.
    fn take_over(
        &self,
        session: &Arc<Session>,
        active: &[Arc<Session>],
        conflicts: impl Fn(&Session) -> bool,
        now: EpochSeconds,
    ) -> Result<(), Occupied> {
        let rivals: Vec<_> = active.iter().filter(|other| conflicts(other)).collect();
        // All or none: a recording is not ended for a session that is refused because of another.
        if let Some(rival) = rivals.iter().find(|rival| !session.succeeds(rival)) {
            return Err(Occupied(Arc::clone(rival)));
        }
        for rival in rivals {
            let recording = rival.recording();
            let is_of_recording = |old: &&Arc<Session>| Arc::ptr_eq(old.recording(), recording);
            // Kernel and user-space sessions of a recording write to the chunks that are archived
            // below.
            for old in active.iter().filter(is_of_recording) {
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

    /// Ends a session whose producer is dead: closes its connections, writes what has arrived, and
    /// closes its files.
    fn end_superseded(&self, session: &Arc<Session>) {
        self.sessions.write().remove(&session.id());
        self.lingering
            .lock()
            .retain(|(_, other)| !Arc::ptr_eq(other, session));
        self.subscriptions.lock().notify();
        session.supersede();
        self.forget_all_closed(session);
        self.forget_resumable(session);
    }
}

/// Whether a directory has nothing in it. One that cannot be read is not empty.
fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

fn check_not_excluded(session: &Session, active: &[Arc<Session>]) -> Result<(), Occupied> {
    match active.iter().find(|other| session.is_excluded_by(other)) {
        Some(other) => Err(Occupied(Arc::clone(other))),
        None => Ok(()),
    }
}
