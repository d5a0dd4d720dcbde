//! Repair at startup: what a killed relay leaves, and what the next one makes of it.

use std::io::Write;

use ctf::model::Uuid;
use ctf::write::{
    Appended, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, metadata_packets,
};
use relay_proto::chunk::CloseCommand;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, live_session, packet_of, stream};
use tests::relay::Relay;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files};
use tests::wait_until;
use wire::{PacketIndex, StreamId, Timestamp};

const UUID: Uuid = Uuid(*b"0123456789abcdef");
pub(crate) const EVENTS: u64 = 20;

/// A trace of one event class, which makes packets of [`EVENTS`] events each.
pub(crate) struct SyntheticTrace {
    pub(crate) metadata: Vec<u8>,
    /// A further piece of metadata, which no packet needs.
    pub(crate) more_metadata: Vec<u8>,
    class: DeclaredStreamClass,
    event: DeclaredEventClass,
}

impl SyntheticTrace {
    pub(crate) fn new() -> Self {
        let mut text = MetadataText::new(&TraceDeclaration::new(UUID, "crash-test"));
        let class = text.stream(0).unwrap();
        let event = text.event(&class, &EventDeclaration::new(1, "event"));
        let metadata = metadata_packets(UUID, text.take_new());
        let more = text.event(&class, &EventDeclaration::new(2, "unused"));
        assert!(more.is_ok());
        Self {
            event: event.unwrap(),
            class,
            metadata,
            more_metadata: metadata_packets(UUID, text.take_new()),
        }
    }

    fn packets(&self, count: u64) -> Vec<(Vec<u8>, PacketIndex)> {
        self.packets_of(0, count)
    }

    pub(crate) fn packets_of(&self, cpu: u32, count: u64) -> Vec<(Vec<u8>, PacketIndex)> {
        let size = PacketSize::new(4096, 65_536);
        let mut writer = StreamWriter::new(&self.class, u64::from(cpu), cpu, size);
        let packet = |number: u64| {
            let begin = 1000 * number;
            writer.open(Timestamp(begin)).unwrap();
            for time in begin..begin + EVENTS {
                let event = EventRecord {
                    time: Timestamp(time),
                    process: 1,
                    thread: 1,
                    values: &[],
                };
                assert_eq!(writer.append(&self.event, &event), Ok(Appended::Written));
            }
            let packet = writer.close(Timestamp(begin + 999)).unwrap();
            (packet.bytes.to_vec(), packet.index)
        };
        (0..count).map(packet).collect()
    }
}

/// Sends a packet with its index and waits until both are processed.
pub(crate) fn send(
    producer: &mut Producer,
    to: StreamId,
    number: u64,
    (bytes, index): &(Vec<u8>, PacketIndex),
) {
    let sent = packet_of(to, number, bytes, 0);
    producer.data.write_all(&sent).unwrap();
    let reply = producer.send_index(to, number, *index);
    assert_eq!(reply, OK);
    producer.wait_while_pending(to, number);
}

/// Returns the lengths of the tracefile and, if there is one, of the index file of a channel, in
/// bytes.
fn file_sizes(relay: &Relay, channel: &str) -> (usize, Option<usize>) {
    let len = |suffix: &str| {
        let found = files(&relay.output, suffix);
        found.into_values().next().map(|bytes| bytes.len())
    };
    let index = len(&format!("/index/{channel}.idx"));
    (len(&format!("/{channel}")).unwrap(), index)
}

