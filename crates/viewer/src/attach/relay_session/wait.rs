//! The wait between rounds: for an interval that grows while nothing arrives, or for a
//! notification.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use viewer_proto::push::Notification;

use super::{AttachedSession, RelaySession};
use crate::attach::error::AttachError;
use crate::attach::shown_trace::Phase;

/// First pause between two polls.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Longest pause between two polls, if no live timer is shorter.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shortest live timer to which polling is adapted.
const MIN_LIVE_TIMER: Duration = Duration::from_millis(1);

/// Pause between two polls while the relay pushes, in case a notification is missing.
const PUSHED_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The timer that says when everything is requested again: the interval doubles while nothing
/// arrives.
#[derive(Debug)]
pub(super) struct PollTimer {
    interval: Duration,
    max_interval: Duration,
    due: Instant,
    /// The relay says when there is more.
    is_pushed: bool,
}

impl PollTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            interval: MIN_POLL_INTERVAL,
            max_interval: MAX_POLL_INTERVAL,
            due: now,
            is_pushed: false,
        }
    }

    /// Limits the interval to the shortest live timer: a tracer flushes no more often.
    pub(super) fn set_live_timers<'a>(
        &mut self,
        sessions: impl Iterator<Item = &'a AttachedSession>,
    ) {
        let shortest = sessions.filter_map(|session| session.live_timer).min();
        self.max_interval = shortest
            .unwrap_or(MAX_POLL_INTERVAL)
            .clamp(MIN_LIVE_TIMER, MAX_POLL_INTERVAL);
        self.interval = self.interval.min(self.max_interval);
    }

    /// Sets the next poll after a round in which everything was polled or not, and something came
    /// or not.
    pub(super) fn end_round(&mut self, was_polling: bool, is_progress: bool, now: Instant) {
        if self.is_pushed {
            if was_polling {
                self.due = now + PUSHED_POLL_INTERVAL;
            }
            return;
        }
        if is_progress {
            self.interval = MIN_POLL_INTERVAL.min(self.max_interval);
        }
        if was_polling {
            self.due = now + self.interval;
            if !is_progress {
                self.interval = (self.interval * 2).min(self.max_interval);
            }
        } else if is_progress {
            self.due = self.due.min(now + self.interval);
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    fn set_pushed(&mut self, is_pushed: bool, now: Instant) {
        self.is_pushed = is_pushed;
        self.due = now;
    }
}

impl RelaySession {
    /// If a poll is due, marks everything so that this round requests it.
    pub(super) fn mark_all_if_poll_due(&mut self) -> bool {
        if !self.poll_timer.is_due(Instant::now()) {
            return false;
        }
        for stream in self.streams.values_mut() {
            stream.may_have_packets = true;
        }
        for trace in self.traces.values_mut() {
            // Other traces have streams, whose replies announce new metadata by a flag.
            let is_missing = !trace.has_metadata() || trace.unidentified.is_some();
            trace.may_have_metadata |= is_missing || trace.streams == 0;
        }
        for (id, session) in &mut self.sessions {
            let mut own = self.traces.iter().filter(|(trace, _)| trace.0 == *id);
            // A session with streams learns of others by the flags in the replies.
            let has_telling = own.clone().any(|(_, trace)| trace.streams > 0);
            let is_missing = own.any(|(_, trace)| trace.metadata.is_none());
            session.may_have_streams |= !has_telling || is_missing;
        }
        true
    }

    /// Waits until there may be something to ask for. Watermarks are passed on meanwhile.
    pub(super) async fn wait_for_changes(&mut self) -> Result<(), AttachError> {
        loop {
            while let Some(pushed) = self.push.as_mut().and_then(|push| push.try_recv().ok()) {
                self.handle_notification(pushed).await?;
            }
            if !self.ready_streams().is_empty() {
                // The push connection has a task of its own, which must have its turn.
                tokio::task::yield_now().await;
                return Ok(());
            }
            let due = self.poll_timer.due.min(self.list_due);
            // New streams and metadata first: a later watermark must not pass events that they
            // bring.
            let is_waiting = self.waiting_traces() > 0;
            let can_admit = is_waiting && !self.is_metadata_backlog_full();
            if self.is_metadata_pushed || can_admit || self.awaits_streams() {
                return Ok(());
            }
            let is_full = is_waiting || self.streams.values().any(|stream| stream.may_have_packets);
            let push = self.push.as_mut();
            let pushed = tokio::select! {
                pushed = next_notification(push) => pushed,
                // Unless something waits for room, a packet less is no reason for another round.
                () = self.resume.packet_removed.notified(), if is_full => return Ok(()),
                () = self.events.closed() => return Err(AttachError::ReceiverGone),
                () = sleep_until(due) => return Ok(()),
            };
            let Some(pushed) = pushed else {
                // The push connection is lost: from now on the relay is polled.
                self.push = None;
                for stream in self.streams.values_mut() {
                    // These counts were pushed, and nobody keeps them any more.
                    stream.unread = 0;
                }
                self.poll_timer.set_pushed(false, Instant::now());
                return Ok(());
            };
            self.handle_notification(pushed).await?;
        }
    }

    /// Marks what a notification says is new, or passes on its watermark.
    async fn handle_notification(&mut self, pushed: Notification) -> Result<(), AttachError> {
        match pushed {
            // From now on everything that there is is pushed; what was asked before may not be.
            Notification::Hello(_) => self.poll_timer.set_pushed(true, Instant::now()),
            Notification::Packets(packets) => {
                self.mark_stream(packets.stream);
                if let Some(stream) = self.streams.get_mut(&packets.stream) {
                    stream.unread = packets.unread;
                }
            }
            Notification::StreamOver(stream) => self.mark_stream(stream),
            // Not past streams that have not been announced, nor past a packet that is still being
            // fetched: it is asked after that.
            Notification::Quiet(quiet)
                if self.awaits_streams()
                    || self.has_pending_replies(quiet.stream)
                    || self.is_unannounced(quiet.stream) =>
            {
                self.mark_stream(quiet.stream);
            }
            Notification::Quiet(quiet) => {
                let until = quiet.until.0;
                self.send_watermark(quiet.stream, until).await?;
            }
            Notification::Metadata(metadata) => {
                let mut traces = self.traces.values_mut();
                if let Some(trace) = traces.find(|trace| trace.metadata == Some(metadata.stream)) {
                    trace.may_have_metadata = true;
                    self.is_metadata_pushed = true;
                }
            }
            Notification::NewStreams(session) | Notification::SessionOver(session) => {
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.may_have_streams = true;
                }
            }
            Notification::Sessions => self.list_due = Instant::now(),
        }
        Ok(())
    }

    fn mark_stream(&mut self, stream: wire::StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.may_have_packets = true;
        }
    }

    fn has_pending_replies(&self, stream: wire::StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| !stream.replies.is_empty())
    }

    fn is_unannounced(&self, stream: wire::StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| stream.shown.phase == Phase::Unannounced)
    }

    fn awaits_streams(&self) -> bool {
        let awaits = |session: &AttachedSession| session.may_have_streams && !session.is_over;
        self.sessions.values().any(awaits)
    }
}

/// Waits for the next notification; forever, if there is no push connection.
async fn next_notification(
    push: Option<&mut mpsc::Receiver<Notification>>,
) -> Option<Notification> {
    match push {
        Some(push) => push.recv().await,
        None => std::future::pending().await,
    }
}
