//! Files that do not answer: something else in the place of a tracefile or index file, or a disk that
//! hangs. It concerns the session whose file it is, and nobody else.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

use relay_proto::stream::AddStream;
use rustix::fs::{CWD, Mode, mkfifoat};
use tests::file_lease::FileLease;
use tests::lab::Lab;
use tests::probe_session::ProbeSession;
use tests::producer::{Producer, TRACE_PATH, index, live_session, stream};
use tests::relay::Relay;
use tests::status_endpoint::StatusEndpoint;
use tests::tree::tree;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

use super::OK;

const PACKET: usize = 3000;

/// More than the relay has threads, and than may have file calls in flight.
const VIEWERS: usize = 20;

/// A relay that is watched in every way there is.
struct Watched {
    lab: Lab,
    relay: Relay,
    status: StatusEndpoint,
}

impl Watched {
    fn start(arguments: &[&str]) -> Self {
        let lab = Lab::new();
        let (relay, status) = StatusEndpoint::start_relay(&lab, arguments);
        Self { lab, relay, status }
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
    fn assert_others_are_served(&self, probe: Option<&mut ProbeSession>) {
        if let Some(probe) = probe {
            probe.assert_served();
        }
        assert_eq!(self.health(), 0);
        for path in ["/healthz", "/readyz", "/metrics", "/sessions"] {
            assert_eq!(self.status.get(path).0, 200, "{path}");
        }
        let mut viewer = Viewer::connect(self.relay.live);
        assert!(!viewer.sessions().is_empty());
    }
}

/// A live session whose only stream has a packet in each of five tracefiles, of which all but the last
/// are closed.
fn in_five_tracefiles(relay: &Relay, name: &str) -> (Producer, StreamId) {
    let mut producer = Producer::open(relay, live_session(name));
    let stream = producer.add_stream(AddStream {
        tracefile_size: Bytes(4096),
        ..stream("chan_0", TRACE_PATH)
    });
    producer.add_trace(TRACE_PATH, &[]);
    for number in 0..5 {
        producer.send_packet(stream, number, PACKET);
    }
    producer.wait_while_pending(stream, 4);
    (producer, stream)
}

/// Asks for the next index of the stream, in a thread.
fn ask_for_index(relay: &Relay, session: &str, stream: StreamId) -> JoinHandle<NextIndex> {
    let (mut viewer, _, _) = Viewer::attached(relay.live, session, Seek::Beginning);
    std::thread::spawn(move || viewer.next_index(stream))
}

fn a_fifo_in_place_of(file: &str) {
    let watched = Watched::start(&[]);
    let mut probe = ProbeSession::of(&watched.relay);
    let (_producer, stream) = in_five_tracefiles(&watched.relay, "fifo");
    let path = watched.file(file);
    std::fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let asked: Vec<_> = (0..VIEWERS)
        .map(|_| ask_for_index(&watched.relay, "fifo", stream))
        .collect();
    watched.assert_others_are_served(Some(&mut probe));
    for index in asked {
        // What lies in the other files is there.
        let index = index.join().unwrap();
        assert_eq!(index.status, IndexStatus::Ready);
        assert_eq!(index.offset, Bytes(PACKET as u64));
    }
    let skipped = ["skipped for its viewers", "not a regular file"];
    watched.relay.wait_for_log(&skipped);
    let log = watched.relay.log();
    let logged = log.iter().filter(|line| line.contains(skipped[0])).count();
    assert_eq!(logged, 1);
    assert!(watched.relay.stop().status.success());
}

#[test]
fn a_fifo_in_place_of_a_tracefile_blocks_no_viewer() {
    a_fifo_in_place_of("/chan_0_0");
}

#[test]
fn a_fifo_in_place_of_an_index_file_blocks_no_viewer() {
    a_fifo_in_place_of("/index/chan_0_0.idx");
}

#[test]
fn hung_file_calls_of_viewers_block_no_viewer_of_another_session() {
    let watched = Watched::start(&[]);
    let mut probe = ProbeSession::of(&watched.relay);
    let (_producer, stream) = in_five_tracefiles(&watched.relay, "hung");
    let lease = FileLease::acquire(&watched.file("/chan_0_0"));
    let asked: Vec<_> = (0..VIEWERS)
        .map(|_| ask_for_index(&watched.relay, "hung", stream))
        .collect();
    lease.wait_for_break();
    for _ in 0..10 {
        watched.assert_others_are_served(Some(&mut probe));
    }
    drop(ProbeSession::named(&watched.relay, "new"));
    assert!(lease.is_break_pending());
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
    let streams = producer.add_trace(TRACE_PATH, &names);
    for stream in &streams {
        producer.send_packet(*stream, 0, PACKET);
    }
    producer.wait_while_pending(streams[99], 0);
    (producer, streams[0])
}

#[test]
fn a_worker_with_a_hung_file_call_blocks_no_new_connection() {
    // Files that are one too many are closed.
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let lease = FileLease::acquire(&watched.file("/chan_0"));
    producer.send_data(stream, 1, PACKET);
    lease.wait_for_break();
    // Some of them come to the worker that hangs.
    let mut others: Vec<_> = (0..6)
        .map(|number| ProbeSession::named(&watched.relay, &format!("other {number}")))
        .collect();
    for other in &mut others {
        watched.assert_others_are_served(Some(other));
    }
    watched.relay.wait_for_log(&["worker does not respond"]);
    assert!(lease.is_break_pending());
    drop(lease);
    assert_eq!(producer.send_index(stream, 1, index(1, PACKET as u64)), OK);
    producer.wait_while_pending(stream, 1);
    watched.relay.wait_for_log(&["worker responds again"]);
    drop(others);
    assert!(watched.relay.stop().status.success());
}

#[test]
fn a_relay_stops_while_a_file_call_of_a_session_hangs() {
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let lease = FileLease::acquire(&watched.file("/chan_0"));
    producer.send_data(stream, 1, PACKET);
    lease.wait_for_break();
    let other = ProbeSession::of(&watched.relay);
    assert!(lease.is_break_pending());
    let ended = watched.relay.stop();
    assert!(ended.status.success());
    let is_told =
        |line: &String| line.contains("sessions not closed") && line.contains("sessions=1");
    assert!(ended.stderr.iter().any(is_told), "{:?}", ended.stderr);
    drop((lease, other));
}

#[test]
fn packets_for_a_hung_file_are_written_when_it_responds_again() {
    let watched = Watched::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = with_a_file_to_be_opened_again(&watched.relay);
    let path = watched.file("/chan_0");
    let lease = FileLease::acquire(&path);
    for number in 1..5 {
        producer.send_data(stream, number, PACKET);
    }
    lease.wait_for_break();
    drop(lease);
    for number in 1..5 {
        assert_eq!(
            producer.send_index(stream, number, index(number, PACKET as u64)),
            OK
        );
    }
    producer.wait_while_pending(stream, 4);
    wait_until("all packets are written", || {
        std::fs::metadata(&path).unwrap().len() == 5 * PACKET as u64
    });
}
