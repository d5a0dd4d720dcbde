//! Files that do not answer: something else in the place of a tracefile or index file, or a disk that
//! hangs. It concerns the session whose file it is, and nobody else.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use relay_proto::stream::AddStream;
use rustix::fs::{CWD, Mode, mkfifoat};
use tests::bystander::Bystander;
use tests::lab::Lab;
use tests::lease::Lease;
use tests::producer::{Producer, index, live_session, packet, stream};
use tests::relay::Relay;
use tests::tree::tree;
use tests::viewer::Viewer;
use tests::wait_until;
use tests::watch::Watch;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

use super::OK;

const TRACE: &str = "ust/uid/0/64-bit";
const PACKET: usize = 3000;

/// More than the relay has threads, and than may have file calls in flight.
const VIEWERS: usize = 20;

/// A relay that is watched in every way there is.
struct Watched {
    lab: Lab,
    relay: Relay,
    watch: Watch,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let lab = Lab::new();
        let arguments: Vec<_> = ["--http=0"].iter().chain(arguments).copied().collect();
        let relay = Relay::start_with(&lab, &arguments);
        let watch = Watch::of(&relay);
        Self { lab, relay, watch }
    }

    fn file(&self, name: &str) -> PathBuf {
        let output = tree(&self.relay.output);
        let found = output.keys().find(|path| path.ends_with(name)).unwrap();
        self.relay.output.join(found)
    }

    fn health(&self) -> u64 {
        let name = format!(".lttng/relayd/health-{}", self.relay.id());
        let mut socket = UnixStream::connect(self.lab.path().join(name)).unwrap();
        socket.write_all(&[0; 4]).unwrap();
        let mut mask = [0; 8];
        socket.read_exact(&mut mask).unwrap();
        u64::from_ne_bytes(mask)
    }

    /// Everything that is not of the session whose files hang goes on: new connections too.
    fn assert_others_are_served(&self, bystander: Option<&mut Bystander>) {
        if let Some(bystander) = bystander {
            bystander.is_well();
        }
        assert_eq!(self.health(), 0);
        for path in ["/healthz", "/readyz", "/metrics", "/sessions"] {
            assert_eq!(self.watch.get(path).0, 200, "{path}");
        }
        let mut viewer = Viewer::connect(self.relay.live);
        assert!(!viewer.sessions().is_empty());
    }
}

/// A live session whose only stream has a packet in each of five tracefiles, of which all but the last
/// are closed.
fn in_five_tracefiles(relay: &Relay, name: &str) -> (Producer, StreamId) {
    let mut producer = Producer::open(relay, live_session(name));
    let stream = producer.add(AddStream {
        tracefile_size: Bytes(4096),
        ..stream("chan_0", TRACE)
    });
    producer.add_trace(TRACE, &[]);
    for number in 0..5 {
        producer.send_packet(stream, number, PACKET);
    }
    producer.settle(stream, 4);
    (producer, stream)
}

/// Asks for the next index of the stream, in a thread.
fn ask_for_index(relay: &Relay, session: &str, stream: StreamId) -> JoinHandle<NextIndex> {
    let (mut viewer, _, _) = Viewer::attached(relay.live, session, Seek::Beginning);
    std::thread::spawn(move || viewer.next_index(stream))
}

fn a_fifo_in_place_of(file: &str) {
    let watched = Watched::start(&[]);
    let mut bystander = Bystander::of(&watched.relay);
    let (_producer, stream) = in_five_tracefiles(&watched.relay, "fifo");
    let path = watched.file(file);
    std::fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let asked: Vec<_> = (0..VIEWERS)
        .map(|_| ask_for_index(&watched.relay, "fifo", stream))
        .collect();
    watched.assert_others_are_served(Some(&mut bystander));
    for index in asked {
        // What lies in the other files is there.
        let index = index.join().unwrap();
        assert_eq!(index.status, IndexStatus::Ready);
        assert_eq!(index.offset, Bytes(PACKET as u64));
    }
    let skipped = ["skipped for viewers", "not a regular file"];
    watched.relay.wait_for_log(&skipped);
    let log = watched.relay.log();
    let logged = log.iter().filter(|line| line.contains(skipped[0])).count();
    assert_eq!(logged, 1);
    assert!(watched.relay.stop().status.success());
}

