//! The two ends of one session's queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::acknowledgements::Acknowledgements;
use super::delivery::{DeliveryReceipt, PacketReceipt};
use super::step::{Step, StreamKey};
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
    // Unbounded, because the semaphores bound it, by bytes and not by steps.
    steps: mpsc::UnboundedSender<QueuedStep>,
    limits: [ByteLimit; 2],
    outcome: oneshot::Receiver<SessionOutcome>,
    receipt: Option<DeliveryReceipt>,
}

/// The uplink's end of a session's queue.
#[derive(Debug)]
pub struct SessionReceiver {
    steps: mpsc::UnboundedReceiver<QueuedStep>,
    outcome: Option<oneshot::Sender<SessionOutcome>>,
    numbering: Numbering,
}

/// Where the packets of a session get their sequence numbers.
#[derive(Debug)]
enum Numbering {
    /// The numbers come from the receiver, which has the number of the next packet of each stream
    /// that has had one.
    Received(HashMap<StreamKey, u64>),
    /// The numbers come from the spool.
    Spooled,
}

/// A step in the queue. It counts against the queue's capacity until it is dropped.
#[derive(Debug)]
pub struct QueuedStep {
    /// The step, which the receiver handles.
    pub step: Step,
    /// The sequence number of a packet in its stream, from 0 over the whole life of the session,
    /// also if another process has begun it. With [`Step::AddStream`]: the number of the first
    /// packet of the stream that can follow; all before it have been acknowledged. Otherwise 0.
    pub seq: u64,
    /// When the frontend has made the step, or with a spool, when the step was read from it.
    pub cut_at: Instant,
    acknowledgements: Option<Arc<Acknowledgements>>,
    receipt: Option<PacketReceipt>,
    _permits: [OwnedSemaphorePermit; 2],
}

impl QueuedStep {
    /// Releases a step whose packet a relay has acknowledged as durable: the spool may free it and
    /// all packets before it in the stream, or the frontend, if it has
    /// [asked](SessionSender::set_receipt) for it. Dropping the step instead keeps it in the spool.
    /// Without a spool, and for steps that are no packets, there is no difference.
    pub fn acknowledge(mut self) {
        if let Some(receipt) = &mut self.receipt {
            receipt.set_delivered();
        }
        if let Some(acknowledgements) = &self.acknowledgements
            && let Step::Packet { stream, .. } = self.step
        {
            acknowledgements.add(stream, self.seq + 1);
        }
    }
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
    /// The session was given up, and its packets are lost; with the reason.
    Failed(String),
    /// The uplink has stopped before the end of the session; with the reason. All packets that no
    /// relay has acknowledged stay in the spool, and are sent after the next start. Only of
    /// [spooled](SessionReceiver::is_spooled) sessions.
    Spooled(String),
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
        // A step larger than the limit takes all permits: more than there are could never be
        // acquired.
        let permits = u32::try_from(weight).map_or(self.bytes, |weight| weight.min(self.bytes));
        let acquired = Arc::clone(&self.semaphore).acquire_many_owned(permits);
        acquired.await.map_err(|_| SessionClosed)
    }

    /// Takes the permits for a step of `weight` bytes, if there are as many now.
    fn try_acquire(&self, weight: usize) -> Option<OwnedSemaphorePermit> {
        let permits = u32::try_from(weight).map_or(self.bytes, |weight| weight.min(self.bytes));
        Arc::clone(&self.semaphore)
            .try_acquire_many_owned(permits)
            .ok()
    }
}

/// The capacity of a queue that a step takes.
#[derive(Debug)]
pub(crate) struct Permits {
    permits: [OwnedSemaphorePermit; 2],
    /// The bytes that were asked for.
    pub(crate) weight: usize,
}

/// The capacity of the queue between the spool and the uplink.
#[derive(Debug, Clone)]
pub(crate) struct Capacity([ByteLimit; 2]);

impl Capacity {
    /// Waits for the capacity for a step of `weight` bytes.
    ///
    /// # Errors
    /// If the queue is closed.
    pub(crate) async fn acquire(&self, weight: usize) -> Result<Permits, SessionClosed> {
        let [own, shared] = &self.0;
        let permits = [own.acquire(weight).await?, shared.acquire(weight).await?];
        Ok(Permits { permits, weight })
    }

    fn try_acquire(&self, weight: usize) -> Option<Permits> {
        let [own, shared] = &self.0;
        // If there is not enough of the second, the permits of the first go back with the error.
        let permits = [own.try_acquire(weight)?, shared.try_acquire(weight)?];
        Some(Permits { permits, weight })
    }
}

/// The spool's end of the queue to the uplink. Nothing here waits.
#[derive(Debug)]
pub(crate) struct SpoolSender {
    steps: mpsc::UnboundedSender<QueuedStep>,
    capacity: Capacity,
    acknowledgements: Arc<Acknowledgements>,
}

impl SpoolSender {
    /// Takes the capacity for a step, if there is as much now.
    pub(crate) fn try_acquire(&self, weight: usize) -> Option<Permits> {
        self.capacity.try_acquire(weight)
    }

