//! The two connections to a relay, control and data. Moves bytes and decides nothing.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use super::error::UplinkError;
use super::send_queue::SendQueue;
use super::target::{AddressFamily, RelayEndpoint, RelayTarget};
use crate::limits::{
    CONNECT_TIMEOUT, KEEP_ALIVE_COUNT, KEEP_ALIVE_IDLE, KEEP_ALIVE_INTERVAL, MAX_WRITE_SLICES,
};

/// Bytes of one read of replies; most replies have 4 bytes.
const READ_BYTES: usize = 4096;

/// The two connections to a relay.
#[derive(Debug)]
pub(super) struct ConnectionPair {
    control: TcpStream,
    data: TcpStream,
    /// Bytes of replies that have not been parsed yet.
    replies: BytesMut,
}

impl ConnectionPair {
    /// Connects to both ports.
    pub(super) async fn connect(target: &RelayTarget) -> Result<Self, UplinkError> {
        Ok(Self {
            control: connect(&target.control).await?,
            data: connect(&target.data).await?,
            replies: BytesMut::new(),
        })
    }

    /// Writes as much of `out` as the sockets take now. Returns whether they took anything.
    pub(super) fn write(&self, out: &mut SendQueue) -> Result<bool, UplinkError> {
        let mut some = false;
        // Packets first: the relay can use an index only when its packet has arrived.
        while !out.data.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_WRITE_SLICES];
            let filled = out.data.fill_slices(&mut slices);
            let gathered = slices.get(..filled).unwrap_or_default();
            match self.data.try_write_vectored(gathered) {
                Ok(written) => {
                    out.data.advance(written);
                    some = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        while !out.control.is_empty() {
            match self.control.try_write(&out.control) {
                Ok(written) => {
                    out.control.advance(written);
                    some = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(some)
    }

    /// Reads the replies that have arrived. Returns whether there were any.
    pub(super) fn read(&mut self) -> Result<bool, UplinkError> {
        let mut some = false;
        loop {
            self.replies.reserve(READ_BYTES);
            match self.control.try_read_buf(&mut self.replies) {
                Ok(0) => {
                    let connection = "control";
                    return Err(UplinkError::ConnectionClosed { connection });
                }
                Ok(_) => some = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        if some {
            // Relays of LTTng leave Nagle's algorithm on: they send a reply only after the TCP acknowledgement of
            // the previous one. The kernel delays it, unless quick acknowledgement is set again after each read.
            let _ = sockopt::set_tcp_quickack(&self.control, true);
        }
        Ok(some)
    }

    /// Parses the replies that have been read. `parse` advances its argument over the bytes that it uses.
    pub(super) fn parse_replies<T, E>(
        &mut self,
        parse: impl FnOnce(&mut &[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut input = &self.replies[..];
        let parsed = parse(&mut input)?;
        let used = self.replies.len() - input.len();
        self.replies.advance(used);
        Ok(parsed)
    }

    /// Waits until there are replies to read, or the sockets can take more of `out`.
    pub(super) async fn wait_ready(&self, out: &SendQueue) -> Result<(), UplinkError> {
        let interest = |is_empty: bool| {
            if is_empty {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            }
        };
        tokio::select! {
            ready = self.control.ready(interest(out.control.is_empty())) => { ready?; }
            ready = self.data.ready(interest(out.data.is_empty())) => {
                if ready?.is_readable() {
                    self.check_data_connection()?;
                }
            }
        }
        Ok(())
    }

    /// Checks whether the relay has closed the data connection; it never sends anything there.
    fn check_data_connection(&self) -> Result<(), UplinkError> {
        match self.data.try_read(&mut [0; READ_BYTES]) {
            Ok(0) => Err(UplinkError::ConnectionClosed { connection: "data" }),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

async fn connect(to: &RelayEndpoint) -> Result<TcpStream, UplinkError> {
    let failed = |source| UplinkError::Connect {
        to: to.clone(),
        source,
    };
    let within = CONNECT_TIMEOUT;
    let socket = timeout(within, connect_any(to)).await;
    let timeout = |_| UplinkError::ConnectTimeout {
        to: to.clone(),
        within,
    };
    let socket = socket.map_err(timeout)?.map_err(failed)?;
    // Commands are small: Nagle's algorithm would delay them.
    socket.set_nodelay(true).map_err(failed)?;
    if let Err(error) = enable_keep_alive(&socket) {
        debug!(%to, %error, "no keep-alive");
    }
    Ok(socket)
}

/// Tries the host's addresses of the family, one after another.
async fn connect_any(to: &RelayEndpoint) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((to.host.as_str(), to.port))
        .await?
        .filter(|address| address.is_ipv6() == (to.family == AddressFamily::V6))
        .collect();
    if addresses.is_empty() {
        let family = match to.family {
            AddressFamily::V4 => "IPv4",
            AddressFamily::V6 => "IPv6",
        };
        let message = format!("the host has no {family} address");
        return Err(io::Error::new(ErrorKind::AddrNotAvailable, message));
    }
    TcpStream::connect(&*addresses).await
}

fn enable_keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEP_ALIVE_COUNT)
}
