//! How a run ends: on request, whole or in part, or because its command line is wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use thiserror::Error;
use tokio::sync::mpsc::WeakSender;

use crate::attach::SourceEvent;

/// An error of the command line that only the run finds: it exits with status 2.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All events were shown.
    Whole,
    /// Something could not be read, or was lost and that counts.
    Partial,
}

/// Asks a run to stop, from any thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<StopState>);

#[derive(Debug, Default)]
struct StopState {
    is_requested: AtomicBool,
    waker: OnceLock<WeakSender<SourceEvent>>,
}

impl Stop {
    /// Requests the end of the run: what is certain has been shown, the rest is left.
    pub fn request(&self) {
        // Relaxed is enough: no other data is passed on by the flag.
        self.0.is_requested.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Wakes the main thread, which waits for source events.
    pub fn wake(&self) {
        // A weak sender, because a strong one would keep the channel open after the last source.
        if let Some(sender) = self.0.waker.get().and_then(WeakSender::upgrade) {
            // A full channel means that the main thread does not wait.
            let _ = sender.try_send(SourceEvent::Done);
        }
    }

    /// Whether the run has been asked to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_requested.load(Ordering::Relaxed)
    }

    /// Sets the channel by which the main thread is woken.
    pub fn set_waker(&self, sender: WeakSender<SourceEvent>) {
        // One run is joined with one stop.
        let _ = self.0.waker.set(sender);
    }
}
