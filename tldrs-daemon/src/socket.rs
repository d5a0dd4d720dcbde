//! The daemon's sockets: made, guarded by a lock beside each, removed again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, chmodat, flock};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use thiserror::Error;
use tracing::{debug, warn};

use crate::limits::LISTEN_BACKLOG;

/// What the lock's name has behind the socket's.
const LOCK: &str = ".lock";

/// How often it is tried again when the lock is removed while it is being taken.
const LOCK_TRIES: usize = 16;

/// Why there cannot be a socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another daemon of ours holds the lock.
    #[error("{}: another daemon listens there", .0.display())]
    Locked(PathBuf),
    /// Somebody without our lock does.
    #[error("{}: another program listens there", .0.display())]
    Taken(PathBuf),
    /// Something that is no socket; it is not ours to remove.
    #[error("{}: there is something else than a socket", .0.display())]
    NoSocket(PathBuf),
    /// As the system says.
    #[error("{}: cannot listen", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket in the file system. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    pub(crate) guard: Guard,
}

/// The names of a socket, and of its lock.
#[derive(Debug)]
pub(crate) struct Guard {
    path: PathBuf,
    /// The file's, to tell it from one that has taken its place.
    identity: (u64, u64),
    _lock: Lock,
}

/// Held as long as the socket is there. Dropping it removes it.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
}

impl Socket {
    /// Listens at this path. A socket that a dead daemon has left there is removed.
    pub(crate) fn listen(path: &Path, mode: u32) -> Result<Self, SocketError> {
        let failed = |source: io::Error| SocketError::Listen {
            path: path.to_owned(),
            source,
        };
        let lock = Lock::take(path)?;
        remove_stale(path)?;
        let listener = listen_at(path, mode).map_err(failed)?;
        let metadata = path.symlink_metadata().map_err(failed)?;
        let guard = Guard {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            _lock: lock,
        };
        Ok(Self { listener, guard })
    }
}

impl Guard {
    /// Takes the socket away, so that nobody can connect any more; the lock stays.
    pub(crate) fn remove(&self) {
        let is_ours = |metadata: fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if self.path.symlink_metadata().is_ok_and(is_ours)
            && let Err(error) = fs::remove_file(&self.path)
        {
            warn!(socket = %self.path.display(), %error, "not removed");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Lock {
    fn take(socket: &Path) -> Result<Self, SocketError> {
        let mut path = socket.as_os_str().to_owned();
        path.push(LOCK);
        let path = PathBuf::from(path);
        let failed = |source: io::Error| SocketError::Listen {
            path: path.clone(),
            source,
        };
        for _ in 0..LOCK_TRIES {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                // A pipe that somebody has put there must not keep us waiting for its reader.
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
                .open(&path)
                .map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(SocketError::Locked(socket.to_owned()));
                }
                Err(error) => return Err(failed(error.into())),
            }
            // A daemon that ended just now may have removed the file that is locked.
            let held = file.metadata().map_err(failed)?;
            let is_there = path
                .symlink_metadata()
                .is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino()));
            if is_there {
                return Ok(Self { path, _file: file });
            }
        }
        Err(SocketError::Locked(socket.to_owned()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(lock = %self.path.display(), %error, "not removed");
        }
    }
}

/// Removes a socket on which nobody listens.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let failed = |source: io::Error| SocketError::Listen {
        path: path.to_owned(),
        source,
    };
    match path.symlink_metadata() {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(SocketError::NoSocket(path.to_owned()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            debug!(socket = %path.display(), "left behind: removed");
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn listen_at(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &address)?;
    // Nobody can connect before it listens.
    let prepared = chmodat(
        CWD,
        path,
        Mode::from_raw_mode(mode),
        rustix::fs::AtFlags::empty(),
    )
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
