//! When to ask again: after a pause that grows while nothing comes, or when the relay says so.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use viewer_proto::push::Notification;

use super::{Session, Visit};
use crate::attach::error::AttachError;
use crate::attach::resume::Memory;

/// First pause.
const FIRST: Duration = Duration::from_millis(10);

/// Longest pause, where the live timer is not shorter.
const MOST: Duration = Duration::from_millis(100);

/// Shortest live timer that is kept up with.
const LEAST: Duration = Duration::from_millis(1);

/// Pause when the relay pushes: should it have forgotten to.
const PUSHED: Duration = Duration::from_secs(1);

/// When everything is asked again.
#[derive(Debug)]
pub(super) struct Pace {
    pause: Duration,
    most: Duration,
    due: Instant,
    /// The relay says when there is more.
    is_pushed: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pause: FIRST,
            most: MOST,
            due: now,
            is_pushed: false,
        }
    }

    /// Nothing more often than the shortest live timer brings it.
    pub(super) fn set_live_timers<'a>(&mut self, sessions: impl Iterator<Item = &'a Session>) {
        let shortest = sessions.filter_map(|session| session.live_timer).min();
        self.most = shortest.unwrap_or(MOST).clamp(LEAST, MOST);
        self.pause = self.pause.min(self.most);
    }

    /// A round has ended, in which everything was asked or not, and something came or not.
    pub(super) fn note(&mut self, was_polling: bool, is_progress: bool, now: Instant) {
        if self.is_pushed {
            if was_polling {
                self.due = now + PUSHED;
            }
            return;
        }
        if is_progress {
            self.pause = FIRST.min(self.most);
        }
        if was_polling {
            self.due = now + self.pause;
            if !is_progress {
                self.pause = (self.pause * 2).min(self.most);
            }
        } else if is_progress {
            self.due = self.due.min(now + self.pause);
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

/// What there was to wait for.
enum Woken {
    Pushed(Option<Notification>),
    Due,
}

impl Visit {
    /// If everything is due to be asked again, sees to it that this round does.
    pub(super) fn poll_if_due(&mut self) -> bool {
        if !self.pace.is_due(Instant::now()) {
            return false;
        }
        for stream in self.streams.values_mut() {
            stream.may_have_packets = true;
        }
        for trace in self.traces.values_mut() {
            // Of others, flags tell.
            trace.may_have_metadata |= !trace.has_metadata || trace.streams == 0;
        }
        for (id, session) in &mut self.sessions {
            let mut own = self.traces.iter().filter(|(trace, _)| trace.0 == *id);
            // Streams of others have flags to tell by.
            let has_telling = own.clone().any(|(_, trace)| trace.streams > 0);
            let is_missing = own.any(|(_, trace)| trace.metadata.is_none());
            session.may_have_streams |= !has_telling || is_missing;
        }
        true
    }

    /// Waits until there may be something to ask for. Promises are passed on meanwhile.
    pub(super) async fn wait_for_changes(
        &mut self,
        memory: &mut Memory,
    ) -> Result<(), AttachError> {
        loop {
            while let Some(pushed) = self.pushed_already() {
                self.hear(pushed, memory).await?;
            }
            if !self.ready_streams().is_empty() {
                // The push connection has a task of its own, which must have its turn.
                tokio::task::yield_now().await;
                return Ok(());
            }
            let due = self.pace.due.min(self.list_due);
            if self.is_metadata_pushed || self.awaits_streams() {
                return Ok(());
            }
            let is_full = self.streams.values().any(|stream| stream.may_have_packets);
            let push = self.push.as_mut();
            let woken = tokio::select! {
                pushed = next_pushed(push) => Woken::Pushed(pushed),
                () = self.room.taken(), if is_full => Woken::Due,
                () = self.events.closed() => return Err(AttachError::Unheard),
                () = sleep_until(due) => Woken::Due,
            };
            match woken {
                Woken::Pushed(Some(pushed)) => self.hear(pushed, memory).await?,
                Woken::Pushed(None) => {
                    self.push = None;
                    for stream in self.streams.values_mut() {
                        stream.unread = 0;
                    }
                    self.pace.set_pushed(false, Instant::now());
                    return Ok(());
                }
                Woken::Due => return Ok(()),
            }
        }
    }

    fn pushed_already(&mut self) -> Option<Notification> {
        self.push.as_mut()?.try_recv().ok()
    }

    /// The relay says that there is more, or that there is nothing.
    async fn hear(&mut self, pushed: Notification, memory: &mut Memory) -> Result<(), AttachError> {
        match pushed {
            // From now on everything that there is is pushed; what was asked before may not be.
            Notification::Hello(_) => self.pace.set_pushed(true, Instant::now()),
            Notification::Packets(packets) => {
                self.ask_stream(packets.stream);
                if let Some(stream) = self.streams.get_mut(&packets.stream) {
                    stream.unread = packets.unread;
                }
            }
            Notification::StreamOver(stream) => self.ask_stream(stream),
            // Not past streams that have not been announced, nor past a packet that is still being
            // fetched: it is asked after that.
            Notification::Quiet(quiet)
                if self.awaits_streams() || self.is_fetching(quiet.stream) =>
            {
                self.ask_stream(quiet.stream);
            }
            Notification::Quiet(quiet) => {
                let until = quiet.until.0;
                self.pass_on_quiet(quiet.stream, until, memory).await?;
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

    fn ask_stream(&mut self, stream: wire::StreamId) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.may_have_packets = true;
        }
    }

    fn is_fetching(&self, stream: wire::StreamId) -> bool {
        let stream = self.streams.get(&stream);
        stream.is_some_and(|stream| !stream.answers.is_empty())
    }

    fn awaits_streams(&self) -> bool {
        let awaits = |session: &Session| session.may_have_streams && !session.is_over;
        self.sessions.values().any(awaits)
    }
}

/// What is pushed next; never, if nothing is.
async fn next_pushed(push: Option<&mut mpsc::Receiver<Notification>>) -> Option<Notification> {
    match push {
        Some(push) => push.recv().await,
        None => std::future::pending().await,
    }
}
