//! A fleet in simulated time: relays that archive to one store, and producers that keep each packet
//! until it is acknowledged and move when they lose their relay, while relays hang, drain, die and
//! are cut off from the store, and requests are late or lost. All that is random follows from a
//! seed.
//!
//! `FAULT_SEED=N` runs the seed that a failed run has printed, `FLEET_SEEDS=N` runs N seeds.

mod client;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use archive::catalog::read_listed;
use archive::name::{BootId, SessionKey};
use archive::orphans::{find_orphans, move_orphan};
use archive::store::{BoxFuture, FaultSource};
use parking_lot::Mutex;
use tempfile::{TempDir, tempdir};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::*;
use crate::producer::disk_faults::memory_relay::MemoryRelay;
use crate::store::disk_faults::Packets;
use crate::store::pool::Pool;
use client::Client;

/// Seeds that are run unless the environment says otherwise: each takes a third of a second.
const SEEDS: u64 = 50;
const RELAYS: usize = 3;
const PRODUCERS: usize = 3;
const STREAMS: usize = 2;
/// Packets of each stream.
const PACKETS: u64 = 16;
/// Time for which there are faults.
const FAULTS: Duration = Duration::from_secs(120);
/// Time within which producers and relays must be done after the faults.
const RECOVERY: Duration = Duration::from_secs(300);
/// Time after which a relay gives up the session of a producer, in some runs.
const SHORT_RESUME: Duration = Duration::from_secs(45);
/// Time for which a producer waits for its relay, and a relay for the store.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// A random time of 1 to `max` milliseconds.
fn millis(max: u64) -> Duration {
    Duration::from_millis(fastrand::u64(1..=max))
}

fn one_of(count: u32) -> bool {
    fastrand::u32(..count) == 0
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// A time after which no object was created.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(1)
}

fn key(producer: usize) -> SessionKey {
    SessionKey {
        producer: [7; 16],
        id: producer as u64,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Killed,
}

/// The faults of one run of a relay.
#[derive(Debug)]
struct RelayFaults {
    state: Mutex<State>,
    changed: Notify,
    /// Time until which the relay cannot reach the store.
    cut_until: Mutex<Instant>,
    /// Time from which on there are no faults.
    calm_at: Instant,
}

impl RelayFaults {
    async fn wait_for(&self, is_one: impl Fn(State) -> bool) -> State {
        loop {
            let changed = self.changed.notified();
            let state = *self.state.lock();
            if is_one(state) {
                return state;
            }
            changed.await;
        }
    }

    /// Waits while the relay is paused. Returns false if it is killed.
    async fn is_alive(&self) -> bool {
        self.wait_for(|state| state != State::Paused).await == State::Running
    }

    /// Whether the relay answers in time.
    async fn answers(&self) -> bool {
        timeout(REPLY_TIMEOUT, self.is_alive()).await == Ok(true)
    }

    /// Waits while the relay is paused, and for ever if it is killed.
    async fn share(&self) {
        self.wait_for(|state| state == State::Running).await;
    }

    /// Does the work of the relay, but for the time in which it is paused.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                _ = self.wait_for(|state| state != State::Running) => self.share().await,
                done = &mut work => return done,
            }
        }
    }

    /// Pauses, continues or kills the relay, unless it is killed.
    fn set(&self, next: State) {
        let mut state = self.state.lock();
        if *state != State::Killed {
            *state = next;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn is_killed(&self) -> bool {
        *self.state.lock() == State::Killed
    }
}

impl FaultSource for RelayFaults {
    fn next_fault(&self) -> BoxFuture<'_, Option<Fault>> {
        Box::pin(async {
            self.share().await;
            sleep(millis(50)).await;
            self.share().await;
            let now = Instant::now();
            let cut = self.cut_until.lock().saturating_duration_since(now);
            if !cut.is_zero() {
                sleep(cut.min(REPLY_TIMEOUT)).await;
                self.share().await;
                let late = cut.saturating_sub(REPLY_TIMEOUT) + millis(5000);
                return Some(if one_of(2) {
                    Fault::Late(late)
                } else {
                    Fault::Lost
                });
            }
            match fastrand::u32(..60) {
                _ if now >= self.calm_at => None,
                0 => Some(Fault::Lost),
                1 => Some(Fault::AnswerLost),
                2 => Some(Fault::Late(millis(20_000))),
                _ => None,
            }
        })
    }
}

/// One run of a relay.
struct Run {
    relay: Arc<MemoryRelay>,
    faults: Arc<RelayFaults>,
    stop: Arc<Notify>,
    archiving: JoinHandle<bool>,
    others: JoinHandle<()>,
    output: TempDir,
}

