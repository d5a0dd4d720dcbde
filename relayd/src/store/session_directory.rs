//! The lock of a session's directory, by which relays with the same output tell each other that the
//! session is open. Between two chunks (`lttng stop; lttng rotate`) a session has neither an open
//! file nor a marker: its files do not show that it goes on. The lock is a shared one, because
//! sessions of one recording have the same directory; [`retention`](super::retention) takes an
//! exclusive one to remove the directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use wire::TracePath;

use super::pool::{FileId, Pool, PooledFile};
use super::{StoreError, make_directory};

/// Number of components of a session's directory below the output: host and session.
pub(super) const COMPONENTS: usize = 2;

/// Attempts to lock a directory. Each but the last fails because retention has just removed the
/// directory.
const MAX_ATTEMPTS: usize = 8;

/// The directory of a session, which no relay removes as long as this value exists.
#[derive(Debug)]
pub struct SessionDirectory {
    _locked: Arc<PooledFile>,
}

impl SessionDirectory {
    /// Creates a directory of a session below the output, and locks the part of it that retention
    /// removes as a whole. The descriptor counts in the pool.
    ///
    /// # Errors
    /// If the directory cannot be created or opened.
    pub fn create(
        output: &Path,
        directory: &TracePath,
        pool: &Arc<Pool>,
    ) -> Result<Self, StoreError> {
        let absolute = output.join(directory);
        let session = output.join(session_of(directory.as_ref()));
        let mut failure = io::Error::other("it is being removed");
        for _ in 0..MAX_ATTEMPTS {
            let made = make_directory(&absolute).map_err(|error| error.source);
            let locked = made.and_then(|()| lock(&session, pool));
            match locked {
                Ok(Some(locked)) => return Ok(Self { _locked: locked }),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => failure = error,
                Err(error) => {
                    failure = error;
                    break;
                }
            }
        }
        Err(StoreError::on("make directory", &absolute)(failure))
    }
}

/// The directory of the session that a directory, relative to the output, is or lies in.
pub(super) fn session_of(directory: &Path) -> PathBuf {
    directory.components().take(COMPONENTS).collect()
}

/// Opens and locks the directory of a session. None: retention has the directory, or has removed
/// it.
fn lock(session: &Path, pool: &Arc<Pool>) -> io::Result<Option<Arc<PooledFile>>> {
    let file = pool.open(|| open(session))?;
    // An error: the file system has no locks, and no other relay is assumed.
    if matches!(file_lock::try_lock_shared(&file), Ok(false)) {
        return Ok(None);
    }
    // Retention may have renamed the directory between open(2) and the lock.
    let is_present = FileId::of(&file)? == FileId::of(&open(session)?)?;
    Ok(is_present.then_some(file))
}

/// Opens the directory of a session.
pub(super) fn open(session: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::open(session, flags, Mode::empty()))?;
    Ok(File::from(opened))
}

#[cfg(test)]
mod tests {
    use wire::Text;

    use super::*;

    #[test]
    fn a_directory_that_retention_removes_is_created_again_and_locked() {
        let output = tempfile::tempdir().unwrap();
        let directory = TracePath::parse(&Text::from("host/base/path")).unwrap();
        let session = output.path().join("host/base");
        let pool = Pool::new(100);
        let first = SessionDirectory::create(output.path(), &directory, &pool).unwrap();
        let second = SessionDirectory::create(output.path(), &directory, &pool).unwrap();
        let removed = open(&session).unwrap();
        drop(first);
        assert!(!file_lock::try_lock_exclusive(&removed).unwrap());
        drop(second);
        assert!(file_lock::try_lock_exclusive(&removed).unwrap());
        assert!(SessionDirectory::create(output.path(), &directory, &pool).is_err());
        std::fs::rename(&session, output.path().join("host/.removed")).unwrap();
        let _third = SessionDirectory::create(output.path(), &directory, &pool).unwrap();
        let created = open(&session).unwrap();
        assert!(!file_lock::try_lock_exclusive(&created).unwrap());
        assert_eq!(pool.open_files().0, 1);
    }
}
