//! The files of streams in a session that another relay restores.

use std::io::Write;

use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, StreamOpened};
use relay_proto::stream::AddStream;
use relay_proto::{Command, Minor, Reply};
use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, live_session, packet, stream};
use tests::relay::Relay;
use tests::tree::files;
use tests::wait_until;
use wire::{Bytes, SeqNum, StreamId};

const NAME: &str = "restored";

/// Creates the resumable session and its chunk.
fn create_session(relay: &Relay) -> Producer {
    let mut producer = Producer::connect(relay, Minor(15));
    producer.create_session(live_session(NAME));
    let resumable = Command::MakeResumable(MakeResumable { timeout: 60 });
    assert_eq!(producer.request(resumable), OK);
    assert_eq!(producer.create_chunk(0), OK);
    producer
}

fn resume_session(relay: &Relay) -> Producer {
    let mut producer = Producer::connect(relay, Minor(15));
    let recording = live_session(NAME).recording.unwrap();
    let resumed = producer.request(Command::ResumeSession(ResumeSession {
        daemon: recording.daemon,
        id: recording.id,
    }));
    assert!(resumed.is_ok(), "{resumed:?}");
    producer
}

/// Opens a stream. None if the relay refuses.
fn open_stream(producer: &mut Producer, key: u64, stream: AddStream) -> Option<StreamId> {
    let first = SeqNum(0);
    match producer.request(Command::OpenStream(OpenStream { key, first, stream })) {
        Reply::StreamOpened(StreamOpened { stream, .. }) => stream,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_that_were_begun_before_a_kill_are_removed_if_their_packet_never_comes() {
    // The packets before it, and the limits of the tracefiles.
    for (packets, size, count) in [(0, 0, 0), (1, 100, 0), (1, 100, 3), (2, 100, 2)] {
        let case = format!("{packets} packets, {count} tracefiles of {size} bytes");
        let lab = Lab::new();
        let mut relay = Relay::start(&lab);
        let (addresses, output) = (relay.addresses(), relay.output.clone());
        let stream = AddStream {
            tracefile_size: Bytes(size),
            tracefile_count: count,
            ..stream("chan_0", TRACE_PATH)
        };
        let mut producer = create_session(&relay);
        let id = open_stream(&mut producer, 0, stream.clone()).unwrap();
        for number in 0..packets {
            producer.record_packet(id, number, 100);
        }
        let begun = packet(id, packets, 100);
        producer.data.write_all(&begun[..begun.len() - 20]).unwrap();
        let indexes = || files(&output, ".idx").into_values();
        wait_until("the packet has begun", || {
            indexes().any(|index| index.len() == 32)
        });
        relay.kill();
        let relay = Relay::start_at(&lab, addresses);
        let mut producer = resume_session(&relay);
        let id = open_stream(&mut producer, 0, stream).unwrap();
        let last = packets.checked_sub(1);
        assert_eq!(producer.close_stream(id, last), OK);
        assert!(producer.close_chunk(0, None).is_ok());
        assert!(indexes().all(|index| index.len() == 16 + 72), "{case}");
        let tracefiles = files(&output, "").into_iter().filter(|(name, _)| {
            let (_, name) = name.rsplit_once('/').unwrap();
            name.starts_with("chan_0") && !name.ends_with(".idx")
        });
        let lengths: Vec<_> = tracefiles.map(|(_, bytes)| bytes.len()).collect();
        let is_whole = |length: &usize| packets == 0 || *length == 100;
        assert!(lengths.iter().all(is_whole), "{case}: {lengths:?}");
    }
}

// The padding of a piece is zeros, as a power loss leaves them.
#[test]
fn padding_of_metadata_stays_when_the_relay_is_killed() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let (addresses, output) = (relay.addresses(), relay.output.clone());
    let mut producer = create_session(&relay);
    let id = open_stream(&mut producer, 0, stream("metadata", TRACE_PATH)).unwrap();
    producer.send_metadata(id, b"/* CTF 1.8 */", 20);
    // Its reply shows that the metadata has been handled.
    open_stream(&mut producer, 0, stream("chan_0", TRACE_PATH)).unwrap();
    let metadata = || files(&output, "/metadata").into_values().next();
    let written = metadata().unwrap();
    assert_eq!(written.len(), 13 + 20);
    relay.kill();
    let next = Relay::start_at(&lab, addresses);
    assert_eq!(metadata().unwrap(), written);
    let mut producer = resume_session(&next);
    let first = SeqNum(0);
    let open = OpenStream {
        key: 0,
        first,
        stream: stream("metadata", TRACE_PATH),
    };
    let reply = producer.request(Command::OpenStream(open));
    assert!(
        matches!(reply, Reply::StreamOpened(opened) if opened.next == 33),
        "{reply:?}"
    );
}

// Only one of the two could be restored, and their session not at all.
#[test]
fn second_stream_of_a_resumable_session_with_the_same_files_is_refused() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut producer = create_session(&relay);
    for channel in ["metadata", "chan_0"] {
        let same = || stream(channel, "ust//uid/0/64-bit/");
        let first = open_stream(&mut producer, 0, stream(channel, TRACE_PATH)).unwrap();
        assert_eq!(open_stream(&mut producer, 1, same()), None);
        let other = stream(channel, "ust/uid/1/64-bit");
        assert!(open_stream(&mut producer, 1, other).is_some());
        assert_eq!(producer.close_stream(first, None), OK);
        assert_eq!(open_stream(&mut producer, 2, same()), None);
    }
    relay.wait_for_log(&["another stream of the session has its files"]);
    relay.kill();
    let relay = Relay::start_at(&lab, addresses);
    let mut producer = resume_session(&relay);
    let other = stream("chan_0", "ust/uid/1/64-bit");
    assert!(open_stream(&mut producer, 1, other).is_some());
}
