//! The channel of [`SourceEvent`]s to the main thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use crate::attach::SourceEvent;

/// The receiver of the events has been dropped, or the handle has requested a stop.
#[derive(Debug)]
pub(super) struct Stopped;

/// Sends events until the receiver is dropped or a stop is requested.
#[derive(Debug)]
pub(super) struct EventSender {
    events: Sender<SourceEvent>,
    is_stop_requested: Arc<AtomicBool>,
    /// Time that the receiver has been waited for, since this was last set to zero.
    pub(super) time_blocked: Duration,
}

impl EventSender {
    pub(super) fn new(events: Sender<SourceEvent>, is_stop_requested: Arc<AtomicBool>) -> Self {
        Self {
            events,
            is_stop_requested,
            time_blocked: Duration::ZERO,
        }
    }

    /// Sends an event once the channel has room for it.
    pub(super) fn send(&mut self, event: SourceEvent) -> Result<(), Stopped> {
        self.check_running()?;
        // Measured, because a slow reader is no reason to look at files less often.
        let begun = Instant::now();
        let sent = self.events.blocking_send(event).map_err(|_| Stopped);
        self.time_blocked += begun.elapsed();
        sent
    }

    pub(super) fn check_running(&self) -> Result<(), Stopped> {
        if self.is_stop_requested.load(Ordering::Acquire) || self.events.is_closed() {
            return Err(Stopped);
        }
        Ok(())
    }
}
