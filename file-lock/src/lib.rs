//! Advisory locks of whole files, by flock(2): writers of traces hold exclusive ones, readers shared ones, as the
//! programs of LTTng and Babeltrace do. This is the only package that names `fs2`.
//!
//! A lock belongs to the open file, not to the process, and ends when its last descriptor is closed. No
//! function waits for another holder.

use std::fs::File;
use std::io;

use fs2::FileExt;

/// Takes an exclusive lock. Returns false if another open file holds a lock.
///
/// # Errors
/// If the file system has no locks, or a signal interrupts the call.
pub fn try_lock_exclusive(file: &File) -> io::Result<bool> {
    is_taken(FileExt::try_lock_exclusive(file))
}

/// Takes a shared lock. Returns false if another open file holds an exclusive one.
///
/// # Errors
/// If the file system has no locks, or a signal interrupts the call.
pub fn try_lock_shared(file: &File) -> io::Result<bool> {
    is_taken(FileExt::try_lock_shared(file))
}

/// Releases the lock of an open file, if it holds one. A signal does not interrupt the call.
///
/// # Errors
/// If the file system has no locks.
pub fn unlock(file: &File) -> io::Result<()> {
    loop {
        match FileExt::unlock(file) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn is_taken(locked: io::Result<()>) -> io::Result<bool> {
    match locked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
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

    #[test]
    fn locks_are_those_of_the_standard_library() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (writer, reader) = (file.reopen().unwrap(), file.reopen().unwrap());
        writer.try_lock().unwrap();
        assert!(!try_lock_shared(&reader).unwrap());
        drop(writer);
        assert!(try_lock_shared(&reader).unwrap());
    }
}
