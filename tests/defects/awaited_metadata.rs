//! Streams whose metadata has not arrived. Packets that end after such a stream began are withheld,
//! so that viewers get its events in order.

use ctf::model::Uuid;
use ctf::write::metadata_packets;
use relay_proto::Command;
use relay_proto::session::CreateSession;
use tests::producer::{OK, Producer, beacon, live_session, stream};
use tests::relay::Relay;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::{IndexStatus, NEW_STREAMS, NextIndex};
use viewer_proto::session::Seek;
use viewer_proto::stream::NewStreamsStatus;
use wire::{Micros, SessionId, StreamId};

/// Returns a live session with a timer of an hour. A relay awaits metadata for three periods of the
/// timer, hence for longer than any test takes.
fn session_with_long_timer(name: &str) -> CreateSession {
    CreateSession {
        live_timer: Micros(3_600_000_000),
        ..live_session(name)
    }
}

/// A session with a trace of two streams (`known`), a viewer attached to it, and a second trace
/// that was added after the first packet and whose metadata has not been sent (`hidden`,
/// `metadata`).
struct AwaitedTrace {
    producer: Producer,
    known: Vec<StreamId>,
    hidden: StreamId,
    metadata: StreamId,
    viewer: Viewer,
    session: SessionId,
}

impl AwaitedTrace {
    fn new(relay: &Relay, session: CreateSession) -> Self {
        let name = session.name.to_string();
        let mut producer = Producer::open(relay, session);
        let known = producer.add_trace("ust/pid/one", &["chan_0", "chan_1"]);
        let (mut viewer, session, _) = Viewer::attached(relay.live, &name, Seek::Beginning);
        producer.send_packet(known[0], 0, 100);
        assert_eq!(viewer.wait_for_index(known[0]).status, IndexStatus::Ready);
        let hidden = producer.add_stream(stream("chan_0", "ust/pid/two"));
        let metadata = producer.add_stream(stream("metadata", "ust/pid/two"));
        producer.request(Command::StreamsSent);
        Self {
            producer,
            known,
            hidden,
            metadata,
            viewer,
            session,
        }
    }

    /// Sends a packet of a known stream that ends after the hidden one began. Returns the viewer's
    /// next index.
    fn send_later_packet(&mut self) -> NextIndex {
        self.producer.send_packet(self.known[0], 1, 100);
        self.producer.wait_while_pending(self.known[0], 1);
        self.viewer.next_index(self.known[0])
    }

    /// Sends the metadata of the second trace.
    fn send_metadata(&mut self) {
        self.send_piece(b"/* CTF 1.8 */\n");
    }

    /// Sends a packet of the metadata of the second trace.
    fn send_metadata_packet(&mut self, text: &str) {
        self.send_piece(&metadata_packets(Uuid([7; 16]), text));
    }

    fn send_piece(&mut self, piece: &[u8]) {
        self.producer.send_metadata(self.metadata, piece, 0);
        // SEND_METADATA has no reply: that of the next command says that it was processed.
        self.producer.is_pending(self.known[0], 0);
    }

    fn assert_hung_up(&mut self, stream: StreamId) {
        let index = self.viewer.wait_for_index(stream);
        assert_eq!(index.status, IndexStatus::HungUp);
    }
}

// Otherwise events of the hidden stream would arrive after later ones, at which Babeltrace 2 exits.
#[test]
fn a_packet_is_withheld_while_a_stream_that_began_before_its_end_awaits_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("withheld"));
    assert_eq!(awaited.send_later_packet().status, IndexStatus::Retry);
    awaited.send_metadata();
    // The packet is delivered when the stream can be announced.
    let index = awaited.viewer.wait_for_index(awaited.known[0]);
    assert_eq!(
        (index.status, index.flags & NEW_STREAMS),
        (IndexStatus::Ready, NEW_STREAMS)
    );
    assert_eq!((index.offset.0, index.packet.end.0), (100, 20));
    assert_eq!(
        awaited.viewer.packet(awaited.known[0], 100, 100).1.len(),
        100
    );
    let (_, streams) = awaited.viewer.new_streams(awaited.session);
    assert_eq!(streams.len(), 2);
}

#[test]
fn a_packet_that_ends_before_a_hidden_stream_begins_is_not_withheld() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("earlier"));
    // The packet ends with the first one of the other stream, after which the hidden stream was
    // added.
    awaited.producer.send_packet(awaited.known[1], 0, 100);
    awaited.producer.wait_while_pending(awaited.known[1], 0);
    let index = awaited.viewer.next_index(awaited.known[1]);
    assert_eq!(index.status, IndexStatus::Ready);
}

// LTTng sends the metadata of a short-lived process after its streams are closed.
#[test]
fn a_packet_is_withheld_for_a_stream_that_was_closed_before_its_metadata_came() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("closed"));
    awaited.producer.send_packet(awaited.hidden, 0, 100);
    awaited.producer.wait_while_pending(awaited.hidden, 0);
    assert_eq!(awaited.producer.close_stream(awaited.hidden, Some(0)), OK);
    assert_eq!(awaited.send_later_packet().status, IndexStatus::Retry);
    awaited.send_metadata();
    let index = awaited.viewer.wait_for_index(awaited.known[0]);
    assert_eq!(index.flags & NEW_STREAMS, NEW_STREAMS);
    awaited.viewer.new_streams(awaited.session);
    let hidden = awaited.viewer.wait_for_index(awaited.hidden);
    assert_eq!(hidden.status, IndexStatus::Ready);
}