struct Fleet {
    store: Arc<dyn Store>,
    packets: Arc<Packets>,
    calm_at: Instant,
    resume_timeout: Duration,
    /// None: the relay is being started.
    runs: Mutex<[Option<Run>; RELAYS]>,
    /// The packets of each producer that were acknowledged.
    acknowledged: Mutex<[[u64; STREAMS]; PRODUCERS]>,
}

impl Fleet {
    fn start_relay(&self, place: usize, output: TempDir) {
        let boot = BootId(std::array::from_fn(|_| fastrand::u8(..)));
        let faults = Arc::new(RelayFaults {
            state: Mutex::new(State::Running),
            changed: Notify::new(),
            cut_until: Mutex::new(Instant::now()),
            calm_at: self.calm_at,
        });
        let feed = Arc::new(ArchiveFeed::of_boot(boot, true));
        let source = Arc::clone(&faults) as _;
        let store = Arc::new(FaultyStore::with_source(Arc::clone(&self.store), source));
        let (pool, archive) = (Pool::new(100), Some(Arc::clone(&feed)));
        let mut relay = MemoryRelay::start_with(output.path(), pool, None, archive);
        relay.packets = Arc::clone(&self.packets);
        let registry = Arc::clone(&relay.registry);
        let times = ArchiveTimes {
            part_age: Duration::from_secs(20),
            ..TIMES
        };
        let (mut archiver, done) =
            Archiver::new(Arc::clone(&store) as _, times, feed, Arc::default());
        // That takes many requests, and is tested by itself.
        archiver.is_probed = true;
        let stop = Arc::<Notify>::default();
        let (own, stopped) = (Arc::clone(&faults), Arc::clone(&stop));
        let archiving = async move { own.run(archiver.archive(done, &stopped)).await };
        let ticks = async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                registry.tick(now());
            }
        };
        let own = Arc::clone(&faults);
        let others = async move {
            own.run(async { tokio::join!(ticks, move_logs(store, boot)).0 })
                .await
        };
        self.runs.lock()[place] = Some(Run {
            relay: Arc::new(relay),
            faults,
            stop,
            archiving: tokio::spawn(archiving),
            others: tokio::spawn(others),
            output,
        });
    }

    /// Kills a relay, and starts another one in its place, with its output if that `survives`.
    async fn replace_relay(&self, place: usize, survives: bool) {
        let Some(run) = self.runs.lock()[place].take() else {
            return;
        };
        run.faults.set(State::Killed);
        run.archiving.abort();
        run.others.abort();
        // Until all that hold files of it have noticed.
        while Arc::strong_count(&run.relay) > 1 {
            sleep(Duration::from_millis(100)).await;
        }
        drop(run.relay);
        sleep(millis(20_000)).await;
        let output = if survives {
            run.output
        } else {
            tempdir().unwrap()
        };
        self.start_relay(place, output);
    }

    fn relay(&self, place: usize) -> Option<(Arc<MemoryRelay>, Arc<RelayFaults>)> {
        let runs = self.runs.lock();
        let run = runs[place].as_ref()?;
        Some((Arc::clone(&run.relay), Arc::clone(&run.faults)))
    }

    async fn make_faults(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        while Instant::now() < self.calm_at {
            sleep(millis(10_000)).await;
            let place = fastrand::usize(..RELAYS);
            let Some((relay, faults)) = self.relay(place) else {
                continue;
            };
            let until = (Instant::now() + millis(90_000)).min(self.calm_at);
            match fastrand::u32(..8) {
                0..3 => *faults.cut_until.lock() = until,
                3..6 => {
                    faults.set(State::Paused);
                    tasks.spawn(async move {
                        sleep_until(until).await;
                        faults.set(State::Running);
                    });
                }
                fault => {
                    if one_of(3) {
                        relay.registry.drain();
                    }
                    let fleet = Arc::clone(&self);
                    tasks.spawn(async move {
                        sleep(millis(5000)).await;
                        fleet.replace_relay(place, fault == 6).await;
                    });
                }
            }
        }
        tasks.join_all().await;
    }

    /// Reads sessions while they are archived.
    async fn read(self: Arc<Self>) {
        while Instant::now() < self.calm_at {
            sleep(millis(10_000)).await;
            let producer = fastrand::usize(..PRODUCERS);
            let acknowledged = self.acknowledged.lock()[producer];
            if acknowledged != [0; STREAMS] {
                self.assert_archived(producer, acknowledged).await;
            }
        }
    }

    /// Compares what the archive has of a session with what its producer has sent: of each
    /// stream, at least `min_packets` must be there.
    async fn assert_archived(&self, producer: usize, min_packets: [u64; STREAMS]) {
        let opened = open_session(&*self.store, key(producer)).await.unwrap();
        assert!(opened.failures.is_empty(), "{:?}", opened.failures);
        let found = packets(&*self.store, &opened).await;
        for (stream, min_packets) in min_packets.into_iter().enumerate() {
            let found = found.get(&channel(stream)).map_or(&[][..], |found| found);
            let numbers: Vec<_> = found.iter().map(|(number, _)| *number as u64).collect();
            let case = format!("producer {producer}, stream {stream}: {numbers:?}, {min_packets}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{case}");
            let first = numbers
                .into_iter()
                .take_while(|number| *number < min_packets);
            assert!(first.eq(0..min_packets), "{case}");
            for (number, bytes) in found {
                let (sent, _) = &self.packets.packets[producer * STREAMS + stream][*number];
                assert!(bytes == sent, "{case}: packet {number}");
            }
        }
    }

    /// Compares the archive with what was sent, when all is done.
    async fn assert_all_archived(&self, clients: &[Client]) {
        let found = list_sessions(&*self.store, &Default::default(), &[]).await;
        let (listed, failures) = read_listed(&*self.store, found.unwrap()).await;
        assert!(failures.is_empty(), "{failures:?}");
        assert_eq!(listed.len(), PRODUCERS);
        for client in clients {
            self.assert_archived(client.number, [PACKETS; STREAMS])
                .await;
            let own = listed.iter();
            let mut own = own.filter(|listed| listed.found.session == key(client.number));
            let ended = own
                .next()
                .unwrap()
                .ended
                .as_ref()
                .map(|ended| ended.packets);
            let number = client.number;
            let is_short = self.resume_timeout == SHORT_RESUME;
            let closed_at = client.closed_at.as_ref().unwrap();
            let may_lack_end = closed_at.is_killed() || client.is_end_lost && !is_short;
            assert!(ended.is_some() || may_lack_end, "{number} has no end");
            // A relay that has given up a session may list its end while it goes on elsewhere.
            if let Some(ended) = ended.filter(|_| !is_short) {
                assert_eq!(ended, PACKETS * STREAMS as u64, "{number}");
            }
        }
    }
}

