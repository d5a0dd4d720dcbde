//! Many sessions on the uplink of `consumer`, in this process: each sends a packet a second, whose
//! bytes follow from the session and the number of the packet. That is the record with which the
//! archive is compared.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use consumer::queue::{
    QueueCapacity, SessionDescription, SessionEnd, SessionOutcome, SessionSender, Step, StreamKey,
    TraceKey, session_channel,
};
use consumer::status::{ConnectionState, SessionCounters, StatusRegistry};
use consumer::uplink::{self, UplinkSettings};
use ctf::model::Uuid;
use ctf::write::{
    Appended, DeclaredEventClass, EventDeclaration, EventRecord, FieldType, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, Value, Width,
};
use fastrand::Rng;
use relay_proto::session::TraceFormat;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wire::{ClassId, PacketIndex, Timestamp};

use super::{LIVE_TIMER, RECOVERY_TIMEOUT};

/// The traced host of all these sessions.
pub(super) const HOST: &str = "load";

/// Time between two packets of a session.
const PACKET_INTERVAL: Duration = Duration::from_secs(1);

/// Length of a packet in bytes.
const PACKET_BYTES: usize = 8192;

/// Length of the text in a packet, with which it has the length that it is to have.
const TEXT_BYTES: usize = PACKET_BYTES - 200;

/// Between texts that are random, so that packets can be compressed as those of tracers can.
const FILL: &str = "GET /v1/items?sort=name status=200 route=items.list pool=default retries=0 ";

/// Bytes of the packets that a session, and that all of them, may have in memory.
const CAPACITY: QueueCapacity = QueueCapacity {
    session_bytes: 4 << 20,
    all_bytes: 512 << 20,
};

/// Time between two looks at the sessions whose relay has been killed.
const WATCH_INTERVAL: Duration = Duration::from_millis(10);

/// The packets of a session, one after the other.
pub(super) struct Packets {
    writer: StreamWriter,
    event: DeclaredEventClass,
    session: u64,
    number: u64,
    text: String,
}

impl Packets {
    pub(super) fn new(session: u64) -> Self {
        let (_, class, event) = declare();
        let size = PacketSize::new(PACKET_BYTES, PACKET_BYTES);
        Self {
            writer: StreamWriter::new(&class, 0, 0, size),
            event,
            session,
            number: 0,
            text: String::new(),
        }
    }

    pub(super) fn next(&mut self) -> (Vec<u8>, PacketIndex) {
        let mut random = Rng::with_seed(self.session << 32 | self.number);
        self.text.clear();
        while self.text.len() < TEXT_BYTES {
            write!(self.text, "{FILL}{:016x} ", random.u64(..)).unwrap();
        }
        self.text.truncate(TEXT_BYTES);
        let time = Timestamp(1000 * self.number);
        self.writer.open(time).unwrap();
        let record = EventRecord {
            time,
            process: 1,
            thread: 1,
            values: &[Value::Unsigned(self.number), Value::Text(&self.text)],
        };
        assert_eq!(
            self.writer.append(&self.event, &record),
            Ok(Appended::Written)
        );
        let closed = self.writer.close(Timestamp(time.0 + 1)).unwrap();
        assert_eq!(closed.bytes.len(), PACKET_BYTES);
        self.number += 1;
        (closed.bytes.to_vec(), closed.index)
    }
}

/// The metadata of every session, and the classes that it declares.
fn declare() -> (
    MetadataText,
    ctf::write::DeclaredStreamClass,
    DeclaredEventClass,
) {
    let trace = TraceDeclaration::new(Uuid(*b"many-sessions-ct"), "load");
    let mut metadata = MetadataText::new(&trace);
    let class = metadata.stream(0).unwrap();
    let declaration = EventDeclaration {
        fields: vec![
            ("number".to_owned(), FieldType::Unsigned(Width::Bits64)),
            ("text".to_owned(), FieldType::Text),
        ],
        ..EventDeclaration::new(0, "load")
    };
    let event = metadata.event(&class, &declaration).unwrap();
    (metadata, class, event)
}

/// The name of a session, by its number.
pub(super) fn name(session: usize) -> String {
    format!("load-{session:04}")
}

/// Sessions that are sent packets until they are stopped.
pub(super) struct Load {
    runtime: Runtime,
    /// The sessions: number, packets that were sent, and what has become of them.
    sessions: JoinSet<(usize, u64, SessionOutcome)>,
    uplinks: JoinSet<()>,
    registry: StatusRegistry,
    is_stopping: Arc<AtomicBool>,
    watched: Arc<Mutex<Watched>>,
    watch: JoinHandle<()>,
}

/// Sessions whose relay has been killed, and how long others took.
#[derive(Default)]
struct Watched {
    lost: Vec<LostRelay>,
    taken: Vec<Duration>,
}

/// A session whose relay has been killed.
struct LostRelay {
    counters: Arc<SessionCounters>,
    killed_at: Instant,
    reconnects: u64,
    /// The number of acknowledged packets when it had another relay.
    acknowledged: Option<u64>,
}

