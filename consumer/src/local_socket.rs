//! Unix sockets on which only processes of the same user can connect.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as BlockingListener, UnixStream as BlockingStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tokio::net::UnixListener;
use tracing::debug;

/// Connections that the kernel queues until they are accepted.
const LISTEN_BACKLOG: i32 = 16;

/// The file of a listening socket. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Listens at a path. The stale socket of a process that was killed is replaced.
///
/// # Errors
/// If another process listens there, or the path is not a socket.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale_socket(path)?;
    let listener = bind(path)?;
    let path = path.to_owned();
    let file = SocketFile { path };
    Ok((UnixListener::from_std(listener)?, file))
}

/// Binds a socket that other users cannot connect to at any moment: the mode is set before `bind`,
/// which gives it to the file.
fn bind(path: &Path) -> io::Result<BlockingListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, LISTEN_BACKLOG)?;
    Ok(socket.into())
}

/// Removes the socket of a process that was killed: a socket on which no process listens. Nothing
/// else is removed.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let message = "the path exists and is not a socket";
        return Err(io::Error::new(ErrorKind::AlreadyExists, message));
    }
    // The file outlives its process, so only an attempt to connect shows whether one listens.
    match BlockingStream::connect(path) {
        Ok(_) => {
            let message = "another agent listens on it";
            Err(io::Error::new(ErrorKind::AddrInUse, message))
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}
