//! A relay as a source: follows its sessions on a thread of its own, and connects again when the
//! connection is lost, if asked to. What was followed is neither ended nor announced again
//! meanwhile.

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::error::AttachError;
pub use super::relay_options::{Missing, RelayOptions};
use super::relay_session::RelaySession;
use super::resume_state::ResumeState;
use super::target::RelayTarget;
use super::{SourceEvent, SourceHandle, StreamKey};
use crate::with_sources;

/// Timeout of detaching from all sessions when the viewer ends: a busy relay is not waited for.
const DETACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Follows a relay. The last event of the source is [`SourceEvent::Failed`] or
/// [`SourceEvent::Done`], unless it is stopped.
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
        backoff: options.min_backoff,
        target,
        options,
        events,
        is_held_back,
        resume: ResumeState::default(),
        session: None,
        lost_at: None,
        has_connected: false,
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
    /// When the connection was lost, or could not be made first. Absent while the relay answers.
    lost_at: Option<Instant>,
    /// Whether there has been a connection.
    has_connected: bool,
}

impl RelayFollower {
    async fn follow_until(&mut self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            // A stop is looked at first, because following may always have something to do.
            biased;
            // An error means that the handle has been dropped.
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.follow() => {}
        }
        if let Some(mut session) = self.session.take() {
            // An error is ignored: the relay notices that the connection is closed.
            let _ = timeout(DETACH_TIMEOUT, session.detach_sessions()).await;
        }
    }

    async fn follow(&mut self) {
        let last = loop {
            let error = match self.follow_connection().await {
                Ok(()) => break SourceEvent::Done,
                Err(AttachError::ReceiverGone) => return,
                Err(error) => error,
            };
            match self.handle_disconnect(&error).await {
                Ok(None) => {}
                Ok(Some(last)) => break last,
                Err(_) => return,
            }
        };
        // Without a receiver, nobody wants to know.
        let _ = self.events.send(last).await;
    }

    /// Follows the relay for as long as one connection lasts.
    async fn follow_connection(&mut self) -> Result<(), AttachError> {
        let events = self.events.clone();
        let connected =
            RelaySession::connect(&self.target, &self.options, events, &self.is_held_back).await?;
        self.has_connected = true;
        info!(relay = %self.target, "connected");
        // Kept here, so that its sessions can be detached from after a stop has ended the future.
        let session = self.session.insert(connected);
        session.run(std::mem::take(&mut self.resume)).await
    }

    /// Reports the loss of the connection once, and waits until the next attempt. Returns the last
    /// event of the source instead if there is none.
    async fn handle_disconnect(
        &mut self,
        error: &AttachError,
    ) -> Result<Option<SourceEvent>, AttachError> {
        if let Some(mut session) = self.session.take() {
            self.resume = session.take_resume_state();
            if !self.resume.is_disconnected {
                // The relay has answered meanwhile: this is another loss.
                self.lost_at = None;
            }
            // A relay that only accepts and closes must not be tried again without a pause.
            if session.has_read() {
                self.backoff = self.options.min_backoff;
            }
        }
        let lost_at = *self.lost_at.get_or_insert_with(Instant::now);
        let is_left = self.resume.has_orphans()
            || self.resume.awaits_first_trace(self.options.missing)
            || self.options.follow;
        if error.may_pass() && self.resume.has_followed && !is_left {
            // Everything had ended, and the relay was not needed any more.
            return Ok(Some(SourceEvent::Done));
        }
        let deadline = self.deadline(lost_at);
        let now = Instant::now();
        if !error.may_pass() || deadline.is_some_and(|deadline| deadline <= now) {
            // No earlier event can arrive: what has been fetched may be shown.
            for event in self.resume.end_all() {
                self.send_event(event).await?;
            }
            let mut text = format!("{}: {}", self.target, with_sources(error));
            if self.resume.is_disconnected && error.may_pass() {
                text.push_str(&format!(
                    "; not reconnected for {} s",
                    (now - lost_at).as_secs()
                ));
            }
            return Ok(Some(SourceEvent::Failed(text)));
        }
        if !std::mem::replace(&mut self.resume.is_disconnected, true) {
            let notice = format!("{}: {}; reconnecting", self.target, with_sources(error));
            self.send_event(SourceEvent::Notice(notice)).await?;
        }
        if let Some(hold_timeout) = self.options.hold_timeout
            && now >= lost_at + hold_timeout
        {
            self.release_streams(hold_timeout).await?;
        }
        let left = deadline.map_or(Duration::MAX, |deadline| deadline - now);
        sleep(self.backoff.min(left)).await;
        self.backoff = (self.backoff * 2).min(self.options.max_backoff);
        Ok(None)
    }

    /// Returns when no further attempt is made to connect. Absent: attempts never end.
    fn deadline(&self, lost_at: Instant) -> Option<Instant> {
        if !self.has_connected {
            return (!self.options.retry).then_some(lost_at);
        }
        self.options
            .reconnect_timeout
            .and_then(|timeout| lost_at.checked_add(timeout))
    }

    /// Lets the events of other relays go on without waiting for those of this one, and says so
    /// once.
    async fn release_streams(&mut self, hold_timeout: Duration) -> Result<(), AttachError> {
        let streams = self.resume.followed_streams();
        let held: Vec<StreamKey> = streams
            .filter_map(|stream| {
                let is_released = std::mem::replace(&mut stream.is_released, true);
                (!is_released).then_some(stream.key)
            })
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        let notice = format!(
            "{}: not reconnected for {} s; other events do not wait for it any longer",
            self.target,
            hold_timeout.as_secs()
        );
        self.send_event(SourceEvent::Notice(notice)).await?;
        for stream in held {
            let is_holding = false;
            self.send_event(SourceEvent::StreamHold { stream, is_holding })
                .await?;
        }
        Ok(())
    }

    async fn send_event(&self, event: SourceEvent) -> Result<(), AttachError> {
        let sent = self.events.send(event).await;
        sent.map_err(|_| AttachError::ReceiverGone)
    }
}
