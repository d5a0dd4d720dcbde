//! A relay, or a list of relays, as a source: follows sessions on a thread of its own. When the
//! connection is lost, goes on at the next relay of the list, or connects again, if asked to. What
//! was followed is neither ended nor announced again meanwhile.

use std::io;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::error::AttachError;
pub use super::relay_options::{Missing, RelayOptions};
use super::relay_selector::{RelaySelector, SelectedRelay};
use super::relay_session::RelaySession;
use super::resume_state::ResumeState;
use super::target::RelayTarget;
use super::{SourceEvent, SourceHandle, StreamKey};
use crate::with_sources;

/// Timeout of detaching from all sessions when the viewer ends: a busy relay is not waited for.
const DETACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Shortest time in which the sessions of a lost relay may appear at the others: their producers
/// have to find one, too, and may try unreachable ones before.
const MOVE_GRACE_PERIOD: Duration = Duration::from_secs(60);

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
        selector: RelaySelector::new(&target),
        next: None,
        relay: None,
        pass: Pass::default(),
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
    selector: RelaySelector,
    /// The relay that is tried next, if that is decided.
    next: Option<Result<SelectedRelay, AttachError>>,
    /// The relay that there is a connection to, or was last.
    relay: Option<SelectedRelay>,
    pass: Pass,
    /// The time before the next attempt to connect.
    backoff: Duration,
    /// When the connection was lost, or could not be made first. Absent while the relay answers.
    lost_at: Option<Instant>,
    /// Whether there has been a connection.
    has_connected: bool,
}

/// The failures since all relays were tried last.
#[derive(Default)]
struct Pass {
    /// The first one that no later attempt mends.
    permanent: Option<String>,
    /// Whether another relay of the list may be reached later.
    may_pass: bool,
    /// Whether a relay has answered.
    has_answered: bool,
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

    /// Selects the next relay. None if all have been tried since the last pause.
    async fn select_next(&mut self) -> Option<Result<SelectedRelay, AttachError>> {
        let limit = self.options.connect_timeout;
        self.selector.select_next(&self.target, limit).await
    }

    /// Follows the next relay for as long as one connection lasts.
    async fn follow_connection(&mut self) -> Result<(), AttachError> {
        let relay = loop {
            if let Some(selected) = self.next.take() {
                break selected?;
            }
            self.next = self.select_next().await;
        };
        let events = self.events.clone();
        let mut options = self.options.clone();
        let is_other = |last: &SelectedRelay| last.address != relay.address;
        let has_moved = self.resume.has_moved || self.relay.as_ref().is_some_and(is_other);
        if has_moved {
            options.grace_period = options.grace_period.max(MOVE_GRACE_PERIOD);
        }
        let is_held_back = &self.is_held_back;
        let connected =
            RelaySession::connect(&self.target, &relay, &options, events, is_held_back).await?;
        (self.has_connected, self.pass.has_answered) = (true, true);
        self.resume.has_moved = has_moved;
        info!(target = %self.target, %relay, "connected");
        self.relay = Some(relay);
        // Kept here, so that its sessions can be detached from after a stop has ended the future.
        let session = self.session.insert(connected);
        session.run(std::mem::take(&mut self.resume)).await
    }

    /// Reports the loss of the connection once, and waits until the next attempt, if all relays
    /// have been tried. Returns the last event of the source instead if there is none.
    async fn handle_disconnect(
        &mut self,
        error: &AttachError,
    ) -> Result<Option<SourceEvent>, AttachError> {
        let mut text = self.describe_failure(error);
        let was_connected = self.session.is_some();
        if let Some(mut session) = self.session.take() {
            self.resume = session.take_resume_state();
            let is_searching = matches!(error, AttachError::NotHere);
            if is_searching {
                self.backoff = self.options.min_backoff;
            } else {
                self.resume.restart_search();
            }
            if !self.resume.is_disconnected {
                // The relay has answered meanwhile: this is another loss.
                self.lost_at = None;
            }
            // A relay that only accepts and closes must not be tried again without a pause.
            if session.has_read() && !is_searching {
                self.backoff = self.options.min_backoff;
                self.selector.restart();
                self.pass = Pass::default();
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
        let is_late = deadline.is_some_and(|deadline| deadline <= now);
        match error.may_pass() {
            true => self.pass.may_pass = true,
            false => drop(self.pass.permanent.get_or_insert_with(|| text.clone())),
        }
        // Until a session is followed, the deadline is for all relays together.
        if error.may_be_of_one_relay() && !(is_late && self.resume.has_followed) {
            self.next = self.select_next().await;
        }
        let is_only = self.target.relays.len() == 1;
        if self.next.is_none() {
            let pass = std::mem::take(&mut self.pass);
            if !pass.has_answered {
                self.resume.restart_search();
            }
            let permanent = match error.may_be_of_one_relay() {
                true => pass.permanent.filter(|_| is_only || !pass.may_pass),
                false => Some(text.clone()),
            };
            if permanent.is_some() || is_late {
                // No earlier event can arrive: what has been fetched may be shown.
                for event in self.resume.end_all() {
                    self.send_event(event).await?;
                }
                if self.resume.is_disconnected && permanent.is_none() {
                    text.push_str(&format!(
                        "; not reconnected for {} s",
                        (now - lost_at).as_secs()
                    ));
                }
                return Ok(Some(SourceEvent::Failed(permanent.unwrap_or(text))));
            }
        }
        self.report_disconnect(error, &text, was_connected).await?;
        if self.next.is_some() {
            return Ok(None);
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

    /// Reports once that the connection is lost, or that the sessions are looked for.
    async fn report_disconnect(
        &mut self,
        error: &AttachError,
        text: &str,
        was_connected: bool,
    ) -> Result<(), AttachError> {
        let resume = &mut self.resume;
        let then = if matches!(error, AttachError::NotHere) {
            let is_reported = std::mem::replace(&mut resume.is_searching, true);
            (!is_reported).then_some("looking for them at the other relays")
        } else if !resume.is_searching && (was_connected || self.next.is_none()) {
            // A relay that cannot be reached is none that was lost, as long as there are others.
            let is_reported = std::mem::replace(&mut resume.is_disconnected, true);
            (!is_reported).then_some(match &self.next {
                Some(_) => "trying the next relay",
                None => "reconnecting",
            })
        } else {
            None
        };
        let Some(then) = then else { return Ok(()) };
        let notice = format!("{text}; {then}");
        self.send_event(SourceEvent::Notice(notice)).await
    }

    /// Returns the failure with the target, and the relay if there are several.
    fn describe_failure(&self, error: &AttachError) -> String {
        let failure = with_sources(error);
        match &self.relay {
            Some(relay) if self.session.is_some() && self.target.relays.len() > 1 => {
                format!("{}: {relay}: {failure}", self.target)
            }
            _ => format!("{}: {failure}", self.target),
        }
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
