//! Sessions in a spool on a disk in memory, without threads and tasks.

mod crash;
mod damage;
mod fixtures;
mod memory_disk;
mod policy;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use daemon::durability::Durability;
use tokio::sync::{Semaphore, mpsc, oneshot};
use wire::{Bits, ClassId, PacketIndex, Timestamp};

use self::memory_disk::MemoryDisk;
use super::recover::recover;
use super::session::StoredSession;
use super::store::{Store, StoreKey};
use super::{SpoolFullPolicy, SpoolSettings};
use crate::queue::{
    Acknowledgements, Capacity, QueueCapacity, QueuedStep, SessionDescription, SessionIdentity,
    SessionReceiver, Step, StreamKey, TraceKey, spool_channel,
};
use crate::status::SpoolCounters;

const ROOMY: u32 = 1 << 30;

/// A store, and the uplink's ends of its sessions.
struct TestSpool {
    store: Store<MemoryDisk>,
    counters: Arc<SpoolCounters>,
    sessions: Vec<TestSession>,
}

/// The uplink's end of a session.
struct TestSession {
    steps: SessionReceiver,
    capacity: Capacity,
    acknowledgements: Arc<Acknowledgements>,
    requested: mpsc::UnboundedReceiver<usize>,
}

fn settings(bytes: u64, on_full: SpoolFullPolicy, durability: Durability) -> SpoolSettings {
    SpoolSettings {
        directory: "/spool".into(),
        bytes,
        on_full,
        durability,
    }
}

fn identity(id: u64) -> SessionIdentity {
    SessionIdentity {
        producer: [7; 16],
        id,
        created: 1000 + id,
        is_recovered: false,
    }
}

impl TestSpool {
    fn new(disk: &MemoryDisk, settings: &SpoolSettings) -> Self {
        let counters = Arc::<SpoolCounters>::default();
        let store = Store::new(disk.clone(), settings, Arc::clone(&counters));
        Self {
            store,
            counters,
            sessions: Vec::new(),
        }
    }

    /// Opens a session whose queue to the uplink has this capacity. Returns its key.
    fn open(&mut self, stored: StoredSession, bytes: u32) -> StoreKey {
        let capacity = QueueCapacity {
            session_bytes: bytes,
            all_bytes: bytes,
        };
        let channel = spool_channel(capacity, Arc::new(Semaphore::new(bytes as usize)));
        let (requests, requested) = mpsc::unbounded_channel();
        let key = self.sessions.len() as StoreKey;
        self.store.open(key, stored, channel.sender, requests);
        self.sessions.push(TestSession {
            steps: channel.receiver,
            capacity: channel.capacity,
            acknowledgements: channel.acknowledgements,
            requested,
        });
        key
    }

    fn open_new(&mut self, bytes: u32) -> StoreKey {
        let key = self.sessions.len() as u64;
        let description = SessionDescription::named(&format!("session {key}"));
        self.open(StoredSession::new(description, identity(key)), bytes)
    }

    /// Recovers all sessions, and returns what each has.
    fn recover(disk: &MemoryDisk) -> (Self, Vec<Vec<Numbered>>) {
        let settings = settings(ROOMY.into(), SpoolFullPolicy::Block, Durability::Process);
        let mut spool = Self::new(disk, &settings);
        let found = recover(&mut spool.store.disk).unwrap();
        spool.counters.quarantined.add(found.quarantined);
        for stored in found.sessions {
            spool.open(stored, ROOMY);
        }
        spool.run();
        let keys = 0..spool.sessions.len() as StoreKey;
        let steps = keys.map(|key| spool.take_all(key)).collect();
        (spool, steps)
    }

    /// Appends steps. Returns whether they were accepted.
    fn append(&mut self, key: StoreKey, steps: &[Step]) -> oneshot::Receiver<bool> {
        let (done, accepted) = oneshot::channel();
        self.store.append(key, steps.to_vec(), done);
        self.run();
        accepted
    }

    fn end(&mut self, key: StoreKey) {
        self.store.end(key);
        self.run();
    }

    /// Does what the thread does, until nothing is left to be done.
    fn run(&mut self) {
        self.store.write_waiting();
        while self.store.read_readable() {}
    }

    fn session(&mut self, key: StoreKey) -> &mut TestSession {
        &mut self.sessions[usize::try_from(key).unwrap()]
    }

