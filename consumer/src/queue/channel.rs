//! The two ends of one session's queue.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::step::Step;
use crate::limits::DEFAULT_QUEUE_BYTES;

/// The capacity of the queues: how many bytes of steps may be queued or in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct QueueCapacity {
    /// Capacity for one session, in bytes.
    pub session_bytes: u32,
    /// Capacity for all sessions together, in bytes.
    pub all_bytes: u32,
}

impl Default for QueueCapacity {
    fn default() -> Self {
        Self {
            session_bytes: DEFAULT_QUEUE_BYTES,
            all_bytes: DEFAULT_QUEUE_BYTES * 4,
        }
    }
}

/// The frontend's end of a session's queue. Dropping it ends the session once all that was sent has
/// been received.
#[derive(Debug)]
pub struct SessionSender {
    steps: mpsc::UnboundedSender<QueuedStep>,
    limits: [ByteLimit; 2],
    outcome: oneshot::Receiver<SessionOutcome>,
}

/// The uplink's end of a session's queue.
#[derive(Debug)]
pub struct SessionReceiver {
    steps: mpsc::UnboundedReceiver<QueuedStep>,
    outcome: Option<oneshot::Sender<SessionOutcome>>,
}

/// A step in the queue. It counts against the queue's capacity until it is dropped.
#[derive(Debug)]
pub struct QueuedStep {
    /// The step.
    pub step: Step,
    _permits: [OwnedSemaphorePermit; 2],
}

/// The outcome of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOutcome {
    /// Packets that a relay has acknowledged.
    pub acknowledged: u64,
    /// Packets that were given up.
    pub lost: u64,
    /// The reason for its end.
    pub end: SessionEnd,
}

/// The reason for the end of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionEnd {
    /// Everything was acknowledged, and all streams closed.
    Complete,
    /// The session was given up; with the reason.
    Failed(String),
    /// The uplink has stopped before the end of the session.
    #[default]
    Abandoned,
}

/// The session has been given up: its steps are not sent to a relay any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session has been given up")]
pub struct SessionClosed;

/// A limit of bytes: a semaphore with a permit for each byte.
#[derive(Debug, Clone)]
struct ByteLimit {
    semaphore: Arc<Semaphore>,
    bytes: u32,
}

impl ByteLimit {
    fn new(semaphore: Arc<Semaphore>, bytes: u32) -> Self {
        Self { semaphore, bytes }
    }

    /// Waits for the permits for a step of `weight` bytes.
    async fn acquire(&self, weight: usize) -> Result<OwnedSemaphorePermit, SessionClosed> {
        // A step larger than the limit takes all permits: more than there are could never be acquired.
        let permits = u32::try_from(weight).map_or(self.bytes, |weight| weight.min(self.bytes));
        let acquired = Arc::clone(&self.semaphore).acquire_many_owned(permits);
        acquired.await.map_err(|_| SessionClosed)
    }
}

/// Makes the queue of a session, which is limited on its own and together with all others.
pub(super) fn step_channel(
    capacity: QueueCapacity,
    shared: Arc<Semaphore>,
) -> (SessionSender, SessionReceiver) {
    let (steps, taken) = mpsc::unbounded_channel();
    let (ends, outcome) = oneshot::channel();
    let own = Arc::new(Semaphore::new(capacity.session_bytes as usize));
    let limits = [
        ByteLimit::new(own, capacity.session_bytes),
        ByteLimit::new(shared, capacity.all_bytes),
    ];
    let sender = SessionSender {
        steps,
        limits,
        outcome,
    };
    let receiver = SessionReceiver {
        steps: taken,
        outcome: Some(ends),
    };
    (sender, receiver)
}

impl SessionSender {
    /// Queues a step, and waits until the capacity allows it.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn send(&self, step: Step) -> Result<(), SessionClosed> {
        let weight = step.weight();
        let [own, shared] = &self.limits;
        // The session's own limit first: a session whose own queue is full must not hold permits of the
        // shared limit.
        let acquire = async {
            Ok::<_, SessionClosed>([own.acquire(weight).await?, shared.acquire(weight).await?])
        };
        let _permits = tokio::select! {
            permits = acquire => permits?,
            () = self.steps.closed() => return Err(SessionClosed),
        };
        let queued = QueuedStep { step, _permits };
        self.steps.send(queued).map_err(|_| SessionClosed)
    }

    /// Ends the session, and waits until the relay has acknowledged everything or the session is given up.
    pub async fn finish(self) -> SessionOutcome {
        let Self { steps, outcome, .. } = self;
        drop(steps);
        outcome.await.unwrap_or_default()
    }
}

impl SessionReceiver {
    /// Waits for the next step; returns none when the sender is dropped and the queue is empty.
    pub async fn next_step(&mut self) -> Option<QueuedStep> {
        self.steps.recv().await
    }

    /// Returns the next step, if one is queued.
    pub fn try_next_step(&mut self) -> Option<QueuedStep> {
        self.steps.try_recv().ok()
    }

    /// Reports the outcome to the sender. Later steps are refused.
    pub fn report_outcome(mut self, outcome: SessionOutcome) {
        self.steps.close();
        if let Some(ends) = self.outcome.take() {
            // The sender may be gone.
            let _ = ends.send(outcome);
        }
    }
}