impl Load {
    /// Opens sessions, of which as many begin with each relay.
    pub(super) fn start(relays: &[String], sessions: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let registry = StatusRegistry::default();
        let is_stopping = Arc::<AtomicBool>::default();
        let (mut uplinks, mut senders) = (JoinSet::new(), JoinSet::new());
        for first in 0..relays.len() {
            let settings = UplinkSettings {
                target: super::list_from(relays, first).parse().unwrap(),
                reconnect_timeout: None,
            };
            let (opener, opened) = session_channel(CAPACITY);
            let token = CancellationToken::new();
            let uplink = uplink::run(opened, settings, registry.clone(), token);
            uplinks.spawn_on(uplink, runtime.handle());
            for session in (first..sessions).step_by(relays.len()) {
                let sender = opener.open_session(description(session)).unwrap();
                let sending = send_packets(session, sender, Arc::clone(&is_stopping));
                senders.spawn_on(sending, runtime.handle());
            }
        }
        let watched = Arc::<Mutex<Watched>>::default();
        let (seen, is_over) = (Arc::clone(&watched), Arc::clone(&is_stopping));
        let watch = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                seen.lock().unwrap().look();
                std::thread::sleep(WATCH_INTERVAL);
            }
        });
        Self {
            runtime,
            sessions: senders,
            uplinks,
            registry,
            is_stopping,
            watched,
            watch,
        }
    }

    /// Begins to measure for the sessions of a relay, which is killed now, how long it takes until
    /// another one acknowledges a packet. Returns their number.
    pub(super) fn watch_relay(&self, url: &str) -> usize {
        let killed_at = Instant::now();
        let (open, _) = self.registry.sessions();
        let lost = open.into_iter().filter(|counters| {
            matches!(counters.connection_state(), ConnectionState::Connected { relay, .. } if relay == url)
        });
        let lost = lost.map(|counters| LostRelay {
            killed_at,
            reconnects: counters.reconnects.get(),
            acknowledged: None,
            counters,
        });
        let lost: Vec<_> = lost.collect();
        let count = lost.len();
        self.watched.lock().unwrap().lost.extend(lost);
        count
    }

    /// Packets that were acknowledged, and that wait for it.
    pub(super) fn progress(&self) -> (u64, u64) {
        let (open, ended) = self.registry.sessions();
        let sum = |count: fn(&SessionCounters) -> u64| -> u64 {
            open.iter().map(|counters| count(counters)).sum()
        };
        let acknowledged = sum(|counters| counters.acknowledged.get()) + ended.acknowledged;
        (acknowledged, sum(|counters| counters.queued_packets.get()))
    }

    /// Ends all sessions, and waits until relays have acknowledged everything. Returns the number
    /// of packets of each session, and the times from the death of a relay to the next
    /// acknowledgement.
    pub(super) fn stop(mut self) -> (Vec<u64>, Vec<Duration>) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let mut sent = vec![0; self.sessions.len()];
        let ended = self.runtime.block_on(async {
            let all = async {
                while let Some(ended) = self.sessions.join_next().await {
                    let (session, packets, outcome) = ended.unwrap();
                    assert_eq!(outcome.end, SessionEnd::Complete, "{}", name(session));
                    assert_eq!((outcome.acknowledged, outcome.lost), (packets, 0));
                    sent[session] = packets;
                }
                while self.uplinks.join_next().await.is_some() {}
            };
            tokio::time::timeout(RECOVERY_TIMEOUT, all).await
        });
        assert!(ended.is_ok(), "not acknowledged: {:#?}", self.open());
        self.watch.join().unwrap();
        let watched = std::mem::take(&mut *self.watched.lock().unwrap());
        (sent, watched.taken)
    }

    /// The first sessions that have not ended.
    fn open(&self) -> Vec<Arc<SessionCounters>> {
        let (open, _) = self.registry.sessions();
        open.into_iter().take(10).collect()
    }
}

impl Watched {
    fn look(&mut self) {
        let Self { lost, taken } = self;
        lost.retain_mut(|session| {
            let counters = &session.counters;
            let is_connected = matches!(
                counters.connection_state(),
                ConnectionState::Connected { .. }
            );
            if !is_connected || counters.reconnects.get() == session.reconnects {
                return true;
            }
            let acknowledged = counters.acknowledged.get();
            let before = *session.acknowledged.get_or_insert(acknowledged);
            let is_waiting = acknowledged == before;
            if !is_waiting {
                taken.push(session.killed_at.elapsed());
            }
            is_waiting
        });
    }
}

fn description(session: usize) -> SessionDescription {
    SessionDescription {
        name: name(session),
        host: HOST.to_owned(),
        base_path: String::new(),
        live_timer: Some(LIVE_TIMER),
        trace_format: TraceFormat::Ctf1,
        tracefile_size: 0,
        tracefile_count: 0,
    }
}

/// Sends packets at their times until the load is stopped, and waits for the end of the session.
async fn send_packets(
    session: usize,
    sender: SessionSender,
    is_stopping: Arc<AtomicBool>,
) -> (usize, u64, SessionOutcome) {
    let (metadata, class, _) = declare();
    let (trace, stream) = (TraceKey(0), StreamKey(0));
    let begin = [
        Step::AddTrace {
            path: "ust/uid/0/64-bit".to_owned(),
        },
        Step::AddStream {
            trace,
            channel: "channel_0".to_owned(),
            class: ClassId(class.id().into()),
        },
        Step::Metadata {
            trace,
            bytes: metadata.as_str().to_owned().into(),
        },
    ];
    let mut is_open = true;
    for step in begin {
        is_open = is_open && sender.send(step).await.is_ok();
    }
    // Not all at the same moment.
    tokio::time::sleep(PACKET_INTERVAL.mul_f64(fastrand::f64())).await;
    let mut due = tokio::time::interval(PACKET_INTERVAL);
    let mut packets = Packets::new(session as u64);
    let mut sent = 0;
    while is_open && !is_stopping.load(Ordering::Relaxed) {
        due.tick().await;
        let (bytes, index) = packets.next();
        let bytes = bytes.into();
        let step = Step::Packet {
            stream,
            bytes,
            index,
        };
        is_open = sender.send(step).await.is_ok();
        sent += u64::from(is_open);
    }
    (session, sent, sender.finish().await)
}
