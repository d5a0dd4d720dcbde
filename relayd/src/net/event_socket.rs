//! A socket that is registered with the event loop only while something waits for it. A socket that is not
//! registered causes no wake-ups while packets are coalesced, and can move to another worker's event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connected socket, registered with the event loop of the current worker or with none.
#[derive(Debug)]
pub(super) enum EventSocket {
    Registered(TcpStream),
    Deregistered(std::net::TcpStream),
    /// Registering or deregistering has failed, and the socket is closed.
    Lost,
}

impl EventSocket {
    /// Removes the socket from the event loop.
    pub(super) fn deregister(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Self::Registered(socket) => socket.into_std().map(Self::Deregistered),
            other => Ok(other),
        })
    }

    /// Waits until the socket has become readable since the last call. Registers it first if need be; then it is
    /// readable at once if there is anything to read.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Self::Deregistered(socket) => TcpStream::from_std(socket).map(Self::Registered),
            other => Ok(other),
        })?;
        let Self::Registered(socket) = self else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket.readable().await?;
        // Clears tokio's readiness. The caller reads until nothing is left, by `recv` and past tokio.
        let clear = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = socket.try_io(Interest::READABLE, clear);
        Ok(())
    }

    /// The file descriptor of the socket.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Registered(socket) => Ok(socket.as_fd()),
            Self::Deregistered(socket) => Ok(socket.as_fd()),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn change(&mut self, into: impl FnOnce(Self) -> io::Result<Self>) -> io::Result<()> {
        *self = into(std::mem::replace(self, Self::Lost))?;
        Ok(())
    }
}
