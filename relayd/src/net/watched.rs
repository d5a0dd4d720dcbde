//! A socket that is not watched all the time: the thread is woken by what comes on it while it is.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connection that is watched, or not. To go to another thread it must not be.
#[derive(Debug)]
pub(super) enum Socket {
    Watched(TcpStream),
    Unwatched(std::net::TcpStream),
    /// It could not be changed from the one to the other.
    Lost,
}

impl Socket {
    /// From now on, nobody is woken.
    pub(super) fn ignore(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Self::Watched(socket) => socket.into_std().map(Self::Unwatched),
            other => Ok(other),
        })
    }

    /// Waits until something may have come since the last time. What is there already has come.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Self::Unwatched(socket) => TcpStream::from_std(socket).map(Self::Watched),
            other => Ok(other),
        })?;
        let Self::Watched(socket) = self else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket.readable().await?;
        // Whoever reads until nothing is left need not ask again to be told of more.
        let seen = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = socket.try_io(Interest::READABLE, seen);
        Ok(())
    }

    /// The system's.
    pub(super) fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Watched(socket) => Ok(socket.as_fd()),
            Self::Unwatched(socket) => Ok(socket.as_fd()),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn change(&mut self, into: impl FnOnce(Self) -> io::Result<Self>) -> io::Result<()> {
        *self = into(std::mem::replace(self, Self::Lost))?;
        Ok(())
    }
}
