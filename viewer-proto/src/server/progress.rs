//! What a connection needs next.

use wire::ViewerId;

use crate::relay::Awaited;

/// Outcome of a call to [`Connection::advance`](super::Connection::advance).
#[derive(Debug)]
pub enum Progress<P> {
    /// A command, or part of one, has been handled. Call again, even without further input.
    Advanced,
    /// The replies end with the head of a packet: its bytes must be sent before any other reply.
    Packet(P),
    /// The connection is a push connection, and has received its only command. It is to be handed
    /// over to the command connection with this id, which
    /// [`subscribe`](super::Connection::subscribe)s; if there is none, it is to be closed.
    Push(ViewerId),
    /// More bytes are needed.
    NeedsMore,
    /// The last command of the input requests an index whose packet is arriving. Call again with
    /// the same input when a change has been reported, or after a short time without one.
    PacketArriving,
    /// The relay must look up something before the next command can be handled. Call again with the
    /// same input when it has, whatever it has found.
    Awaits(Awaited),
}
