//! The two ends of one session's queue.

use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot};

use super::outlet::Room;
use super::step::Step;

/// The end of those who have something to trace. Dropped, it ends the session when all that was sent
/// has gone.
#[derive(Debug)]
pub struct SessionSender {
    steps: mpsc::UnboundedSender<Queued>,
    rooms: [Bounded; 2],
    outcome: oneshot::Receiver<SessionOutcome>,
}

/// The uplink's end.
#[derive(Debug)]
pub struct SessionReceiver {
    steps: mpsc::UnboundedReceiver<Queued>,
    outcome: Option<oneshot::Sender<SessionOutcome>>,
}

/// A step on its way. It takes room until it is dropped.
#[derive(Debug)]
pub struct Queued {
    /// What happens.
    pub step: Step,
    _room: [OwnedSemaphorePermit; 2],
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

/// Nobody takes steps to a relay any more: the session has been given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the session has been given up")]
pub struct Gone;

/// Why a step was not taken at once.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Trying {
    /// There is no room: here is the step again.
    #[error("no room in the queue")]
    Full(Full),
    /// Nobody takes it.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// A step for which there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full(pub Step);

/// A room of so many bytes.
#[derive(Debug, Clone)]
struct Bounded {
    semaphore: Arc<Semaphore>,
    bytes: u32,
}

impl Bounded {
    fn new(semaphore: Arc<Semaphore>, bytes: u32) -> Self {
        Self { semaphore, bytes }
    }

    /// A step that is larger than the room takes all of it.
    fn part(&self, weight: usize) -> u32 {
        u32::try_from(weight).map_or(self.bytes, |weight| weight.min(self.bytes))
    }
}

/// Makes a queue that takes room of its own and of what is shared by all.
pub(super) fn channel(room: Room, shared: Arc<Semaphore>) -> (SessionSender, SessionReceiver) {
    let (steps, taken) = mpsc::unbounded_channel();
    let (ends, outcome) = oneshot::channel();
    let own = Arc::new(Semaphore::new(room.session as usize));
    let rooms = [
        Bounded::new(own, room.session),
        Bounded::new(shared, room.all),
    ];
    let sender = SessionSender {
        steps,
        rooms,
        outcome,
    };
    let receiver = SessionReceiver {
        steps: taken,
        outcome: Some(ends),
    };
    (sender, receiver)
}

impl SessionSender {
    /// Queues a step, when there is room.
    ///
    /// # Errors
    /// If the session has been given up.
    pub async fn send(&self, step: Step) -> Result<(), Gone> {
        let weight = step.weight();
        let [own, shared] = &self.rooms;
        // The own room first: who waits for a relay of its own does not keep others waiting.
        let own = Arc::clone(&own.semaphore).acquire_many_owned(own.part(weight));
        let own = tokio::select! {
            own = own => own.map_err(|_| Gone)?,
            () = self.steps.closed() => return Err(Gone),
        };
        let shared = Arc::clone(&shared.semaphore).acquire_many_owned(shared.part(weight));
        let shared = tokio::select! {
            shared = shared => shared.map_err(|_| Gone)?,
            () = self.steps.closed() => return Err(Gone),
        };
        self.queue(step, [own, shared])
    }

    /// Queues a step if there is room now.
    ///
    /// # Errors
    /// If there is none, with the step, or the session has been given up.
    pub fn try_send(&self, step: Step) -> Result<(), Trying> {
        let weight = step.weight();
        let [own, shared] = &self.rooms;
        let of =
            |room: &Bounded| Arc::clone(&room.semaphore).try_acquire_many_owned(room.part(weight));
        match of(own).and_then(|own| Ok([own, of(shared)?])) {
            Ok(rooms) => Ok(self.queue(step, rooms)?),
            Err(TryAcquireError::NoPermits) => Err(Trying::Full(Full(step))),
            Err(TryAcquireError::Closed) => Err(Gone.into()),
        }
    }

