//! The two ends of one session's queue.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};

use super::session_opener::QueueCapacity;
use super::step::Step;

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
    /// What happens.
    pub step: Step,
    _permits: [OwnedSemaphorePermit; 2],
}

/// What became of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOutcome {
    /// Packets that a relay has acknowledged.
    pub acknowledged: u64,
    /// Packets that were given up.
    pub lost: u64,
    /// How it ended.
    pub end: SessionEnd,
}

/// How a session ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionEnd {
    /// Everything was acknowledged, and all streams closed.
    Complete,
    /// It was given up, and why.
    Failed(String),
    /// The uplink has stopped before.
    #[default]
    Abandoned,
}

/// The session has been given up: its steps are not taken to a relay any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session has been given up")]
pub struct SessionClosed;

/// Why a step was not taken at once.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TrySendError {
    /// The queue is full: the step is given back.
    #[error("no room in the queue")]
    QueueFull(QueueFull),
    /// The session has been given up.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
}

/// A step that the queue had no capacity for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFull(pub Step);

/// A limit of bytes, with a permit for each.
#[derive(Debug, Clone)]
struct ByteLimit {
    semaphore: Arc<Semaphore>,
    bytes: u32,
}

impl ByteLimit {
    fn new(semaphore: Arc<Semaphore>, bytes: u32) -> Self {
        Self { semaphore, bytes }
    }

    /// Permits for a step of that weight: all of them if it is larger than the limit.
    fn permits_for(&self, weight: usize) -> u32 {
        u32::try_from(weight).map_or(self.bytes, |weight| weight.min(self.bytes))
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
    /// Queues a step, as soon as the capacity allows it.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn send(&self, step: Step) -> Result<(), SessionClosed> {
        let weight = step.weight();
        let [own, shared] = &self.limits;
        // The own limit first: a session that waits for its own relay does not keep others waiting.
        let own = Arc::clone(&own.semaphore).acquire_many_owned(own.permits_for(weight));
        let own = tokio::select! {
            own = own => own.map_err(|_| SessionClosed)?,
            () = self.steps.closed() => return Err(SessionClosed),
        };
        let shared = Arc::clone(&shared.semaphore).acquire_many_owned(shared.permits_for(weight));
        let shared = tokio::select! {
            shared = shared => shared.map_err(|_| SessionClosed)?,
            () = self.steps.closed() => return Err(SessionClosed),
        };
        self.queue_step(step, [own, shared])
    }

    /// Queues a step if the capacity allows it now.
    ///
    /// # Errors
    /// If it does not, with the step, or the session has been given up.
    pub fn try_send(&self, step: Step) -> Result<(), TrySendError> {
        let weight = step.weight();
        let [own, shared] = &self.limits;
        let of = |limit: &ByteLimit| {
            Arc::clone(&limit.semaphore).try_acquire_many_owned(limit.permits_for(weight))
        };
        match of(own).and_then(|own| Ok([own, of(shared)?])) {
            Ok(permits) => Ok(self.queue_step(step, permits)?),
            Err(TryAcquireError::NoPermits) => Err(TrySendError::QueueFull(QueueFull(step))),
            Err(TryAcquireError::Closed) => Err(SessionClosed.into()),
        }
    }

    fn queue_step(
        &self,
        step: Step,
        permits: [OwnedSemaphorePermit; 2],
    ) -> Result<(), SessionClosed> {
        let queued = QueuedStep {
            step,
            _permits: permits,
        };
        self.steps.send(queued).map_err(|_| SessionClosed)
    }

    /// Ends the session, and waits until all of it is with the relay, or given up.
    pub async fn finish(self) -> SessionOutcome {
        let Self { steps, outcome, .. } = self;
        drop(steps);
        outcome.await.unwrap_or_default()
    }
}

impl SessionReceiver {
    /// The next step; None when the session is to end.
    pub async fn next_step(&mut self) -> Option<QueuedStep> {
        self.steps.recv().await
    }

    /// The next step, if one is there.
    pub fn try_next_step(&mut self) -> Option<QueuedStep> {
        self.steps.try_recv().ok()
    }

