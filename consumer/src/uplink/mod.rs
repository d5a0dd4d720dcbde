//! Sends sessions to a relay: one task for each session, which speaks `relay-proto`. When the
//! connection is lost, the task goes on at the next relay of the list, with backoff when all have
//! been tried. The uplink looks into no packet, and does not know which frontend has made it.
//!
//! A relay with the resume extension keeps the session when its connection is lost. After a
//! reconnect the task resumes it: each stream continues with the packet that the relay expects next
//! (`doc/protocol-extensions.md`).
//!
//! Other relays close the session. The task then opens another one of the same name, with a later
//! creation time, and sends its state again: traces, streams and metadata, then the packets that
//! the relay had not confirmed. No packet is lost by that, but a packet may be in both sessions, if
//! it had arrived and its confirmation had not.
//!
//! Read in this order: `session` (the task), `relay_selector` (which relay is next), `handshake`,
//! `upload` (the commands and replies of one connection, a state machine without I/O),
//! `session_state` (what a reconnect resumes), `send_queue` and `connection` (bytes), with
//! `connection_pair` (TCP), and `quic_connection` with `transit` (QUIC). `exchange` is how every
//! connection begins. `reported_failures` is what the log has of those that fail. `greeting`,
//! `first_contact` and `relay_clock` have connections without a session.

mod backoff;
mod connection;
mod connection_pair;
mod creation_times;
mod endpoint_address;
mod error;
mod exchange;
mod first_contact;
mod greeting;
mod handshake;
mod quic_connection;
mod relay_clock;
mod relay_selector;
mod reported_failures;
mod send_queue;
mod session;
mod session_state;
pub mod target;
#[cfg(test)]
mod tests;
mod transit;
mod upload;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::creation_times::CreationTimes;
pub(crate) use self::endpoint_address::EndpointAddress;
pub(crate) use self::error::UplinkError;
use self::first_contact::report_first_contact;
pub(crate) use self::greeting::greet;
pub(crate) use self::relay_clock::{ClockConnection, ClockMeasurement, difference};
pub(crate) use self::relay_selector::{RelaySelector, SelectedRelay, resolve};
use self::session::{SessionTask, UplinkContext};
use self::target::RelayTarget;
use crate::queue::OpenedSession;
use crate::status::StatusRegistry;

/// The settings of the uplink.
#[derive(Debug, Clone)]
pub struct UplinkSettings {
    /// The addresses of the relays, and how they are reached.
    pub target: RelayTarget,
    /// How long a session may be without a connection before it is given up. If absent, it
    /// reconnects without a limit.
    pub reconnect_timeout: Option<Duration>,
}

/// Sends all sessions to a relay, until all openers are dropped and all sessions have ended.
///
/// When `give_up` is cancelled, packets that no relay has confirmed are lost, and counted as such.
pub async fn run(
    mut sessions: mpsc::UnboundedReceiver<OpenedSession>,
    settings: UplinkSettings,
    registry: StatusRegistry,
    give_up: CancellationToken,
) {
    // A command has a session at once, which reports failures itself.
    let is_agent = settings.reconnect_timeout.is_none();
    let context = Arc::new(UplinkContext {
        target: settings.target,
        reconnect_timeout: settings.reconnect_timeout,
        creation_times: CreationTimes::default(),
        registry,
        is_missed: AtomicBool::new(false),
    });
    let tasks = TaskTracker::new();
    let has_session = CancellationToken::new();
    if is_agent {
        let first_contact = report_first_contact(Arc::clone(&context), has_session.clone());
        tokio::spawn(first_contact);
    }
    while let Some(session) = sessions.recv().await {
        has_session.cancel();
        let session = SessionTask::new(session, Arc::clone(&context), give_up.clone());
        // A task for each session, so that one that waits for its relay holds up no other.
        tasks.spawn(session.run());
    }
    has_session.cancel();
    tasks.close();
    tasks.wait().await;
}
