//! The daemon's sockets, each with a lock file: makes and removes them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, chmodat};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use thiserror::Error;
use tracing::{debug, warn};

use crate::limits::LISTEN_BACKLOG;

/// Suffix of the path of the lock file, after the path of the socket.
const LOCK: &str = ".lock";

/// Attempts to take the lock. Each fails only if the previous holder removes the file at that
/// moment.
const LOCK_TRIES: usize = 16;

/// A socket cannot be listened on.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon holds the lock.
    #[error("cannot listen on {}: another tldrs daemon listens there", .0.display())]
    Locked(PathBuf),
    /// A program that does not use the lock listens there.
    #[error("cannot listen on {}: another program listens there", .0.display())]
    Taken(PathBuf),
    /// The path is something other than a socket, which is not removed.
    #[error("cannot listen on {}: it exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses to let the daemon listen.
    #[error("cannot listen on {}", path.display())]
    Listen {
        /// Path of the socket or its lock.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// A socket in the file system. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    pub(crate) guard: SocketGuard,
}

/// The files of a socket and its lock. Dropping it removes both.
#[derive(Debug)]
pub(crate) struct SocketGuard {
    path: PathBuf,
    /// Device and inode of the socket, to tell it from another socket at the same path.
    identity: (u64, u64),
    _lock: LockFile,
}

/// The lock file, locked for as long as the socket exists. Dropping it removes the file.
#[derive(Debug)]
struct LockFile {
    path: PathBuf,
    _file: File,
}

impl Socket {
    /// Listens at this path. The stale socket of a daemon that has died is removed.
    pub(crate) fn listen(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let failed = listen_error(path);
        let lock = LockFile::acquire(path)?;
        remove_stale(path)?;
        let listener = listen_at(path, mode).map_err(&failed)?;
        let metadata = path.symlink_metadata().map_err(failed)?;
        let guard = SocketGuard {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            _lock: lock,
        };
        Ok(Self { listener, guard })
    }
}

impl SocketGuard {
    /// Removes the socket, so that no client can connect any more; the lock stays.
    pub(crate) fn remove(&self) {
        let is_ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if self.path.symlink_metadata().is_ok_and(is_ours)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        // The lock is dropped after this: no other daemon can make a socket at the path before it
        // is removed.
        self.remove();
    }
}

impl LockFile {
    fn acquire(socket: &Path) -> Result<Self, SocketError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(LOCK);
        let path = PathBuf::from(path);
        let failed = listen_error(&path);
        for _ in 0..LOCK_TRIES {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // Opening a pipe that another user has put there must not block.
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(&path)
                .map_err(&failed)?;
            if !file_lock::try_lock_exclusive(&file).map_err(&failed)? {
                return Err(SocketError::Locked(socket.to_owned()));
            }
            // The daemon that held the lock before may have removed the file between open and lock.
            // A lock on a removed file excludes no other daemon.
            let held = file.metadata().map_err(&failed)?;
            let is_current = path
                .symlink_metadata()
                .is_ok_and(|found| (found.dev(), found.ino()) == (held.dev(), held.ino()));
            if is_current {
                let path = path.clone();
                return Ok(Self { path, _file: file });
            }
        }
        Err(SocketError::Locked(socket.to_owned()))
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(lock = %self.path.display(), %error, "cannot remove the lock file");
        }
    }
}

/// Removes a socket on which no process listens.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = listen_error(path);
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    // Connecting is the only way to find out whether a process listens: the file of a socket stays
    // when its process dies.
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            debug!(socket = %path.display(), "stale socket removed");
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Returns the conversion of errors of the system about this path.
fn listen_error(path: &Path) -> impl Fn(io::Error) -> SocketError {
    move |source| SocketError::Listen {
        path: path.to_owned(),
        source,
    }
}

fn listen_at(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &address)?;
    // The mode is set before `listen`: until then no client can connect.
    let prepared = chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())
        .and_then(|()| listen(&socket, LISTEN_BACKLOG));
    if let Err(error) = prepared {
        let _ = fs::remove_file(path);
        return Err(error.into());
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn socket_is_removed_when_its_owner_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = Socket::listen(&path, 0o600).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert!(matches!(
            Socket::listen(&path, 0o600),
            Err(SocketError::Locked(_))
        ));
        drop(socket);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        fs::write(directory.path().join("socket.lock"), "").unwrap();
        let _socket = Socket::listen(&path, 0o666).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn socket_or_file_of_others_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            Socket::listen(&path, 0o600),
            Err(SocketError::Taken(_))
        ));
        drop(other);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Socket::listen(&path, 0o600),
            Err(SocketError::NoSocket(_))
        ));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let long = directory.path().join("x".repeat(120));
        assert!(matches!(
            Socket::listen(&long, 0o600),
            Err(SocketError::Listen { .. })
        ));
    }

    #[test]
    fn socket_of_another_listener_at_our_path_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = Socket::listen(&path, 0o600).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(socket);
        UnixStream::connect(&path).unwrap();
    }
}
