//! Takes sessions to a relay: one task for each, that speaks `relay-proto`, and finds the relay again
//! when it is lost.
//!
//! A relay's session ends with the connection. When the relay is found again it is told everything
//! anew, in a session of the same name that was created later: traces, streams and metadata as far as
//! they are known, then the packets that were not confirmed before. Nothing is lost by that, but a
//! packet may be in both sessions: it had arrived, and the answer had not.
//!
//! Read `session` (the task), then `conversation` (what is sent), `session_state` (what a reconnect resumes).

mod backoff;
mod closing;
mod connection_pair;
mod conversation;
mod creation_times;
mod error;
mod handshake;
mod outgoing;
mod session;
mod session_state;
pub mod target;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use relay_proto::session::DaemonId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::creation_times::CreationTimes;
use self::session::SessionTask;
use self::target::Target;
use crate::queue::OpenedSession;
use crate::status::StatusRegistry;

/// How sessions are taken to a relay.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the relay is.
    pub target: Target,
    /// How long a session may be without a relay before it is given up. None: for ever.
    pub reconnect_timeout: Option<Duration>,
}

/// What the tasks of all sessions share.
#[derive(Debug)]
struct Shared {
    target: Target,
    reconnect_timeout: Option<Duration>,
    /// This run of this process.
    daemon: DaemonId,
    creation_times: CreationTimes,
    registry: StatusRegistry,
}

/// Takes all sessions to a relay, until no more can be opened and all have ended.
///
/// When `give_up` is cancelled, what has not reached a relay by then is lost, and counted.
///
/// # Errors
/// If the system has no random numbers: relays know a process by one.
pub async fn run(
    mut sessions: mpsc::UnboundedReceiver<OpenedSession>,
    settings: Settings,
    registry: StatusRegistry,
    give_up: CancellationToken,
) -> io::Result<()> {
    let shared = Arc::new(Shared {
        target: settings.target,
        reconnect_timeout: settings.reconnect_timeout,
        daemon: new_daemon()?,
        creation_times: CreationTimes::default(),
        registry,
    });
    let tasks = TaskTracker::new();
    let mut opened = 0;
    while let Some(session) = sessions.recv().await {
        let session = SessionTask::new(session, opened, Arc::clone(&shared), give_up.clone());
        tasks.spawn(session.run());
        opened += 1;
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// A random UUID.
fn new_daemon() -> io::Result<DaemonId> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    // Version 4, variant 1 of RFC 9562; so it is never all zeros, which relays refuse.
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut bytes;
    *version = *version & 0x0f | 0x40;
    *variant = *variant & 0x3f | 0x80;
    Ok(DaemonId(bytes))
}
