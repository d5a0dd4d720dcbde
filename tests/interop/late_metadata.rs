//! LTTng sends the metadata of a process in pieces as it comes up, with beacons and packets between
//! them. Both Babeltraces fail on a trace whose first piece declares no stream class, and
//! Babeltrace 1 overlooks that a second piece has come.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, metadata_packets,
};
use relay_proto::Command;
use relay_proto::session::CreateSession;
use tests::babeltrace::Babeltrace;
use tests::process::Process;
use tests::producer::{OK, Producer, TRACE_PATH, beacon, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::viewer::{Viewer, hostname};
use viewer_proto::session::Seek;
use wire::{Bits, PacketIndex, StreamId, Text, Timestamp};

/// The code of GET_NEXT_INDEX.
const NEXT_INDEX: [u8; 4] = [0, 0, 0, 4];

const UUID: Uuid = Uuid([7; 16]);

/// A process that is traced: its session has one stream, whose metadata is sent piece by piece.
struct Tracer {
    producer: Producer,
    text: MetadataText,
    stream: StreamId,
    metadata: StreamId,
}

impl Tracer {
    /// Opens the session, without streams.
    fn open(relay: &Relay) -> Producer {
        Producer::open(
            relay,
            CreateSession {
                host: Text::from(hostname().as_str()),
                ..live_session("late")
            },
        )
    }

    /// Adds the stream, without metadata.
    fn new(mut producer: Producer) -> Self {
        let stream_id = producer.add_stream(stream("chan_0", TRACE_PATH));
        let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
        producer.request(Command::StreamsSent);
        Self {
            producer,
            text: MetadataText::new(&TraceDeclaration::new(UUID, "tracer")),
            stream: stream_id,
            metadata,
        }
    }

    /// Sends what has been declared since the last piece.
    fn send_metadata(&mut self) {
        let bytes = metadata_packets(UUID, self.text.take_new());
        self.producer.send_metadata(self.metadata, &bytes, 0);
    }

    fn send_beacon(&mut self, until: u64) {
        let without_size = PacketIndex {
            packet_size: Bits(0),
            content_size: Bits(0),
            ..beacon(until)
        };
        let reply = self.producer.send_index(self.stream, 0, without_size);
        assert_eq!(reply, OK);
    }

    /// Declares a stream class; `between` happens before the event class is declared. Sends a
    /// packet with one event, and ends the session.
    fn record_event(mut self, between: impl FnOnce(&mut Self)) {
        let class = self.text.stream(0).unwrap();
        between(&mut self);
        let event = EventDeclaration::new(0, "first");
        let event = self.text.event(&class, &event).unwrap();
        self.send_metadata();
        let mut writer = StreamWriter::new(&class, 0, 0, PacketSize::new(4096, 4096));
        writer.open(Timestamp(3_000)).unwrap();
        let record = EventRecord {
            time: Timestamp(3_500),
            process: 1,
            thread: 1,
            values: &[],
        };
        assert_eq!(writer.append(&event, &record), Ok(Appended::Written));
        let packet = writer.close(Timestamp(4_000)).unwrap();
        let data = packet_of(self.stream, 0, packet.bytes, 0);
        self.producer.data.write_all(&data).unwrap();
        let reply = self.producer.send_index(self.stream, 0, packet.index);
        assert_eq!(reply, OK);
        self.producer.wait_while_pending(self.stream, 0);
        self.producer.close_stream(self.stream, Some(0));
        self.producer.close_stream(self.metadata, None);
        self.producer.disconnect();
    }
}

/// Waits until a viewer has exited. It must have printed the event.
fn assert_prints_event(viewer: Process) {
    let lines = viewer.wait().expect_success();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains(" first:"), "{lines:#?}");
}

/// Forwards the connection of one viewer to the relay. Returns its address, and a channel with a
/// message for each index that the viewer has requested.
fn forward(live: SocketAddr) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (request, requests) = channel();
    thread::spawn(move || {
        let (viewer, _) = listener.accept().unwrap();
        let relay = TcpStream::connect(live).unwrap();
        let ends = [&viewer, &relay].map(|end| end.try_clone().unwrap());
        thread::spawn(move || copy(&ends[1], &ends[0], |_| {}));
        copy(&viewer, &relay, |bytes| {
            if bytes.get(8..12) == Some(&NEXT_INDEX) {
                // The test has seen enough.
                let _ = request.send(());
            }
        });
    });
    (address, requests)
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        look(&bytes[..length]);
        if to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    // The other end may be closed already.
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn both_babeltraces_read_a_trace_whose_stream_class_comes_after_its_first_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let producer = Tracer::open(&relay);
    let viewers = [Babeltrace::One, Babeltrace::Two].map(|one| one.follow(&relay, "late"));
    Viewer::connect(relay.live).wait_for_listed("late", |listed| listed.viewers == 2);
    let mut tracer = Tracer::new(producer);
    // Environment and clock.
    tracer.send_metadata();
    tracer.send_beacon(1_000);
    let (mut viewer, session, announced) = Viewer::attached(relay.live, "late", Seek::Beginning);
    assert_eq!(announced.len(), 0);
    tracer.record_event(|tracer| {
        tracer.send_metadata();
        tracer.send_beacon(2_000);
        assert_eq!(viewer.new_streams(session).1.len(), 2);
    });
    viewers.into_iter().for_each(assert_prints_event);
}

#[test]
fn both_babeltraces_read_an_event_whose_class_comes_after_they_have_read_the_metadata() {
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        let (_lab, relay) = Relay::start_in_new_lab();
        let producer = Tracer::open(&relay);
        let (address, requests) = forward(relay.live);
        let viewer = babeltrace.follow_at(address, "late");
        Viewer::connect(relay.live).wait_for_listed("late", |listed| listed.viewers == 1);
        Tracer::new(producer).record_event(|tracer| {
            tracer.send_metadata();
            // Its metadata has been read to the end.
            requests.recv().unwrap();
        });
        assert_prints_event(viewer);
    }
}
