//! Handshake timeout and read timeout of control and viewer connections.
//!
//! A peer has to complete its handshake within [`HANDSHAKE_TIMEOUT`] of connecting, and every
//! command within the read timeout of the command's first byte. Both limit the whole message, not
//! the time between two reads: a peer that sends a byte now and then gets no more time. Between
//! commands a connection may be idle for days. Data connections have no handshake; `data` applies
//! their read timeout.

use std::time::Duration;

use tokio::time::Instant;

use super::error::HANDSHAKE;
use crate::limits::HANDSHAKE_TIMEOUT;

/// The timeouts of one connection.
#[derive(Debug)]
pub(super) struct CommandTimeouts {
    connected: Instant,
    /// Time at which the first bytes of the command being received were seen. None between
    /// commands.
    command_begun: Option<Instant>,
    read_timeout: Duration,
}

/// The time until which a message must be complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// Name of the timeout, for the log.
    pub(super) name: &'static str,
    pub(super) timeout: Duration,
}

impl CommandTimeouts {
    /// The timeouts of a peer that has just connected.
    pub(super) fn new(read_timeout: Duration) -> Self {
        Self {
            connected: Instant::now(),
            command_begun: None,
            read_timeout,
        }
    }

    /// Restarts the read timeout: a command is complete, or the relay itself did not read for a
    /// while.
    pub(super) fn restart_read_timeout(&mut self) {
        self.command_begun = None;
    }

    /// Deadline of the next read. None between commands.
    pub(super) fn next_deadline(
        &mut self,
        is_handshake_done: bool,
        is_in_command: bool,
    ) -> Option<Deadline> {
        let deadline = |name, begun: Instant, timeout| Deadline {
            at: begun + timeout,
            name,
            timeout,
        };
        if !is_handshake_done {
            return Some(deadline(HANDSHAKE, self.connected, HANDSHAKE_TIMEOUT));
        }
        is_in_command.then(|| {
            let begun = *self.command_begun.get_or_insert_with(Instant::now);
            deadline("read", begun, self.read_timeout)
        })
    }
}
