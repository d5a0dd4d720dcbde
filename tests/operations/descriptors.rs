//! What happens when file descriptors run out: index files that cannot be opened, or cannot be
//! written, and peers that connect and say nothing.

use std::fs::File;
use std::io::Write;

use relay_proto::stream::DataPending;
use relay_proto::{Command, Reply};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tests::lab::Lab;
use tests::producer::{OK, Producer, connect, index, live_session, send_index};
use tests::relay::Relay;
use tests::socket_queues::unaccepted;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files, first_file};
use tests::viewer::{Viewer, by_channel};
use tests::{binaries, wait_until};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::{SeqNum, StreamId};

const PACKET: usize = 3000;

/// Sets a soft resource limit of a running relay and returns the previous one.
fn set_limit(relay: &Relay, resource: Resource, current: Option<u64>) -> Option<u64> {
    // The hard limit is the one that the relay inherited from this process; only root may raise it.
    let maximum = getrlimit(resource).maximum;
    let pid = Pid::from_raw(relay.id().cast_signed());
    let before = prlimit(pid, resource, Rlimit { current, maximum });
    before.unwrap().current
}

/// Returns a producer with a stream whose first packet is in the tracefile and has no index yet.
fn open_with_unindexed_packet(relay: &Relay) -> (Producer, StreamId) {
    let (mut producer, stream) = Producer::open_with_trace(relay, live_session("counted"));
    producer.send_data(stream, 0, PACKET);
    wait_until("the packet is in the tracefile", || {
        files(&relay.output, "/chan_0")
            .into_values()
            .any(|data| data.len() == PACKET)
    });
    (producer, stream)
}

/// Returns SEND_INDEX and DATA_PENDING for packet 0, as the bytes of one segment.
fn index_and_data_pending(producer: &mut Producer, stream: StreamId) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sent = send_index(stream, 0, index(0, PACKET as u64));
    producer.encode_command(&sent, &mut bytes);
    let last = Some(SeqNum(0));
    let asked = DataPending { stream, last };
    producer.encode_command(&Command::DataPending(asked), &mut bytes);
    bytes
}

#[test]
fn a_lack_of_descriptors_pauses_the_producer_and_loses_no_index() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = open_with_unindexed_packet(&relay);
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "counted", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    let path = files(&relay.output, "/chan_0").into_keys().next().unwrap();
    let reader = File::open(relay.output.join(path.trim_start_matches('/'))).unwrap();
    wait_until("the files are closed when idle", || {
        let is_closed = reader.try_lock_shared().is_ok();
        reader.unlock().unwrap();
        is_closed
    });
    // Lower than any descriptor that is free.
    let before = set_limit(&relay, Resource::Nofile, Some(3));
    let both = index_and_data_pending(&mut producer, stream);
    producer.control().write_all(&both).unwrap();
    relay.wait_for_log(&["producer paused", "chan_0.idx", "Too many open files"]);
    set_limit(&relay, Resource::Nofile, before);
    assert_eq!(producer.receive_reply(), OK);
    // DATA_PENDING was processed before the entry was in its file.
    assert_eq!(producer.receive_reply(), Reply::Pending(true));
    producer.wait_while_pending(stream, 0);
    let entries = first_file(&relay.output, ".idx");
    assert!(
        entries.len() >= INDEX_HEADER + INDEX_ENTRY,
        "{} bytes",
        entries.len()
    );
    assert_eq!(viewer.next_index(seen).status, IndexStatus::Ready);
    producer.record_packet(stream, 1, PACKET);
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    let entries = first_file(&output, ".idx");
    assert_eq!(entries.len(), INDEX_HEADER + 2 * INDEX_ENTRY);
}

#[test]
fn an_index_that_cannot_be_written_is_not_answered_with_ok() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut producer, stream) = open_with_unindexed_packet(&relay);
    // The first entry would exceed the maximum file size.
    set_limit(&relay, Resource::Fsize, Some(INDEX_HEADER as u64 + 20));
    let both = index_and_data_pending(&mut producer, stream);
    producer.control().write_all(&both).unwrap();
    assert_ne!(producer.receive_reply(), OK);
    assert!(producer.is_disconnected());
    relay.wait_for_log(&["chan_0.idx", "File too large"]);
}

/// The limit of open files of the relay that silent peers exhaust, and their number on each port.
const LIMIT: u64 = 256;
const SILENT_PEERS: usize = 300;

#[test]
fn producer_and_viewer_are_served_while_silent_peers_exhaust_the_descriptors() {
    let lab = Lab::new();
    let mut command = lab.command("prlimit");
    command.arg(format!("--nofile={LIMIT}")).arg("--");
    command.arg(binaries::relayd());
    let relay = Relay::start_from_command(&lab, command);
    // Both ports at once; sockets of peers that the relay closes stay open on this side.
    let silent: Vec<_> = (0..SILENT_PEERS)
        .flat_map(|_| [relay.control, relay.live])
        .map(connect)
        .collect();
    // A connection whose handshake takes longer than the relay needs to accept the others would be
    // evicted.
    let wait_until_accepted = || {
        wait_until("the silent peers are accepted", || {
            unaccepted(relay.control) + unaccepted(relay.live) == 0
        });
    };
    wait_until_accepted();
    // Not evicted afterwards: its handshake is complete.
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("good"));
    let more: Vec<_> = (0..SILENT_PEERS).map(|_| connect(relay.control)).collect();
    producer.send_packet(stream, 0, PACKET);
    producer.wait_while_pending(stream, 0);
    wait_until_accepted();
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "good", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    assert_eq!(viewer.next_index(seen).status, IndexStatus::Ready);
    relay.wait_for_log(&["evicted", "too many connections"]);
    let lines = relay.log();
    let about = lines.iter().filter(|line| line.contains("too many"));
    // At most one of each port in ten seconds.
    assert!(about.count() < SILENT_PEERS / 10, "{lines:#?}");
    drop((silent, more));
    assert!(relay.stop().status.success());
}
