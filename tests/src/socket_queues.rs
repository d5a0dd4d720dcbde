//! The queues of TCP sockets of this host over IPv4, as `/proc/net/tcp` shows them.

use std::fs;
use std::net::{SocketAddr, TcpStream};

/// State of a listening socket (TCP_LISTEN).
const LISTENING: &str = "0A";

/// Bytes that this socket has sent, or is still to send, and that its peer has not acknowledged.
///
/// # Panics
/// If the socket is not connected.
#[must_use]
pub fn unacknowledged(socket: &TcpStream) -> u64 {
    let port = socket.local_addr().unwrap().port();
    let (sent, _) = queues(port, |state| state != LISTENING);
    sent
}

/// Connections to a listening socket that its program has not accepted.
///
/// # Panics
/// If nothing listens there.
#[must_use]
pub fn unaccepted(listening: SocketAddr) -> u64 {
    let (_, received) = queues(listening.port(), |state| state == LISTENING);
    received
}

/// Returns the send queue and the receive queue of a socket with this local port.
fn queues(port: u16, is_state: impl Fn(&str) -> bool) -> (u64, u64) {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    // sl local_address rem_address st tx_queue:rx_queue
    let mut found = sockets.lines().filter_map(|socket| {
        let mut fields = socket.split_whitespace().skip(1);
        let (_, local_port) = fields.next()?.split_once(':')?;
        let state = fields.nth(1)?;
        let (sent, received) = fields.next()?.split_once(':')?;
        let is_ours = u16::from_str_radix(local_port, 16).ok()? == port && is_state(state);
        let number = |queue| u64::from_str_radix(queue, 16).ok();
        is_ours.then_some((number(sent)?, number(received)?))
    });
    found.next().expect("there is such a socket")
}
