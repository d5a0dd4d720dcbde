//! The connection to a relay, of whichever kind the target names.

use std::time::Instant;

use bytes::Buf;

use super::connection_pair::ConnectionPair;
use super::error::UplinkError;
use super::quic_connection::QuicConnection;
use super::relay_selector::SelectedRelay;
use super::send_queue::{PacketOrigin, SendQueue};
use super::target::{Link, RelayTarget};

/// A connection to a relay, for commands and packets.
#[derive(Debug)]
pub(super) enum Connection {
    /// Two TCP connections, with TLS or without.
    Pair(ConnectionPair),
    /// One QUIC connection for commands and packets.
    Quic(Box<QuicConnection>),
}

impl Connection {
    /// Connects to a relay of the target.
    pub(super) async fn connect(
        target: &RelayTarget,
        relay: &SelectedRelay,
    ) -> Result<Self, UplinkError> {
        Ok(match target.link {
            Link::Quic => Self::Quic(Box::new(QuicConnection::connect(target, relay).await?)),
            Link::Tcp => {
                let files = target.tls.as_ref();
                Self::Pair(ConnectionPair::connect(relay, files).await?)
            }
        })
    }

    /// Writes as much of `out` as the connection takes now. Returns whether it took anything.
    pub(super) fn write(&mut self, out: &mut SendQueue) -> Result<bool, UplinkError> {
        match self {
            Self::Pair(pair) => pair.write(out),
            Self::Quic(quic) => quic.write(out),
        }
    }

    /// Reads the replies that have arrived. Returns whether there were any.
    pub(super) fn read(&mut self) -> Result<bool, UplinkError> {
        match self {
            Self::Pair(pair) => pair.read(),
            Self::Quic(quic) => quic.read(),
        }
    }

    /// Parses the replies that have been read. `parse` advances its argument over the bytes that it
    /// uses.
    pub(super) fn parse_replies<T, E>(
        &mut self,
        parse: impl FnOnce(&mut &[u8]) -> Result<T, E>,
    ) -> Result<T, E> {
        let replies = match self {
            Self::Pair(pair) => pair.replies(),
            Self::Quic(quic) => quic.replies(),
        };
        let mut input = &replies[..];
        let parsed = parse(&mut input)?;
        let used = replies.len() - input.len();
        replies.advance(used);
        Ok(parsed)
    }

    /// Waits until there are replies to read, or the connection can take, or has taken, more of
    /// `out`.
    pub(super) async fn wait_ready(&mut self, out: &mut SendQueue) -> Result<(), UplinkError> {
        match self {
            Self::Pair(pair) => pair.wait_ready(out).await,
            Self::Quic(quic) => quic.wait_ready(out).await,
        }
    }

    /// Returns when the next packet is late. Absent if none can be.
    pub(super) fn next_late(&self, out: &SendQueue) -> Option<Instant> {
        match self {
            Self::Pair(_) => None,
            Self::Quic(quic) => quic.next_late(out),
        }
    }

    /// Sends all packets, however late they are. Returns whether there was a deadline.
    pub(super) fn remove_deadline(&mut self) -> bool {
        match self {
            Self::Pair(_) => false,
            Self::Quic(quic) => quic.remove_deadline(),
        }
    }

    /// Takes the packets that were abandoned because they were late.
    pub(super) fn take_abandoned(&mut self) -> Vec<PacketOrigin> {
        match self {
            Self::Pair(_) => Vec::new(),
            Self::Quic(quic) => quic.take_abandoned(),
        }
    }

    /// Ends the connection; over QUIC, waits until the relay should know.
    pub(super) async fn close(self) {
        match self {
            Self::Pair(_) => {}
            Self::Quic(quic) => quic.close().await,
        }
    }
}
