//! A socket that is registered with the event loop only while something waits for it. A socket that
//! is not registered causes no wake-ups while packets are coalesced, and can move to another
//! worker's event loop. With TLS it decrypts what it receives.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use tokio::io::Interest;
use tokio::net::TcpStream;
use transport::codec::TlsCodec;

/// A connected socket, encrypted or not.
#[derive(Debug)]
pub(super) struct EventSocket {
    registration: Registration,
    /// The TLS of an encrypted connection.
    tls: Option<Box<TlsCodec>>,
}

/// A socket that is registered with the event loop of the current worker or with none.
#[derive(Debug)]
enum Registration {
    Registered(TcpStream),
    Deregistered(std::net::TcpStream),
    /// Registering or deregistering has failed, and the socket is closed.
    Lost,
}

impl EventSocket {
    /// A socket that is registered with the event loop of the current worker.
    pub(super) fn new(socket: TcpStream, tls: Option<Box<TlsCodec>>) -> Self {
        let registration = Registration::Registered(socket);
        Self { registration, tls }
    }

    /// Removes the socket from the event loop.
    pub(super) fn deregister(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Registration::Registered(socket) => socket.into_std().map(Registration::Deregistered),
            other => Ok(other),
        })
    }

    /// Waits until the socket has become readable since the last call. Registers it first if need
    /// be; then it is readable at once if there is anything to read.
    pub(super) async fn readable(&mut self) -> io::Result<()> {
        self.change(|socket| match socket {
            Registration::Deregistered(socket) => {
                TcpStream::from_std(socket).map(Registration::Registered)
            }
            other => Ok(other),
        })?;
        let Registration::Registered(socket) = &self.registration else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        socket.readable().await?;
        // The caller reads until nothing is left, by `recv` and past tokio.
        self.clear_readable();
        Ok(())
    }

    /// Lets [`readable`](Self::readable) wait for bytes that arrive after this call.
    pub(super) fn clear_readable(&self) {
        if let Registration::Registered(socket) = &self.registration {
            // tokio forgets that a socket is readable when a call would block.
            let clear = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = socket.try_io(Interest::READABLE, clear);
        }
    }

    /// Receives bytes without waiting. A result that leaves room in the buffer has emptied the
    /// socket. 0 means that the peer has ended the connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is nothing, `Interrupted` if others should run before the next call;
    /// else the connection is lost.
    pub(super) fn recv(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let fd = self.registration.fd()?;
        let Some(tls) = &mut self.tls else {
            return Ok(recv(fd, into, RecvFlags::DONTWAIT)?.1);
        };
        let received = tls.read(into, |into| Ok(recv(fd, into, RecvFlags::DONTWAIT)?.1));
        // Alerts and changes of keys. What the socket does not take leaves with the next ones.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = tls.flush(&mut |pieces| {
            Ok(sendmsg(
                fd,
                pieces,
                &mut SendAncillaryBuffer::default(),
                flags,
            )?)
        });
        received
    }

    /// The socket, for a call that receives bytes past [`recv`](Self::recv). Not for an encrypted
    /// connection.
    ///
    /// # Errors
    /// If the socket is closed.
    pub(super) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.registration.fd()
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether there is nothing to receive now.
    ///
    /// # Errors
    /// If the socket is closed.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(ioctl_fionread(self.registration.fd()?)? == 0)
    }

    fn change(
        &mut self,
        into: impl FnOnce(Registration) -> io::Result<Registration>,
    ) -> io::Result<()> {
        // Lost for the moment: if the change fails, the socket is closed with it.
        let before = std::mem::replace(&mut self.registration, Registration::Lost);
        self.registration = into(before)?;
        Ok(())
    }
}

impl Registration {
    fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        match self {
            Self::Registered(socket) => Ok(socket.as_fd()),
            Self::Deregistered(socket) => Ok(socket.as_fd()),
            Self::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}
