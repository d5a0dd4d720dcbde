//! The options for following a relay.

use std::time::Duration;

use viewer_proto::session::Seek;

use super::MemoryBudget;

/// The options for following a relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// The place to begin in sessions that are there already. Later ones are read from their beginning.
    pub seek: Seek,
    /// The action if there is no such session to begin with.
    pub missing: Missing,
    /// Whether to wait for other sessions when all have ended.
    pub follow: bool,
    /// Whether to connect again and again when the relay is not there or goes away.
    pub retry: bool,
    /// Timeout of name resolution, connecting and the handshake together.
    pub connect_timeout: Duration,
    /// Whether to let the relay notify of new packets, if it can, instead of polling it.
    pub push: bool,
    /// The memory that packets may take.
    pub memory: MemoryBudget,
}

/// The action if there is no such session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Wait for the session.
    Wait,
    /// Fail with an error.
    Fail,
    /// End without an error.
    End,
}

impl Default for RelayOptions {
    /// The options that `babeltrace2` has.
    fn default() -> Self {
        Self {
            seek: Seek::Last,
            missing: Missing::End,
            follow: false,
            retry: false,
            connect_timeout: Duration::from_secs(10),
            push: true,
            memory: MemoryBudget::default(),
        }
    }
}
