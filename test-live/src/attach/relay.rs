//! A relay as a source: follows its sessions on a thread of its own, and connects again when the
//! connection is lost, if asked to.

use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use viewer_proto::session::Seek;

use super::error::AttachError;
use super::resume::Memory;
use super::target::RelayTarget;
use super::visit::Visit;
use super::{MemoryBudget, SourceEvent};
use crate::with_sources;

/// How a relay is followed.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to begin in sessions that are there already. Later ones are read from their beginning.
    pub seek: Seek,
    /// What to do if there is no such session to begin with.
    pub missing: Missing,
    /// When all sessions have ended, wait for others.
    pub follow: bool,
    /// When the relay is not there or goes away, try again until it is.
    pub retry: bool,
    /// How long connecting may take.
    pub connect_patience: Duration,
    /// Let the relay say when there is more, if it can, instead of asking again and again.
    pub push: bool,
    /// The memory that packets may take.
    pub memory: MemoryBudget,
}

/// What to do if there is no such session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Wait for it.
    Wait,
    /// Fail.
    Fail,
    /// End well.
    End,
}

impl Default for Options {
    /// As `babeltrace2` has it.
    fn default() -> Self {
        Self {
            seek: Seek::Last,
            missing: Missing::End,
            follow: false,
            retry: false,
            connect_patience: Duration::from_secs(10),
            push: true,
            memory: MemoryBudget::default(),
        }
    }
}

/// First pause before a relay is tried again. It doubles each time.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest pause before a relay is tried again.
const RETRY_MOST: Duration = Duration::from_secs(10);

/// How long leaving may take: the relay is told, but not waited for if it is busy.
const LEAVE_PATIENCE: Duration = Duration::from_millis(500);

/// A relay that is followed. Dropping it stops as well, and waits for nothing.
#[derive(Debug)]
pub struct Handle {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Handle {
    /// Tells it to leave, which it does at once, whether or not anybody receives its events.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has ended.
    pub fn join(self) {
        // A panic of the thread has been reported by then.
        let _ = self.thread.join();
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Follows a relay. Its last event is [`SourceEvent::Failed`] or [`SourceEvent::Done`], unless it is stopped.
///
/// `is_held_back` says whether events are held back until it is certain that no earlier ones come,
/// of this relay or any other source: if not, [`SourceEvent::Quiet`] may come late.
///
/// # Errors
/// If the system does not allow another thread.
pub fn spawn(
    target: RelayTarget,
    options: Options,
    events: mpsc::Sender<SourceEvent>,
    is_held_back: watch::Receiver<bool>,
) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (stop, stopped) = watch::channel(false);
    let mut follower = Follower {
        target,
        options,
        events,
        is_held_back,
        memory: Memory::default(),
        visit: None,
    };
    let thread = std::thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || {
            runtime.block_on(follower.follow_until(stopped));
            // A name may still be looked up; nobody waits for that.
            runtime.shutdown_background();
        })?;
    Ok(Handle { stop, thread })
}

struct Follower {
    target: RelayTarget,
    options: Options,
    events: mpsc::Sender<SourceEvent>,
    is_held_back: watch::Receiver<bool>,
    memory: Memory,
    visit: Option<Visit>,
}

impl Follower {
    async fn follow_until(&mut self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            // An error says that the handle is gone.
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.follow() => {}
        }
        if let Some(mut visit) = self.visit.take() {
            let _ = timeout(LEAVE_PATIENCE, visit.leave()).await;
        }
    }

    async fn follow(&mut self) {
        let mut pause = RETRY_FIRST;
        let mut is_away = false;
        let last = loop {
            let ended = self.visit(&mut pause, &mut is_away).await;
            let error = match ended {
                Ok(()) => break SourceEvent::Done,
                Err(AttachError::Unheard) => return,
                Err(error) if self.options.retry && error.may_pass() => error,
                Err(error) => {
                    // What has been fetched is certain now: nothing else will come.
                    if let Some(mut visit) = self.visit.take()
                        && visit.end_everything().await.is_err()
                    {
                        return;
                    }
                    break SourceEvent::Failed(format!(
                        "{}: {}",
                        self.target,
                        with_sources(&error)
                    ));
                }
            };
            if self.part(&error, &mut is_away).await.is_err() {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MOST);
        };
        let _ = self.events.send(last).await;
    }

    /// Follows the relay for as long as one connection lasts.
    async fn visit(&mut self, pause: &mut Duration, is_away: &mut bool) -> Result<(), AttachError> {
        let events = self.events.clone();
        let begun = Visit::begin(&self.target, &self.options, events, &self.is_held_back).await?;
        let visit = self.visit.insert(begun);
        *pause = RETRY_FIRST;
        if std::mem::take(is_away) {
            let notice = format!("{}: the relay is back", self.target);
            visit.say(SourceEvent::Notice(notice)).await?;
        }
        visit.run(&mut self.memory).await
    }

    /// What the connection brought has ended with it.
    async fn part(&mut self, error: &AttachError, is_away: &mut bool) -> Result<(), AttachError> {
        if let Some(mut visit) = self.visit.take() {
            visit.end_everything().await?;
            self.memory.connection_lost();
            // From now on everything is new, or remembered.
            self.options.seek = Seek::Beginning;
            self.options.missing = Missing::Wait;
        }
        if !std::mem::replace(is_away, true) {
            let notice = format!("{}: {}; trying again", self.target, with_sources(error));
            let said = self.events.send(SourceEvent::Notice(notice)).await;
            return said.map_err(|_| AttachError::Unheard);
        }
        Ok(())
    }
}