#[test]
fn a_trace_with_half_a_packet_at_its_end_is_readable_after_the_relay_restarts() {
    let (lab, mut relay) = Relay::start_in_new_lab();
    let events = SyntheticTrace::new();
    let packets = events.packets(3);
    let mut producer = Producer::open(&relay, live_session("killed"));
    let streams =
        ["half_0", "first_0", "idle_0"].map(|name| producer.add_stream(stream(name, TRACE_PATH)));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    producer.send_metadata(metadata, &events.metadata, 0);
    let [half, first, _] = streams;
    send(&mut producer, half, 0, &packets[0]);
    send(&mut producer, half, 1, &packets[1]);
    // All but ten bytes of the third packet of one stream and of the first of another.
    for (to, number, packet) in [(half, 2, &packets[2]), (first, 0, &packets[0])] {
        let sent = packet_of(to, number, &packet.0, 0);
        let mut data = tests::producer::connect(relay.data);
        data.write_all(&sent[..sent.len() - 10]).unwrap();
        // The connection stays open, so that the relay does not discard the partial packet.
        std::mem::forget(data);
    }
    let whole = packets[0].0.len() + packets[1].0.len();
    wait_until("parts of both packets are in their tracefiles", || {
        file_sizes(&relay, "half_0").0 > whole && file_sizes(&relay, "first_0").0 > 0
    });
    relay.kill();
    let refused = Babeltrace::Two.read(&relay.output);
    assert!(!refused.status.success(), "the trace needs no repair");
    let relay = Relay::start(&lab);
    relay.wait_for_log(&["output repaired after a crash", "tracefiles=2"]);
    assert_eq!(
        file_sizes(&relay, "half_0"),
        (whole, Some(INDEX_HEADER + 2 * INDEX_ENTRY))
    );
    assert_eq!(file_sizes(&relay, "first_0"), (0, None));
    for babeltrace in [Babeltrace::One, Babeltrace::Two] {
        let read = babeltrace.read(&relay.output);
        assert_eq!(read.stderr, [""; 0], "{babeltrace:?}");
        assert_eq!(
            read.expect_success().len() as u64,
            2 * EVENTS,
            "{babeltrace:?}"
        );
    }
}

#[test]
fn a_starting_relay_does_not_repair_tracefiles_that_another_one_writes() {
    let lab = Lab::new();
    let first = Relay::start(&lab);
    let (mut producer, stream) = Producer::open_with_trace(&first, live_session("goes-on"));
    producer.record_packet(stream, 0, 1000);
    let sent = tests::producer::packet(stream, 1, 1000);
    producer.data.write_all(&sent[..600]).unwrap();
    wait_until("half a packet is written", || {
        file_sizes(&first, "chan_0").0 > 1000
    });
    let second = Relay::start(&lab);
    assert!(second.stop().status.success());
    producer.data.write_all(&sent[600..]).unwrap();
    let index = tests::producer::index(1, 1000);
    assert_eq!(producer.send_index(stream, 1, index), OK);
    producer.wait_while_pending(stream, 1);
    assert_eq!(file_sizes(&first, "chan_0").0, 2000);
    assert!(first.stop().status.success());
}

#[test]
fn a_cleared_chunk_is_deleted_before_the_relay_reports_it_gone() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut producer = Producer::open(&relay, live_session("cleared"));
    let streams: Vec<_> = (0..50).map(|cpu| format!("chan_{cpu}")).collect();
    let names: Vec<_> = streams.iter().map(String::as_str).collect();
    let streams = producer.add_trace(TRACE_PATH, &names);
    for stream in &streams {
        producer.send_packet(*stream, 0, 1000);
    }
    producer.wait_while_pending(streams[49], 0);
    producer.create_chunk(1);
    let mut all: Vec<_> = streams.iter().map(|stream| (*stream, 1)).collect();
    all.push((producer.metadata[0], 0));
    producer.rotate_streams(Some(1), &all);
    producer.close_chunk(0, Some(CloseCommand::Delete));
    wait_until("the chunk is reported gone", || !producer.chunk_exists(0));
    let left: Vec<_> = files(&relay.output, "")
        .into_iter()
        // But for the marker of the next chunk.
        .filter(|(path, bytes)| {
            let has_content = !bytes.is_empty() && !path.contains(".relayd-open-");
            path.contains(".tmp_") || has_content
        })
        .map(|(path, _)| path)
        .collect();
    assert_eq!(left, [""; 0]);
}