    /// Says what became of the session. Steps that come later are refused.
    pub fn report_outcome(mut self, outcome: SessionOutcome) {
        self.steps.close();
        if let Some(ends) = self.outcome.take() {
            // Nobody may wait for it.
            let _ = ends.send(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::task::yield_now;

    use super::super::session_opener::{SessionOpener, session_channel};
    use super::super::step::{SessionDescription, TraceKey};
    use super::*;

    const CAPACITY: QueueCapacity = QueueCapacity {
        session_bytes: 1000,
        all_bytes: 1500,
    };

    fn open(opener: &SessionOpener) -> SessionSender {
        let description = SessionDescription {
            name: "session".into(),
            host: "host".into(),
            base_path: String::new(),
            live_timer: None,
            trace_format: relay_proto::session::TraceFormat::Ctf1,
            tracefile_size: 0,
            tracefile_count: 0,
        };
        opener.open_session(description).unwrap()
    }

    fn metadata(length: usize) -> Step {
        Step::Metadata {
            trace: TraceKey(0),
            bytes: Bytes::from(vec![b' '; length]),
        }
    }

    #[tokio::test]
    async fn step_counts_against_the_capacity_until_it_is_dropped() {
        let (opener, mut sessions) = session_channel(CAPACITY);
        let sender = open(&opener);
        let mut steps = sessions.recv().await.unwrap().steps;
        sender.try_send(metadata(800)).unwrap();
        let refused = sender.try_send(metadata(800));
        assert_eq!(
            refused,
            Err(TrySendError::QueueFull(QueueFull(metadata(800))))
        );
        let taken = steps.next_step().await.unwrap();
        assert!(sender.try_send(metadata(800)).is_err());
        drop(taken);
        sender.try_send(metadata(800)).unwrap();
    }

    #[tokio::test]
    async fn blocked_steps_are_queued_in_order() {
        let (opener, mut sessions) = session_channel(CAPACITY);
        let sender = open(&opener);
        let mut steps = sessions.recv().await.unwrap().steps;
        let sending = tokio::spawn(async move {
            for length in [700, 600, 500] {
                sender.send(metadata(length)).await.unwrap();
            }
        });
        for length in [700, 600, 500] {
            assert_eq!(steps.next_step().await.unwrap().step, metadata(length));
        }
        sending.await.unwrap();
        assert!(steps.next_step().await.is_none());
    }

    #[tokio::test]
    async fn sessions_share_the_total_capacity() {
        let (opener, mut sessions) = session_channel(CAPACITY);
        let (one, other) = (open(&opener), open(&opener));
        let mut steps = sessions.recv().await.unwrap().steps;
        one.try_send(metadata(800)).unwrap();
        assert!(other.try_send(metadata(800)).is_err());
        drop(steps.next_step().await);
        other.try_send(metadata(800)).unwrap();
    }

    #[tokio::test]
    async fn step_larger_than_the_capacity_is_queued_alone() {
        let (opener, mut sessions) = session_channel(CAPACITY);
        let sender = open(&opener);
        let mut steps = sessions.recv().await.unwrap().steps;
        sender.send(metadata(5000)).await.unwrap();
        assert!(sender.try_send(metadata(1)).is_err());
        drop(steps.next_step().await);
        sender.try_send(metadata(1)).unwrap();
    }

    #[tokio::test]
    async fn session_that_is_given_up_wakes_blocked_senders_with_an_error() {
        let (opener, mut sessions) = session_channel(CAPACITY);
        let sender = open(&opener);
        let steps = sessions.recv().await.unwrap().steps;
        sender.send(metadata(1000)).await.unwrap();
        let waiting = tokio::spawn(async move {
            let sent = sender.send(metadata(1000)).await;
            (sent, sender.finish().await.end)
        });
        yield_now().await;
        let end = SessionEnd::Failed("no relay".into());
        steps.report_outcome(SessionOutcome {
            end: end.clone(),
            ..SessionOutcome::default()
        });
        assert_eq!(waiting.await.unwrap(), (Err(SessionClosed), end));
    }
}
