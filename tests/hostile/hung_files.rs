//! Files that do not respond: a FIFO in place of a tracefile or an index file, or a disk that
//! hangs. Only the session whose file it is may be affected.

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

/// More viewers than the relay has workers, and than may have file calls in flight for one session.
const VIEWERS: usize = 20;

/// A relay with its status endpoint and its health socket.
struct MonitoredRelay {
    lab: Lab,
    relay: Relay,
    status: StatusEndpoint,
}

impl MonitoredRelay {
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

    /// Checks that health, status endpoint, new connections and a probe session work while a file
    /// hangs.
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

/// Returns a live session whose only data stream has a packet in each of five tracefiles, of which
/// all but the last are closed.
fn open_with_five_tracefiles(relay: &Relay, name: &str) -> (Producer, StreamId) {
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

/// Requests the next index of a stream as another viewer, in a thread.
fn request_index(relay: &Relay, session: &str, stream: StreamId) -> JoinHandle<NextIndex> {
    let (mut viewer, _, _) = Viewer::attached(relay.live, session, Seek::Beginning);
    std::thread::spawn(move || viewer.next_index(stream))
}

fn check_fifo_in_place_of(file: &str) {
    let monitored = MonitoredRelay::start(&[]);
    let mut probe = ProbeSession::of(&monitored.relay);
    let (_producer, stream) = open_with_five_tracefiles(&monitored.relay, "fifo");
    let path = monitored.file(file);
    std::fs::remove_file(&path).unwrap();
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let requests: Vec<_> = (0..VIEWERS)
        .map(|_| request_index(&monitored.relay, "fifo", stream))
        .collect();
    monitored.assert_others_are_served(Some(&mut probe));
    for index in requests {
        // The packets of the other tracefiles are delivered.
        let index = index.join().unwrap();
        assert_eq!(index.status, IndexStatus::Ready);
        assert_eq!(index.offset, Bytes(PACKET as u64));
    }
    let skipped = ["skipped for viewers", "not a regular file"];
    monitored.relay.wait_for_log(&skipped);
    let log = monitored.relay.log();
    let logged = log.iter().filter(|line| line.contains(skipped[0])).count();
    assert_eq!(logged, 1);
    assert!(monitored.relay.stop().status.success());
}

#[test]
fn a_fifo_in_place_of_a_tracefile_blocks_no_viewer() {
    check_fifo_in_place_of("/chan_0_0");
}

#[test]
fn a_fifo_in_place_of_an_index_file_blocks_no_viewer() {
    check_fifo_in_place_of("/index/chan_0_0.idx");
}

#[test]
fn hung_file_calls_of_viewers_block_no_viewer_of_another_session() {
    let monitored = MonitoredRelay::start(&[]);
    let mut probe = ProbeSession::of(&monitored.relay);
    let (_producer, stream) = open_with_five_tracefiles(&monitored.relay, "hung");
    let lease = FileLease::acquire(&monitored.file("/chan_0_0"));
    let requests: Vec<_> = (0..VIEWERS)
        .map(|_| request_index(&monitored.relay, "hung", stream))
        .collect();
    lease.wait_for_break();
    for _ in 0..10 {
        monitored.assert_others_are_served(Some(&mut probe));
    }
    drop(ProbeSession::named(&monitored.relay, "new"));
    assert!(lease.is_break_pending());
    assert!(requests.iter().all(|request| !request.is_finished()));
    // When the file responds, every viewer gets its packet.
    drop(lease);
    for index in requests {
        let index = index.join().unwrap();
        assert_eq!((index.status, index.offset), (IndexStatus::Ready, Bytes(0)));
    }
    assert!(monitored.relay.stop().status.success());
}

/// Returns a producer with 100 streams, the first of which has a tracefile that was evicted from
/// the file pool: its next packet reopens the file.
fn open_with_evicted_tracefile(relay: &Relay) -> (Producer, StreamId) {
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
    // More files than the pool holds: some are evicted.
    let monitored = MonitoredRelay::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = open_with_evicted_tracefile(&monitored.relay);
    let lease = FileLease::acquire(&monitored.file("/chan_0"));
    producer.send_data(stream, 1, PACKET);
    lease.wait_for_break();
    // Enough connections that some are assigned to the hung worker.
    let mut others: Vec<_> = (0..6)
        .map(|number| ProbeSession::named(&monitored.relay, &format!("other {number}")))
        .collect();
    for other in &mut others {
        monitored.assert_others_are_served(Some(other));
    }
    monitored.relay.wait_for_log(&["worker does not respond"]);
    assert!(lease.is_break_pending());
    drop(lease);
    assert_eq!(producer.send_index(stream, 1, index(1, PACKET as u64)), OK);
    producer.wait_while_pending(stream, 1);
    monitored.relay.wait_for_log(&["worker responds again"]);
    drop(others);
    assert!(monitored.relay.stop().status.success());
}

#[test]
fn a_relay_stops_while_a_file_call_of_a_session_hangs() {
    let monitored = MonitoredRelay::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = open_with_evicted_tracefile(&monitored.relay);
    let lease = FileLease::acquire(&monitored.file("/chan_0"));
    producer.send_data(stream, 1, PACKET);
    lease.wait_for_break();
    let other = ProbeSession::of(&monitored.relay);
    assert!(lease.is_break_pending());
    let ended = monitored.relay.stop();
    assert!(ended.status.success());
    let is_reported =
        |line: &String| line.contains("sessions not closed") && line.contains("sessions=1");
    assert!(ended.stderr.iter().any(is_reported), "{:?}", ended.stderr);
    drop((lease, other));
}

#[test]
fn packets_for_a_hung_file_are_written_when_it_responds_again() {
    let monitored = MonitoredRelay::start(&["--fd-pool-size=100"]);
    let (mut producer, stream) = open_with_evicted_tracefile(&monitored.relay);
    let path = monitored.file("/chan_0");
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