    /// Queues a step with its number.
    ///
    /// # Errors
    /// If the uplink has ended the session.
    pub(crate) fn forward(
        &self,
        permits: Permits,
        step: Step,
        seq: u64,
    ) -> Result<(), SessionClosed> {
        let queued = QueuedStep {
            step,
            seq,
            // A packet that has waited in the spool for a relay to come back is not late by that.
            cut_at: Instant::now(),
            acknowledgements: Some(Arc::clone(&self.acknowledgements)),
            receipt: None,
            _permits: permits.permits,
        };
        self.steps.send(queued).map_err(|_| SessionClosed)
    }
}

/// The queue from the spool to the uplink.
#[derive(Debug)]
pub(crate) struct SpoolChannel {
    /// Forwards steps; dropped after the last one.
    pub(crate) sender: SpoolSender,
    /// The end of the uplink.
    pub(crate) receiver: SessionReceiver,
    /// The capacity, to wait for it.
    pub(crate) capacity: Capacity,
    /// What the uplink acknowledges.
    pub(crate) acknowledgements: Arc<Acknowledgements>,
    /// The outcome that the uplink reports.
    pub(crate) outcome: oneshot::Receiver<SessionOutcome>,
}

/// Makes the queue of a session from the spool to the uplink, which is limited as [`step_channel`].
pub(crate) fn spool_channel(capacity: QueueCapacity, shared: Arc<Semaphore>) -> SpoolChannel {
    let (steps, taken) = mpsc::unbounded_channel();
    let (ends, outcome) = oneshot::channel();
    let own = Arc::new(Semaphore::new(capacity.session_bytes as usize));
    let capacity = Capacity([
        ByteLimit::new(own, capacity.session_bytes),
        ByteLimit::new(shared, capacity.all_bytes),
    ]);
    let acknowledgements = Arc::new(Acknowledgements::default());
    SpoolChannel {
        sender: SpoolSender {
            steps,
            capacity: capacity.clone(),
            acknowledgements: Arc::clone(&acknowledgements),
        },
        receiver: SessionReceiver {
            steps: taken,
            outcome: Some(ends),
            numbering: Numbering::Spooled,
        },
        capacity,
        acknowledgements,
        outcome,
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
        receipt: None,
    };
    let receiver = SessionReceiver {
        steps: taken,
        outcome: Some(ends),
        numbering: Numbering::Received(HashMap::new()),
    };
    (sender, receiver)
}

impl SessionSender {
    /// Queues a step, and waits until the capacity allows it.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn send(&self, step: Step) -> Result<(), SessionClosed> {
        let cut_at = Instant::now();
        let weight = step.weight();
        let is_packet = matches!(step, Step::Packet { .. });
        let receipt = self.receipt.as_ref().filter(|_| is_packet);
        let receipt = receipt.map(DeliveryReceipt::of_packet);
        let [own, shared] = &self.limits;
        // The session's own limit first: a session whose own queue is full must not hold permits of
        // the shared limit.
        let acquire = async {
            Ok::<_, SessionClosed>([own.acquire(weight).await?, shared.acquire(weight).await?])
        };
        let _permits = tokio::select! {
            permits = acquire => permits?,
            // Nobody returns permits once the receiver is gone, so the wait could last for ever.
            () = self.steps.closed() => return Err(SessionClosed),
        };
        let queued = QueuedStep {
            step,
            seq: 0,
            cut_at,
            acknowledgements: None,
            receipt,
            _permits,
        };
        self.steps.send(queued).map_err(|_| SessionClosed)
    }

    /// Sets the receipt for the packets that are sent from now on, instead of the one before.
    pub fn set_receipt(&mut self, receipt: Option<DeliveryReceipt>) {
        self.receipt = receipt;
    }

    /// Ends the session, and waits until the relay has acknowledged everything or the session is
    /// given up.
    pub async fn finish(self) -> SessionOutcome {
        let Self { steps, outcome, .. } = self;
        // The receiver sees the end of the queue by that.
        drop(steps);
        outcome.await.unwrap_or_default()
    }
}

impl SessionReceiver {
    /// Waits for the next step; returns none when the sender is dropped and the queue is empty.
    pub async fn next_step(&mut self) -> Option<QueuedStep> {
        let queued = self.steps.recv().await;
        queued.map(|queued| self.numbered(queued))
    }

    /// Returns the next step, if one is queued.
    pub fn try_next_step(&mut self) -> Option<QueuedStep> {
        let queued = self.steps.try_recv().ok();
        queued.map(|queued| self.numbered(queued))
    }

    /// Whether the steps come from the spool: those that are not acknowledged are kept there after
    /// [`SessionEnd::Spooled`].
    #[must_use]
    pub fn is_spooled(&self) -> bool {
        matches!(self.numbering, Numbering::Spooled)
    }

    fn numbered(&mut self, mut queued: QueuedStep) -> QueuedStep {
        // Numbered by the receiver: it sees the packets in their order, and needs no lock for that.
        if let Numbering::Received(next) = &mut self.numbering
            && let Step::Packet { stream, .. } = queued.step
        {
            let next = next.entry(stream).or_default();
            queued.seq = *next;
            *next += 1;
        }
        queued
    }

    /// Reports the outcome to the sender. Later steps are refused. The spool removes the session,
    /// unless the end is [`SessionEnd::Spooled`] or [`SessionEnd::Abandoned`]. To drop the receiver
    /// without an outcome is the latter.
    pub fn report_outcome(mut self, outcome: SessionOutcome) {
        self.steps.close();
        if let Some(ends) = self.outcome.take() {
            // The sender may be gone.
            let _ = ends.send(outcome);
        }
    }
}
