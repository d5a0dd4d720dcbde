//! LTTng sends the metadata of a process in pieces as it comes up, and beacons between them. Both Babeltraces fail on a
//! trace whose first piece declares no stream class.

use std::io::Write;

use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, metadata_packets,
};
use relay_proto::Command;
use relay_proto::session::CreateSession;
use tests::babeltrace::Babeltrace;
use tests::producer::{OK, Producer, TRACE_PATH, beacon, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::viewer::{Viewer, hostname};
use viewer_proto::session::Seek;
use wire::{Bits, PacketIndex, Text, Timestamp};

#[test]
fn both_babeltraces_read_a_trace_whose_stream_class_comes_after_its_first_metadata() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(
        &relay,
        CreateSession {
            host: Text::from(hostname().as_str()),
            ..live_session("late")
        },
    );
    let viewers =
        [Babeltrace::One, Babeltrace::Two].map(|babeltrace| babeltrace.follow(&relay, "late"));
    let mut own = Viewer::connect(relay.live);
    own.wait_for_listed("late", |listed| listed.viewers == 2);
    let id = producer.add_stream(stream("chan_0", TRACE_PATH));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    producer.request(Command::StreamsSent);
    let uuid = Uuid([7; 16]);
    let mut text = MetadataText::new(&TraceDeclaration::new(uuid, "tracer"));
    let send = |producer: &mut Producer, text: &mut MetadataText| {
        let bytes = metadata_packets(uuid, text.take_new());
        producer.send_metadata(metadata, &bytes, 0);
    };
    let send_beacon = |producer: &mut Producer, until| {
        let without_size = PacketIndex {
            packet_size: Bits(0),
            content_size: Bits(0),
            ..beacon(until)
        };
        assert_eq!(producer.send_index(id, 0, without_size), OK);
    };
    // Environment and clock.
    send(&mut producer, &mut text);
    send_beacon(&mut producer, 1_000);
    // The viewers have had the time to fetch what they may.
    let (mut third, session, announced) = Viewer::attached(relay.live, "late", Seek::Beginning);
    assert_eq!(announced.len(), 0);
    let class = text.stream(0).unwrap();
    let event = text
        .event(&class, &EventDeclaration::new(0, "first"))
        .unwrap();
    send(&mut producer, &mut text);
    send_beacon(&mut producer, 2_000);
    assert_eq!(third.new_streams(session).1.len(), 2);
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
    let data = packet_of(id, 0, packet.bytes, 0);
    producer.data.write_all(&data).unwrap();
    assert_eq!(producer.send_index(id, 0, packet.index), OK);
    producer.wait_while_pending(id, 0);
    producer.close_stream(id, Some(0));
    producer.close_stream(metadata, None);
    producer.disconnect();
    for viewer in viewers {
        let lines = viewer.wait().expect_success();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        assert!(lines[0].contains(" first:"), "{lines:#?}");
    }
}