    fn queue(&self, step: Step, rooms: [OwnedSemaphorePermit; 2]) -> Result<(), Gone> {
        let queued = Queued { step, _room: rooms };
        self.steps.send(queued).map_err(|_| Gone)
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
    pub async fn next(&mut self) -> Option<Queued> {
        self.steps.recv().await
    }

    /// The next step, if one is there.
    pub fn try_next(&mut self) -> Option<Queued> {
        self.steps.try_recv().ok()
    }

    /// Says what became of the session. Steps that come later are refused.
    pub fn end(mut self, outcome: SessionOutcome) {
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

    use super::super::outlet::{Outlet, outlet};
    use super::super::step::{SessionDescription, TraceKey};
    use super::*;

    const ROOM: Room = Room {
        session: 1000,
        all: 1500,
    };

    fn open(outlet: &Outlet) -> SessionSender {
        let description = SessionDescription {
            name: "session".into(),
            host: "host".into(),
            base_path: String::new(),
            live_timer: None,
            trace_format: relay_proto::session::TraceFormat::Ctf1,
            tracefile_size: 0,
            tracefile_count: 0,
        };
        outlet.open(description).unwrap()
    }

    fn metadata(length: usize) -> Step {
        Step::Metadata {
            trace: TraceKey(0),
            bytes: Bytes::from(vec![b' '; length]),
        }
    }

    #[tokio::test]
    async fn a_step_takes_room_until_it_is_dropped() {
        let (outlet, mut sessions) = outlet(ROOM);
        let sender = open(&outlet);
        let mut steps = sessions.recv().await.unwrap().steps;
        sender.try_send(metadata(800)).unwrap();
        let refused = sender.try_send(metadata(800));
        assert_eq!(refused, Err(Trying::Full(Full(metadata(800)))));
        let taken = steps.next().await.unwrap();
        assert!(sender.try_send(metadata(800)).is_err());
        drop(taken);
        sender.try_send(metadata(800)).unwrap();
    }

    #[tokio::test]
    async fn what_waits_for_room_is_queued_in_order_when_there_is_some() {
        let (outlet, mut sessions) = outlet(ROOM);
        let sender = open(&outlet);
        let mut steps = sessions.recv().await.unwrap().steps;
        let sending = tokio::spawn(async move {
            for length in [700, 600, 500] {
                sender.send(metadata(length)).await.unwrap();
            }
        });
        for length in [700, 600, 500] {
            assert_eq!(steps.next().await.unwrap().step, metadata(length));
        }
        sending.await.unwrap();
        assert!(steps.next().await.is_none());
    }

    #[tokio::test]
    async fn sessions_share_the_room_of_all() {
        let (outlet, mut sessions) = outlet(ROOM);
        let (one, other) = (open(&outlet), open(&outlet));
        let mut steps = sessions.recv().await.unwrap().steps;
        one.try_send(metadata(800)).unwrap();
        assert!(other.try_send(metadata(800)).is_err());
        drop(steps.next().await);
        other.try_send(metadata(800)).unwrap();
    }

    #[tokio::test]
    async fn a_step_that_is_larger_than_the_room_passes_alone() {
        let (outlet, mut sessions) = outlet(ROOM);
        let sender = open(&outlet);
        let mut steps = sessions.recv().await.unwrap().steps;
        sender.send(metadata(5000)).await.unwrap();
        assert!(sender.try_send(metadata(1)).is_err());
        drop(steps.next().await);
        sender.try_send(metadata(1)).unwrap();
    }

    #[tokio::test]
    async fn a_session_that_is_given_up_refuses_who_waits() {
        let (outlet, mut sessions) = outlet(ROOM);
        let sender = open(&outlet);
        let steps = sessions.recv().await.unwrap().steps;
        sender.send(metadata(1000)).await.unwrap();
        let waiting = tokio::spawn(async move {
            let sent = sender.send(metadata(1000)).await;
            (sent, sender.finish().await.end)
        });
        yield_now().await;
        let end = SessionEnd::Failed("no relay".into());
        steps.end(SessionOutcome {
            end: end.clone(),
            ..SessionOutcome::default()
        });
        assert_eq!(waiting.await.unwrap(), (Err(Gone), end));
    }
}