#[test]
fn a_fifo_in_the_place_of_a_tracefile_holds_up_no_viewer() {
    a_fifo_in_place_of("/chan_0_0");
}

#[test]
fn a_fifo_in_the_place_of_an_index_file_holds_up_no_viewer() {
    a_fifo_in_place_of("/index/chan_0_0.idx");
}

#[test]
fn viewers_whose_file_calls_hang_hold_up_no_viewer_of_another_session() {
    let watched = Watched::start(&[]);
    let mut bystander = Bystander::of(&watched.relay);
    let (_producer, stream) = in_five_tracefiles(&watched.relay, "hung");
    let lease = Lease::take(&watched.file("/chan_0_0"));
    let asked: Vec<_> = (0..VIEWERS)
        .map(|_| ask_for_index(&watched.relay, "hung", stream))
        .collect();
    lease.wait_until_asked_for();
    for _ in 0..10 {
        watched.assert_others_are_served(Some(&mut bystander));
    }
    drop(Bystander::named(&watched.relay, "new"));
    assert!(lease.is_asked_for());
    assert!(asked.iter().all(|asked| !asked.is_finished()));
    // When the file answers, all of them have their packet.
    drop(lease);
    for index in asked {
        let index = index.join().unwrap();
        assert_eq!((index.status, index.offset), (IndexStatus::Ready, Bytes(0)));
    }
    assert!(watched.relay.stop().status.success());
}

/// A producer whose first stream has a packet in a tracefile that is closed, but not over: the next
/// packet opens it again.
fn with_a_file_to_be_opened_again(relay: &Relay) -> (Producer, StreamId) {
    let mut producer = Producer::open(relay, live_session("hung"));
    let names: Vec<_> = (0..100).map(|number| format!("chan_{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let streams = producer.add_trace(TRACE, &names);
    for stream in &streams {
        producer.send_packet(*stream, 0, PACKET);
    }
    producer.settle(streams[99], 0);
    (producer, streams[0])
}

#[test]
fn a_worker_whose_file_call_hangs_holds_up_no_new_connection() {
    // Files that are one too many are closed.
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let lease = Lease::take(&watched.file("/chan_0"));
    producer.data.write_all(&packet(stream, 1, PACKET)).unwrap();
    lease.wait_until_asked_for();
    // Some of them come to the worker that hangs.
    let mut others: Vec<_> = (0..6)
        .map(|number| Bystander::named(&watched.relay, &format!("other {number}")))
        .collect();
    for other in &mut others {
        watched.assert_others_are_served(Some(other));
    }
    watched.relay.wait_for_log(&["worker does not respond"]);
    assert!(lease.is_asked_for());
    drop(lease);
    assert_eq!(producer.send_index(stream, 1, index(1, PACKET as u64)), OK);
    producer.settle(stream, 1);
    watched.relay.wait_for_log(&["worker responds again"]);
    drop(others);
    assert!(watched.relay.stop().status.success());
}

#[test]
fn a_relay_stops_though_a_file_call_of_a_session_hangs() {
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let lease = Lease::take(&watched.file("/chan_0"));
    producer.data.write_all(&packet(stream, 1, PACKET)).unwrap();
    lease.wait_until_asked_for();
    let other = Bystander::of(&watched.relay);
    assert!(lease.is_asked_for());
    let ended = watched.relay.stop();
    assert!(ended.status.success());
    let is_told =
        |line: &String| line.contains("sessions not closed") && line.contains("sessions=1");
    assert!(ended.stderr.iter().any(is_told), "{:?}", ended.stderr);
    drop((lease, other));
}

#[test]
fn a_hung_file_is_waited_for_by_the_sessions_own_producer_and_loses_nothing() {
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let path = watched.file("/chan_0");
    let lease = Lease::take(&path);
    for number in 1..5 {
        producer
            .data
            .write_all(&packet(stream, number, PACKET))
            .unwrap();
    }
    lease.wait_until_asked_for();
    drop(lease);
    for number in 1..5 {
        assert_eq!(
            producer.send_index(stream, number, index(number, PACKET as u64)),
            OK
        );
    }
    producer.settle(stream, 4);
    wait_until("all packets are written", || {
        std::fs::metadata(&path).unwrap().len() == 5 * PACKET as u64
    });
}