    /// Receives the next step as the uplink does. The capacity of the steps before it must have
    /// been released.
    fn take(&mut self, key: StoreKey) -> Option<QueuedStep> {
        if let Some(queued) = self.session(key).steps.try_next_step() {
            return Some(queued);
        }
        let session = self.session(key);
        let bytes = session.requested.try_recv().ok()?;
        let permits = futures_now(session.capacity.acquire(bytes)).unwrap();
        self.store.forward(key, permits);
        self.run();
        self.session(key).steps.try_next_step()
    }

    /// Receives everything that can be received, without acknowledging it.
    fn take_all(&mut self, key: StoreKey) -> Vec<Numbered> {
        let mut steps = Vec::new();
        while let Some(queued) = self.take(key) {
            steps.push((queued.step.clone(), queued.seq));
        }
        steps
    }

    /// Receives and acknowledges everything.
    fn acknowledge_all(&mut self, key: StoreKey) -> Vec<Numbered> {
        let mut steps = Vec::new();
        while let Some(queued) = self.take(key) {
            steps.push((queued.step.clone(), queued.seq));
            queued.acknowledge();
            self.pass_acknowledgements(key);
        }
        steps
    }

    fn pass_acknowledgements(&mut self, key: StoreKey) {
        let positions = self.session(key).acknowledgements.take();
        self.store.acknowledge(key, positions);
        self.run();
    }
}

/// A step and its number.
type Numbered = (Step, u64);

/// Returns the result of a future that is ready.
fn futures_now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(tokio::task::unconstrained(future));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("no capacity"),
    }
}

fn packet(stream: u32, number: u64, length: usize) -> Step {
    let mut bytes = format!("packet {number} of stream {stream}").into_bytes();
    bytes.resize(bytes.len().max(length), 0);
    let size = Bits(bytes.len() as u64 * 8);
    Step::Packet {
        stream: StreamKey(stream),
        bytes: bytes.into(),
        index: PacketIndex {
            packet_size: size,
            content_size: size,
            begin: Timestamp(number),
            end: Timestamp(number + 1),
            ..PacketIndex::default()
        },
    }
}

fn begin_steps() -> Vec<Step> {
    let stream = |channel: &str| Step::AddStream {
        trace: TraceKey(0),
        channel: channel.into(),
        class: ClassId(3),
    };
    vec![
        Step::AddTrace { path: "ust".into() },
        stream("a"),
        stream("b"),
        metadata("first"),
    ]
}

fn metadata(text: &str) -> Step {
    Step::Metadata {
        trace: TraceKey(0),
        bytes: Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn close(stream: u32) -> Step {
    Step::CloseStream {
        stream: StreamKey(stream),
    }
}

/// Returns the number of each packet in the steps, and the packets of gaps.
fn packets_and_gaps(steps: &[Numbered]) -> (u64, u64) {
    let mut counts = (0, 0);
    for (step, _) in steps {
        match step {
            Step::Packet { .. } => counts.0 += 1,
            Step::Gap { packets, .. } => counts.1 += packets,
            _ => {}
        }
    }
    counts
}

/// Checks that the steps are those of `sent` in the same order: a prefix of them, less packets
/// before the position where each stream begins. Returns the length of the prefix, beacons not
/// counted.
fn check_prefix(found: &[Numbered], sent: &[Step]) -> usize {
    let is_beacon = |step: &Step| matches!(step, Step::Beacon { .. });
    let mut found = found.iter().filter(|(step, _)| !is_beacon(step)).peekable();
    let mut next = BTreeMap::<StreamKey, u64>::new();
    let mut length = 0;
    for step in sent.iter().filter(|step| !is_beacon(step)) {
        if let Step::Packet { stream, .. } = step {
            let seq = next.entry(*stream).or_default();
            let own = *seq;
            *seq += 1;
            match found.peek() {
                Some((found_step, found_seq)) if found_step == step => {
                    assert_eq!(*found_seq, own);
                    found.next();
                }
                // Acknowledged to the process before.
                _ => {}
            }
        } else {
            match found.next() {
                None => break,
                Some((found_step, _)) => assert_eq!(found_step, step),
            }
        }
        length += 1;
        if found.peek().is_none() {
            break;
        }
    }
    assert_eq!(
        found.next(),
        None,
        "steps that were not sent, or in another order"
    );
    length
}
