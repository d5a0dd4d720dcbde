//! The tasks of the spool: one takes the sessions that frontends open, and one for each session
//! carries its steps from the frontend's queue to the thread, and the answers of the uplink back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::store::StoreKey;
use super::worker::{Command, RecoveredSession, WorkerHandle};
use crate::limits::{MAX_RECOVERED_SESSIONS, MAX_SPOOL_BATCH_STEPS, SPOOL_TURN_BYTES};
use crate::queue::{
    Acknowledgements, Capacity, OpenedSession, Permits, QueueCapacity, QueuedStep, SessionClosed,
    SessionDescription, SessionEnd, SessionIdentity, SessionOutcome, SessionReceiver, SpoolChannel,
    Step, spool_channel,
};

/// Starts the task of each session, until all openers are dropped and all sessions have ended.
pub(super) async fn dispatch(
    mut sessions: mpsc::UnboundedReceiver<OpenedSession>,
    worker: WorkerHandle,
    opened: mpsc::UnboundedSender<OpenedSession>,
    capacity: QueueCapacity,
    give_up: CancellationToken,
) {
    let shared = Arc::new(Semaphore::new(capacity.all_bytes as usize));
    let tasks = TaskTracker::new();
    let keys = worker.keys;
    let starter = SessionStarter {
        commands: worker.commands,
        opened,
        capacity,
        shared,
        tasks: tasks.clone(),
    };
    let recovering = start_recovered(worker.recovered, starter.clone());
    let recovering = tokio::spawn(async move {
        // A recovered session may wait for its turn as long as no relay is there; the end of the
        // agent must not.
        give_up.run_until_cancelled(recovering).await;
    });
    while let Some(session) = sessions.recv().await {
        let OpenedSession {
            description,
            identity,
            steps,
        } = session;
        starter.start(keys.next_key(), description, identity, Some(steps), None);
    }
    drop(starter);
    // It has not been cancelled, and does not panic.
    let _ = recovering.await;
    tasks.close();
    tasks.wait().await;
}

/// Starts the tasks of the recovered sessions, a limited number of them at the same time.
async fn start_recovered(
    mut recovered: mpsc::UnboundedReceiver<RecoveredSession>,
    starter: SessionStarter,
) {
    let slots = Arc::new(Semaphore::new(MAX_RECOVERED_SESSIONS));
    while let Some(session) = recovered.recv().await {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let RecoveredSession {
            key,
            description,
            identity,
        } = session;
        starter.start(key, description, identity, None, Some(slot));
    }
}

/// Starts the tasks of sessions.
#[derive(Debug, Clone)]
struct SessionStarter {
    commands: Sender<Command>,
    opened: mpsc::UnboundedSender<OpenedSession>,
    capacity: QueueCapacity,
    shared: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl SessionStarter {
    /// Opens a session on the thread and on the uplink. `steps` come from its frontend; none if it
    /// was recovered.
    fn start(
        &self,
        key: StoreKey,
        description: SessionDescription,
        identity: SessionIdentity,
        steps: Option<SessionReceiver>,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        let SpoolChannel {
            sender,
            receiver,
            capacity,
            acknowledgements,
            outcome,
        } = spool_channel(self.capacity, Arc::clone(&self.shared));
        let (requests, requested) = mpsc::unbounded_channel();
        let session = SessionTask {
            key,
            name: description.name.clone(),
            commands: self.commands.clone(),
            capacity,
            acknowledgements,
            requested,
            outcome,
            steps,
            _slot: slot,
        };
        let open = Command::Open {
            key,
            description: description.clone(),
            identity,
            sender,
            requests,
        };
        session.command(open);
        // If the uplink has stopped, the session has no outcome: it stays in the spool.
        let _ = self.opened.send(OpenedSession {
            description,
            identity,
            steps: receiver,
        });
        self.tasks.spawn(session.run());
    }
}

/// The task of one session.
struct SessionTask {
    key: StoreKey,
    name: String,
    commands: Sender<Command>,
    capacity: Capacity,
    acknowledgements: Arc<Acknowledgements>,
    /// Bytes of capacity that the thread needs to forward the next step.
    requested: mpsc::UnboundedReceiver<usize>,
    outcome: oneshot::Receiver<SessionOutcome>,
    steps: Option<SessionReceiver>,
    /// Held as long as a recovered session is open.
    _slot: Option<OwnedSemaphorePermit>,
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Permits, SessionClosed>> + Send>>;

/// Steps that the thread is writing. They count against the capacity of the frontend's queue until
/// they are written.
struct Writing {
    accepted: oneshot::Receiver<bool>,
    packets: u64,
    queued: Vec<QueuedStep>,
}

impl Writing {
    /// Tells the frontend that the spool has its packets.
    fn release(self) {
        self.queued.into_iter().for_each(QueuedStep::acknowledge);
    }
}

impl SessionTask {
    async fn run(mut self) {
        let mut frontend = self.steps.take();
        let mut writing: Option<Writing> = None;
        let mut acquiring: Option<Acquiring> = None;
        let mut outcome: Option<SessionOutcome> = None;
        // The frontend of a recovered session was in a process that is gone.
        let mut is_ended = frontend.is_none();
        while !(outcome.is_some() && is_ended && writing.is_none()) {
            tokio::select! {
                ended = &mut self.outcome, if outcome.is_none() => {
                    let ended = ended.unwrap_or_default();
                    if matches!(ended.end, SessionEnd::Complete | SessionEnd::Failed(_)) {
                        self.command(Command::Remove(self.key));
                        return report(frontend, ended);
                    }
                    self.take_acknowledgements();
                    self.command(Command::Detach(self.key));
                    // The queue to the uplink will have no capacity any more.
                    acquiring = None;
                    outcome = Some(ended);
                }
                () = self.acknowledgements.wait(), if outcome.is_none() => self.take_acknowledgements(),
                Some(bytes) = self.requested.recv(), if acquiring.is_none() && outcome.is_none() => {
                    let capacity = self.capacity.clone();
                    acquiring = Some(Box::pin(async move { capacity.acquire(bytes).await }));
                }
                permits = poll_some(&mut acquiring) => {
                    acquiring = None;
                    if let Ok(permits) = permits {
                        self.command(Command::Forward(self.key, permits));
                    }
                }
                is_accepted = poll_writing(&mut writing) => {
                    let written = writing.take();
                    if is_accepted {
                        written.into_iter().for_each(Writing::release);
                    } else {
                        let outcome = outcome.get_or_insert_default();
                        outcome.lost += written.map_or(0, |written| written.packets);
                        warn!(session = %self.name, "session ended early: the spool takes no more, and the uplink has stopped");
                        break;
                    }
                }
                // Steps that come while others are written wait in the frontend's queue, whose
                // capacity holds the frontend back.
                step = next_step(&mut frontend), if writing.is_none() && !is_ended => match step {
                    Some(step) => writing = Some(self.append(step, &mut frontend)),
                    None => {
                        is_ended = true;
                        self.command(Command::End(self.key));
                    }
                },
            }
        }
        self.close(frontend, outcome.unwrap_or_default()).await;
    }