fn channel(stream: usize) -> String {
    format!("channel_{stream}")
}

/// Moves logs of other relays to parts, whether these are gone or only slow.
async fn move_logs(store: Arc<FaultyStore>, own: BootId) {
    loop {
        sleep(millis(60_000)).await;
        let orphans = find_orphans(&*store, own, later()).await;
        for boot in orphans.unwrap_or_default() {
            if one_of(2) {
                // What has failed is tried again in the next round.
                let _ = move_orphan(&*store, boot).await;
            }
        }
    }
}

/// Simulates a fleet, and compares what is in the archive then with what the producers have sent.
async fn simulate() {
    let channels = u32::try_from(PRODUCERS * STREAMS).unwrap();
    let fleet = Arc::new(Fleet {
        store: in_memory(),
        packets: Arc::new(Packets::of_streams(channels, PACKETS)),
        calm_at: Instant::now() + FAULTS,
        resume_timeout: if one_of(2) {
            SHORT_RESUME
        } else {
            FAULTS + RECOVERY
        },
        runs: Mutex::default(),
        acknowledged: Mutex::default(),
    });
    (0..RELAYS).for_each(|place| fleet.start_relay(place, tempdir().unwrap()));
    let clients = (0..PRODUCERS).map(|number| Client::new(&fleet, number).run());
    let clients: JoinSet<Client> = clients.collect();
    let faults = tokio::spawn(Arc::clone(&fleet).make_faults());
    Arc::clone(&fleet).read().await;
    faults.await.unwrap();
    let clients = timeout(RECOVERY, clients.join_all()).await;
    let clients = clients.expect("the producers are done");
    // Relays end the sessions that were not resumed.
    sleep(2 * SHORT_RESUME).await;
    let runs = std::mem::take(&mut *fleet.runs.lock());
    for run in runs.into_iter().flatten() {
        run.others.abort();
        run.stop.notify_one();
        let archived = timeout(RECOVERY, run.archiving).await;
        assert!(archived.expect("the archiver stops").unwrap());
    }
    fleet.assert_all_archived(&clients).await;
    let store = &*fleet.store;
    for boot in find_orphans(store, BootId([0; 16]), later()).await.unwrap() {
        move_orphan(store, boot).await.unwrap();
    }
    let log = store.list("log/", None, 1000).await.unwrap();
    assert!(log.is_empty(), "all is in parts: {log:?}");
    fleet.assert_all_archived(&clients).await;
}

fn run_seed(seed: u64) {
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let simulated = catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulate())));
    assert!(
        simulated.is_ok(),
        "a fleet fails: run it with FAULT_SEED={seed}"
    );
}

#[test]
fn a_fleet_archives_each_packet_once_whatever_fails() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    if let Some(seed) = number("FAULT_SEED") {
        return run_seed(seed);
    }
    let (seeds, next) = (number("FLEET_SEEDS").unwrap_or(SEEDS), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let seeds =
                    || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|own| *own < seeds);
                std::iter::from_fn(seeds).for_each(run_seed);
            });
        }
    });
}