#[test]
fn the_end_of_a_session_ends_the_wait_for_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("ended"));
    awaited.producer.send_packet(awaited.hidden, 0, 100);
    assert_eq!(awaited.send_later_packet().status, IndexStatus::Retry);
    let (known, session) = (awaited.known.clone(), awaited.session);
    let AwaitedTrace {
        mut producer,
        viewer,
        ..
    } = awaited;
    producer.close_stream(known[0], Some(1));
    producer.close_stream(known[1], None);
    producer.disconnect();
    // The withheld packet is delivered first, then the end.
    let mut viewer = viewer;
    let index = viewer.wait_for_index(known[0]);
    assert_eq!((index.status, index.offset.0), (IndexStatus::Ready, 100));
    for stream in known {
        let index = viewer.wait_for_index(stream);
        assert_eq!(index.status, IndexStatus::HungUp);
    }
    let status = viewer.new_streams(session).0;
    assert_eq!(status, NewStreamsStatus::HungUp);
}

#[test]
fn a_stream_without_metadata_withholds_packets_for_a_bounded_time() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, live_session("never"));
    awaited.send_later_packet();
    let index = awaited.viewer.wait_for_index(awaited.known[0]);
    assert_eq!(
        (index.status, index.flags & NEW_STREAMS),
        (IndexStatus::Ready, 0)
    );
    assert_eq!(awaited.producer.close_stream(awaited.known[0], Some(1)), OK);
    let known = awaited.known[0];
    awaited.assert_hung_up(known);
}

// LTTng sends the stream classes of a process some milliseconds after the first piece of its
// metadata.
#[test]
fn streams_are_announced_when_the_metadata_declares_a_stream_class() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("declared"));
    assert_eq!(awaited.send_later_packet().status, IndexStatus::Retry);
    for undeclared in ["/* CTF 1.8 */\n", "stream {"] {
        awaited.send_metadata_packet(undeclared);
        let index = awaited.viewer.next_index(awaited.known[0]);
        assert_eq!(index.status, IndexStatus::Retry);
        assert_eq!(awaited.viewer.new_streams(awaited.session).1.len(), 0);
    }
    awaited.send_metadata_packet("};");
    let index = awaited.viewer.wait_for_index(awaited.known[0]);
    assert_eq!(index.flags & NEW_STREAMS, NEW_STREAMS);
    let (_, streams) = awaited.viewer.new_streams(awaited.session);
    assert_eq!(streams.len(), 2);
}

// CTF 1.8 allows metadata without a stream class.
#[test]
fn a_trace_without_a_stream_class_is_announced_after_a_timeout_or_at_the_end() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let sessions = [live_session("soon"), session_with_long_timer("at the end")];
    for (session, ends) in sessions.into_iter().zip([false, true]) {
        let mut awaited = AwaitedTrace::new(&relay, session);
        awaited.send_metadata_packet("/* CTF 1.8 */\n");
        assert_eq!(awaited.send_later_packet().status, IndexStatus::Retry);
        assert_eq!(awaited.viewer.new_streams(awaited.session).1.len(), 0);
        let (mut viewer, session) = (awaited.viewer, awaited.session);
        let producer = if ends {
            awaited.producer.disconnect();
            None
        } else {
            Some(awaited.producer)
        };
        wait_until("the trace is announced", || {
            viewer.new_streams(session).1.len() == 2
        });
        drop(producer);
    }
}

// Babeltrace 2 fails if two streams are inactive until the same time: it cannot choose the next
// one.
#[test]
fn two_streams_are_not_inactive_until_the_same_time_because_a_third_awaits_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut awaited = AwaitedTrace::new(&relay, session_with_long_timer("inactive"));
    awaited.send_metadata();
    wait_until("the second trace is announced", || {
        !awaited.viewer.new_streams(awaited.session).1.is_empty()
    });
    let send_beacon = |awaited: &mut AwaitedTrace, number: usize, until| {
        let next_packet = [1, 0][number];
        let replies =
            awaited
                .producer
                .send_index(awaited.known[number], next_packet, beacon(until));
        assert_eq!(replies, OK);
    };
    send_beacon(&mut awaited, 1, 500);
    // A third trace, added at cycle 500.
    awaited
        .producer
        .add_stream(stream("chan_0", "ust/pid/three"));
    send_beacon(&mut awaited, 0, 900);
    send_beacon(&mut awaited, 1, 901);
    let replies = [0, 1].map(|number: usize| {
        let index = awaited.viewer.next_index(awaited.known[number]);
        assert_eq!(index.status, IndexStatus::Inactive);
        index.packet.end
    });
    assert_ne!(replies[0], replies[1]);
    assert!(replies.iter().all(|until| until.0 <= 500), "{replies:?}");
}
