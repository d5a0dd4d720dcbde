//! Takes sessions to a relay: one task for each, that speaks `relay-proto`, and finds the relay again
//! when it is lost.
//!
//! A relay's session ends with the connection. When the relay is found again it is told everything
//! anew, in a session of the same name that was created later: traces, streams and metadata as far as
//! they are known, then the packets that were not confirmed before. Nothing is lost by that, but a
//! packet may be in both sessions: it had arrived, and the answer had not.
//!
//! Read `session` (the task), then `upload` (what is sent), `session_state` (what a reconnect resumes).

mod backoff;
mod connection_pair;
mod creation_times;
mod error;
mod handshake;
mod send_queue;
mod session;
mod session_state;
pub mod target;
#[cfg(test)]
mod tests;
mod upload;

use std::sync::Arc;
use std::time::Duration;

use relay_proto::session::DaemonId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use self::creation_times::CreationTimes;
use self::session::{SessionTask, UplinkContext};
use self::target::RelayTarget;
use crate::queue::OpenedSession;
use crate::status::StatusRegistry;

/// How sessions are taken to a relay.
#[derive(Debug, Clone)]
pub struct UplinkSettings {
    /// Where the relay is.
    pub target: RelayTarget,
    /// How long a session may be without a relay before it is given up. None: for ever.
    pub reconnect_timeout: Option<Duration>,
}

/// Takes all sessions to a relay, until no more can be opened and all have ended.
///
/// When `give_up` is cancelled, what has not reached a relay by then is lost, and counted.
pub async fn run(
    mut sessions: mpsc::UnboundedReceiver<OpenedSession>,
    settings: UplinkSettings,
    registry: StatusRegistry,
    give_up: CancellationToken,
) {
    let context = Arc::new(UplinkContext {
        target: settings.target,
        reconnect_timeout: settings.reconnect_timeout,
        daemon: DaemonId(Uuid::new_v4().into_bytes()),
        creation_times: CreationTimes::default(),
        registry,
    });
    let tasks = TaskTracker::new();
    let mut opened = 0;
    while let Some(session) = sessions.recv().await {
        let session = SessionTask::new(session, opened, Arc::clone(&context), give_up.clone());
        tasks.spawn(session.run());
        opened += 1;
    }
    tasks.close();
    tasks.wait().await;
}
