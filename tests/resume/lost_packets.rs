//! Packets that the producer has dropped, and numbers that do not begin at 0.

use relay_proto::resume::{GetPosition, MakeResumable, OpenStream, ResumeSession, SkipPackets};
use relay_proto::{Command, Minor, Reply};
use tests::lab::Lab;
use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, stream};
use tests::relay::Relay;
use tests::wait_until;
use wire::{SeqNum, StreamId};

/// Opens data stream 0, which begins with packet 7. Returns its id and the next packet.
fn open_stream(producer: &mut Producer) -> (Option<StreamId>, u64) {
    let reply = producer.request(Command::OpenStream(OpenStream {
        key: 0,
        first: SeqNum(7),
        stream: stream("chan_0", TRACE_PATH),
    }));
    match reply {
        Reply::StreamOpened(opened) => (opened.stream, opened.next),
        refused => panic!("{refused:?}"),
    }
}

fn written(producer: &mut Producer, stream: StreamId) -> u64 {
    match producer.request(Command::GetPosition(GetPosition { stream })) {
        Reply::Position(position) => position.written,
        refused => panic!("{refused:?}"),
    }
}

fn resume(relay: &Relay) -> Producer {
    let mut producer = Producer::connect(relay, Minor(15));
    let recording = live_session("skip").recording.unwrap();
    let resumed = producer.request(Command::ResumeSession(ResumeSession {
        daemon: recording.daemon,
        id: recording.id,
    }));
    assert!(resumed.is_ok(), "{resumed:?}");
    producer
}

#[test]
fn dropped_packets_are_lost_and_the_stream_continues_behind_them_after_a_restart() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let addresses = relay.addresses();
    let mut producer = Producer::connect(&relay, Minor(15));
    producer.create_session(live_session("skip"));
    let resumable = Command::MakeResumable(MakeResumable { timeout: 60 });
    assert_eq!(producer.request(resumable), OK);
    assert_eq!(producer.create_chunk(0), OK);
    let (id, next) = open_stream(&mut producer);
    let id = id.unwrap();
    assert_eq!(next, 7);
    // Packets 10 to 12 and 15 are dropped. The commands overtake the packets before them.
    for (first, count) in [(10, 3), (15, 1)] {
        let first = SeqNum(first);
        let stream = id;
        let skip = Command::SkipPackets(SkipPackets {
            stream,
            first,
            count,
        });
        assert_eq!(producer.request(skip), OK);
    }
    for number in [13, 14, 16, 7, 8, 9] {
        assert_eq!(producer.send_index(id, number, index(number, 100)), OK);
    }
    assert_eq!(written(&mut producer, id), 7);
    for number in [7, 8, 9, 13, 14, 16] {
        producer.send_data(id, number, 100);
    }
    wait_until("all packets are written", || {
        written(&mut producer, id) == 17
    });
    relay.wait_for_log(&["packets lost", "first=10", "last=12"]);
    // A packet whose index is missing is sent again.
    producer.send_data(id, 17, 100);
    relay.kill();
    let mut relay = Relay::start_at(&lab, addresses);
    let mut producer = resume(&relay);
    let (renamed, next) = open_stream(&mut producer);
    assert_eq!(next, 17);
    let renamed = renamed.unwrap();
    assert_ne!(renamed, id);
    producer.record_packet(renamed, 17, 100);
    // Lost at the end: the next relay knows it, too.
    let skip = SkipPackets {
        stream: renamed,
        first: SeqNum(18),
        count: 2,
    };
    assert_eq!(producer.request(Command::SkipPackets(skip)), OK);
    relay.kill();
    let relay = Relay::start_at(&lab, addresses);
    let mut producer = resume(&relay);
    let (id, next) = open_stream(&mut producer);
    assert_eq!(next, 20);
    assert_eq!(producer.close_stream(id.unwrap(), Some(19)), OK);
    assert_eq!(open_stream(&mut producer), (None, 20));
    assert!(producer.close_chunk(0, None).is_ok());
    wait_until("the session is complete", || {
        !relay.output.join(".relayd").exists()
    });
}
