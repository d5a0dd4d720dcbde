//! Compares the archive with what producers have sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use archive::catalog::{
    FoundSession, WantedSession, list_sessions, open_session, read_listed, read_run,
};
use archive::object::PacketBlock;
use archive::store::Store;
use tests::lab::Lab;
use tests::process::Process;
use tests::test_live;
use tokio::runtime::Runtime;

use super::load::{self, Packets};
use super::store::Place;
use super::{RECOVERY_TIMEOUT, agents};
use crate::agent::{TRACE, assert_all};

/// Threads that compare sessions.
const THREADS: usize = 2;

/// Sessions of the load that `test-live` reads as well, of all.
const READ_EVERY: usize = 100;

/// Waits until the end of so many sessions is listed, as long as more of them are.
pub(super) fn wait_for_ends(store: &dyn Store, sessions: usize) {
    let runtime = Runtime::new().unwrap();
    let (mut last, mut at) = (usize::MAX, Instant::now());
    loop {
        let found = list(&runtime, store);
        let running = found.iter().filter(|found| !found.has_ended());
        let running: Vec<_> = running.map(|found| (found.session, &found.name)).collect();
        if running.is_empty() && found.len() == sessions {
            return;
        }
        if running.len() < last {
            (last, at) = (running.len(), Instant::now());
        }
        let some = &running[..running.len().min(10)];
        assert!(
            at.elapsed() < RECOVERY_TIMEOUT,
            "{} sessions, {} have no end: {some:?}",
            found.len(),
            running.len()
        );
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Expects of each session of the load the packets that it has sent, once and in order.
pub(super) fn assert_packets(store: &dyn Store, sent: &[u64]) {
    let runtime = Runtime::new().unwrap();
    let found = list(&runtime, store);
    let of_load = found.into_iter().filter(|found| found.host == load::HOST);
    let of_load: Vec<_> = of_load.collect();
    assert_eq!(of_load.len(), sent.len());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(found) = of_load.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let number = found.name.strip_prefix("load-").unwrap();
                    let number: usize = number.parse().unwrap();
                    assert_session(&runtime, store, found, (number, sent[number]));
                }
            });
        }
    });
}

fn assert_session(
    runtime: &Runtime,
    store: &dyn Store,
    found: &FoundSession,
    (session, sent): (usize, u64),
) {
    let name = &found.name;
    let (listed, failures) = runtime.block_on(read_listed(store, vec![found.clone()]));
    assert!(failures.is_empty(), "{name}: {failures:?}");
    let opened = runtime
        .block_on(open_session(store, found.session))
        .unwrap();
    assert!(opened.failures.is_empty(), "{name}: {:?}", opened.failures);
    let streams = opened.view.traces.iter().flat_map(|trace| &trace.streams);
    let mut packets = Packets::new(session as u64);
    let mut next = 0;
    for stream in streams {
        assert_eq!(stream.missing, 0, "{name}");
        for used in &stream.blocks {
            let (object, record) = (&opened.objects[used.block.object], &used.block.record);
            let run = runtime.block_on(read_run(store, object, &[record.block]));
            let block = run.unwrap().decode(&record.block).unwrap();
            let block = PacketBlock::parse(record, block).unwrap();
            for number in used.begin.0..used.end.0 {
                assert_eq!(number, next, "{name}: {object}");
                let place = usize::try_from(number - record.first.0).unwrap();
                let (_, archived) = block.packet(place).unwrap();
                let is_same = archived == packets.next().0;
                assert!(is_same, "{name}: packet {number} differs in {object}");
                next += 1;
            }
        }
    }
    assert_eq!(next, sent, "{name}: {:#?}", opened.objects);
    assert_eq!(listed[0].ended.as_ref().unwrap().packets, sent, "{name}");
}

/// Expects what `test-live` shows of the agents' sessions, and of some of the load: every event
/// once and in order.
pub(super) fn assert_shown(place: &Place, lab: &Lab, agents: usize, events: u64, sent: &[u64]) {
    let read = |host: &str, name: &str| {
        let target = format!("{}/host/{host}/{name}", place.url());
        let mut command = test_live::command(lab, &["--strict"]);
        let process = Process::start(place.configure(&mut command).arg(target));
        process.wait_within(RECOVERY_TIMEOUT).expect_success()
    };
    for agent in 0..agents {
        assert_all(&read(&agents::host(agent), TRACE), events);
    }
    for (session, packets) in sent.iter().enumerate().step_by(READ_EVERY) {
        let name = load::name(session);
        let lines = read(load::HOST, &name);
        let number = |line: &String| -> u64 {
            let (_, rest) = line.split_once("number = ").unwrap();
            rest.split(',').next().unwrap().parse().unwrap()
        };
        let numbers: Vec<_> = lines.iter().map(number).collect();
        assert!(numbers.into_iter().eq(0..*packets), "{name}");
    }
}

fn list(runtime: &Runtime, store: &dyn Store) -> Vec<FoundSession> {
    let listed = runtime.block_on(list_sessions(store, &WantedSession::default(), &[]));
    listed.unwrap()
}
