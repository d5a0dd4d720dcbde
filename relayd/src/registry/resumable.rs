//! What makes a session outlive its connections: which connection it belongs to, and what is kept
//! of it for the next one. `doc/protocol-extensions.md` has the commands.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::store::chunk::Holding;
use crate::store::session_log::SessionLog;

/// The control connection that a session belongs to.
#[derive(Debug)]
pub(super) struct Owner {
    /// Number of the connection among those that the session has had.
    pub(super) generation: u64,
    /// Token that is cancelled to end the connections of the session.
    pub(super) connections: CancellationToken,
    /// Address of the producer.
    pub(super) address: IpAddr,
    pub(super) attachment: Attachment,
}

/// Whether the owner of a session is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    Attached,
    /// The session ends at this time, unless its producer resumes it before.
    Detached {
        until: Instant,
    },
    /// The session cannot be resumed any more.
    Ended,
}

/// The outcome for a session when a control connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DetachOutcome {
    /// The session stays as it is: it belongs to another connection, or is over.
    NotOwner,
    /// The session is kept for its producer.
    Detached,
    /// The session ends with the connection.
    Ends,
}

impl Owner {
    pub(super) fn new(connections: CancellationToken, address: IpAddr) -> Self {
        Self {
            generation: 0,
            connections,
            address,
            attachment: Attachment::Attached,
        }
    }
}

/// The part of a session that makes it resumable.
#[derive(Debug)]
pub struct Resumable {
    /// The changes of the session that the next relay must know.
    pub log: Arc<SessionLog>,
    /// Time for which the session is kept without a connection.
    pub timeout: Duration,
    /// The chunk of the session, as long as it is not closed. None: it has not been created, or is
    /// closed.
    pub chunk: Mutex<Option<Holding>>,
}