    /// Sends a step and those after it to the thread.
    fn append(&self, first: QueuedStep, frontend: &mut Option<SessionReceiver>) -> Writing {
        let mut bytes = first.step.weight();
        let mut permits = vec![first];
        while let Some(frontend) = frontend
            && bytes < SPOOL_TURN_BYTES
            && permits.len() < MAX_SPOOL_BATCH_STEPS
            && let Some(next) = frontend.try_next_step()
        {
            bytes += next.step.weight();
            permits.push(next);
        }
        // The bytes of packets are shared, not copied.
        let steps: Vec<Step> = permits.iter().map(|queued| queued.step.clone()).collect();
        let is_packet = |step: &&Step| matches!(step, Step::Packet { .. });
        let packets = steps.iter().filter(is_packet).count() as u64;
        let (done, accepted) = oneshot::channel();
        self.command(Command::Append {
            key: self.key,
            steps,
            accepted: done,
        });
        Writing {
            accepted,
            packets,
            queued: permits,
        }
    }

    fn take_acknowledgements(&self) {
        let positions = self.acknowledgements.take();
        if !positions.is_empty() {
            self.command(Command::Acknowledge(self.key, positions));
        }
    }

    /// Closes the session, whose files stay in the spool.
    async fn close(self, frontend: Option<SessionReceiver>, outcome: SessionOutcome) {
        let (closed, left) = oneshot::channel();
        self.command(Command::Close(self.key, closed));
        if let Ok(packets) = left.await {
            info!(session = %self.name, packets, "session stays in the spool, and is sent after the next start");
        }
        report(frontend, outcome);
    }

    fn command(&self, command: Command) {
        // The thread ends after the last sender is dropped.
        let _ = self.commands.send(command);
    }
}

/// Reports the outcome to the frontend, if the session has one.
fn report(frontend: Option<SessionReceiver>, outcome: SessionOutcome) {
    if let Some(frontend) = frontend {
        frontend.report_outcome(outcome);
    }
}

async fn next_step(frontend: &mut Option<SessionReceiver>) -> Option<QueuedStep> {
    match frontend {
        Some(frontend) => frontend.next_step().await,
        None => None,
    }
}

async fn poll_some(acquiring: &mut Option<Acquiring>) -> Result<Permits, SessionClosed> {
    match acquiring {
        Some(acquiring) => acquiring.await,
        None => std::future::pending().await,
    }
}

/// Waits until the steps are written. Returns false if they will not be.
async fn poll_writing(writing: &mut Option<Writing>) -> bool {
    match writing {
        Some(writing) => (&mut writing.accepted).await.unwrap_or(false),
        None => std::future::pending().await,
    }
}
