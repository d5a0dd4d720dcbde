//! Advisory locks of whole files, by flock(2): writers of traces hold exclusive ones, readers
//! shared ones, as the programs of LTTng and Babeltrace do: those of the standard library, with an
//! answer that is true or false.
//!
//! A lock belongs to the open file, not to the process, and ends when its last descriptor is
//! closed. No function waits for another holder.

use std::fs::{File, TryLockError};
use std::io;

/// Takes an exclusive lock. Returns false if another open file holds a lock.
///
/// # Errors
/// If the file system has no locks, or a signal interrupts the call.
pub fn try_lock_exclusive(file: &File) -> io::Result<bool> {
    is_taken(file.try_lock())
}

/// Takes a shared lock. Returns false if another open file holds an exclusive one.
///
/// # Errors
/// If the file system has no locks, or a signal interrupts the call.
pub fn try_lock_shared(file: &File) -> io::Result<bool> {
    is_taken(file.try_lock_shared())
}

/// Releases the lock of an open file, if it holds one. A signal does not interrupt the call.
///
/// # Errors
/// If the file system has no locks.
pub fn unlock(file: &File) -> io::Result<()> {
    loop {
        match file.unlock() {
            // No caller tries this again, and a lock that stays would shut others out.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn is_taken(locked: Result<(), TryLockError>) -> io::Result<bool> {
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_excludes_all_others_until_it_is_released() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (writer, reader) = (file.reopen().unwrap(), file.reopen().unwrap());
        assert!(try_lock_exclusive(&writer).unwrap());
        assert!(!try_lock_exclusive(&reader).unwrap());
        assert!(!try_lock_shared(&reader).unwrap());
        unlock(&writer).unwrap();
        assert!(try_lock_shared(&reader).unwrap());
        assert!(!try_lock_exclusive(&writer).unwrap());
    }
}
