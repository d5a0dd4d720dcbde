//! A relay as a source: follows its sessions on a thread of its own, and connects again when the
//! connection is lost, if asked to.

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use viewer_proto::session::Seek;

use super::error::AttachError;
pub use super::relay_options::{Missing, RelayOptions};
use super::relay_session::RelaySession;
use super::resume_state::ResumeState;
use super::target::RelayTarget;
use super::{SourceEvent, SourceHandle};
use crate::with_sources;

/// Backoff before the first reconnect. Each further one is twice as long.
const MIN_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Longest backoff before a reconnect.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of detaching from all sessions when the viewer ends: a busy relay is not waited for.
const DETACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Follows a relay. Its last event is [`SourceEvent::Failed`] or [`SourceEvent::Done`], unless it is stopped.
///
/// `is_held_back` says whether events are held back until it is certain that no earlier ones come,
/// of this relay or any other source: if not, [`SourceEvent::Watermark`] may come late.
///
/// # Errors
/// If the system does not allow another thread.
pub fn spawn(
    target: RelayTarget,
    options: RelayOptions,
    events: mpsc::Sender<SourceEvent>,
    is_held_back: watch::Receiver<bool>,
) -> io::Result<SourceHandle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = watch::channel(false);
    let mut follower = RelayFollower {
        target,
        options,
        events,
        is_held_back,
        resume: ResumeState::default(),
        session: None,
        backoff: MIN_RETRY_INTERVAL,
        is_disconnected: false,
    };
    let request_end = move || {
        stop.send_replace(true);
    };
    SourceHandle::spawn("relay", request_end, move || {
        runtime.block_on(follower.follow_until(stopped));
        // The lookup of a host name cannot be interrupted, and may outlast the source.
        runtime.shutdown_background();
    })
}

struct RelayFollower {
    target: RelayTarget,
    options: RelayOptions,
    events: mpsc::Sender<SourceEvent>,
    is_held_back: watch::Receiver<bool>,
    resume: ResumeState,
    session: Option<RelaySession>,
    /// The time before the next attempt to connect.
    backoff: Duration,
    /// Whether the connection was lost, which has been reported.
    is_disconnected: bool,
}

impl RelayFollower {
    async fn follow_until(&mut self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            // An error means that the handle has been dropped.
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.follow() => {}
        }
        if let Some(mut session) = self.session.take() {
            let _ = timeout(DETACH_TIMEOUT, session.detach_sessions()).await;
        }
    }

    async fn follow(&mut self) {
        let last = loop {
            let error = match self.follow_connection().await {
                Ok(()) => break SourceEvent::Done,
                Err(AttachError::ReceiverGone) => return,
                Err(error) if self.options.retry && error.may_pass() => error,
                Err(error) => {
                    // No earlier event can arrive: what has been fetched may be shown.
                    if let Some(mut session) = self.session.take()
                        && session.end_streams_and_traces().await.is_err()
                    {
                        return;
                    }
                    let reason = with_sources(&error);
                    break SourceEvent::Failed(format!("{}: {reason}", self.target));
                }
            };
            if self.handle_disconnect(&error).await.is_err() {
                return;
            }
            sleep(self.backoff).await;
            self.backoff = (self.backoff * 2).min(MAX_RETRY_INTERVAL);
        };
        let _ = self.events.send(last).await;
    }

    /// Follows the relay for as long as one connection lasts.
    async fn follow_connection(&mut self) -> Result<(), AttachError> {
        let events = self.events.clone();
        let connected =
            RelaySession::connect(&self.target, &self.options, events, &self.is_held_back).await?;
        let session = self.session.insert(connected);
        // The relay has answered the handshake: the next loss is a new one.
        self.backoff = MIN_RETRY_INTERVAL;
        if std::mem::take(&mut self.is_disconnected) {
            let notice = format!("{}: connection restored", self.target);
            session.send_event(SourceEvent::Notice(notice)).await?;
        }
        session.run(std::mem::take(&mut self.resume)).await
    }

    /// Ends what the lost connection had announced, and reports the loss once.
    async fn handle_disconnect(&mut self, error: &AttachError) -> Result<(), AttachError> {
        if let Some(mut session) = self.session.take() {
            session.end_streams_and_traces().await?;
            self.resume = session.take_resume_state();
            // A later session is read from its beginning; `resume` skips what was handed over.
            self.options.seek = Seek::Beginning;
            self.options.missing = Missing::Wait;
        }
        if !std::mem::replace(&mut self.is_disconnected, true) {
            let notice = format!("{}: {}; reconnecting", self.target, with_sources(error));
            let said = self.events.send(SourceEvent::Notice(notice)).await;
            return said.map_err(|_| AttachError::ReceiverGone);
        }
        Ok(())
    }
}
