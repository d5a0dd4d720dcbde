//! The options for following a relay.

use std::time::Duration;

use viewer_proto::session::Seek;

use super::MemoryBudget;

/// The options for following a relay.
#[derive(Debug, Clone)]
pub struct RelayOptions {
    /// The place to begin in sessions that are there already. Later ones are read from their
    /// beginning.
    pub seek: Seek,
    /// The action if there is no such session to begin with.
    pub missing: Missing,
    /// Whether to wait for other sessions when all have ended.
    pub follow: bool,
    /// Whether to connect again and again when the relay is not there at first.
    pub retry: bool,
    /// How long to reconnect when the connection is lost; zero: not at all. Absent: for ever.
    pub reconnect_timeout: Option<Duration>,
    /// Backoff before the first reconnect. Each further one is twice as long.
    pub min_backoff: Duration,
    /// Longest backoff before a reconnect.
    pub max_backoff: Duration,
    /// Time after a reconnect in which the relay may announce again what was followed. A relay that
    /// has been restarted restores its sessions first.
    pub grace_period: Duration,
    /// Time after the loss of a connection from which the events of other sources do not wait any
    /// longer for those of this relay. Absent: they wait until it is back.
    pub hold_timeout: Option<Duration>,
    /// Timeout of name resolution, connecting and the handshake together.
    pub connect_timeout: Duration,
    /// Timeout of a relay that sends nothing while a reply is pending. Old relays serve all viewers
    /// in turn, so that a reply may take long.
    pub reply_timeout: Duration,
    /// Whether to let the relay notify of new packets, if it can, instead of polling it.
    pub push: bool,
    /// Whether to report when all that was there at first has been handed over.
    pub reports_catch_up: bool,
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
            reconnect_timeout: Some(Duration::ZERO),
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            grace_period: Duration::from_secs(5),
            hold_timeout: None,
            connect_timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(60),
            push: true,
            reports_catch_up: false,
            memory: MemoryBudget::default(),
        }
    }
}
