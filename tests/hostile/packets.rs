//! Packets that do not fit what was said of them.

use std::io::Write;
use std::net::Shutdown;

use relay_proto::Reply;
use relay_proto::reply::ReturnCode;
use tests::lab::Lab;
use tests::producer::{Producer, connect, index, is_at_end, packet, stream};
use tests::relay::Relay;
use tests::wait_until;
use tests::watch::Watch;
use wire::StreamId;

use super::{OK, recorded, relay, session};

const UNKNOWN: Reply = Reply::Ended(ReturnCode::UNKNOWN);

fn with_stream(relay: &Relay, name: &str) -> (Producer, StreamId) {
    let mut producer = Producer::open(relay, session(name));
    let stream = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
    (producer, stream)
}

#[test]
fn an_index_that_comes_twice_is_refused_whether_its_packet_is_there_or_not() {
    let (_lab, relay, mut bystander) = relay();
    for is_there in [false, true] {
        let (mut producer, stream) = with_stream(&relay, "twice");
        assert_eq!(producer.send_index(stream, 0, index(0, 10)), OK);
        if is_there {
            producer.data.write_all(&packet(stream, 0, 10)).unwrap();
            producer.settle(stream, 0);
        }
        assert_eq!(producer.send_index(stream, 0, index(0, 10)), UNKNOWN);
        assert!(producer.is_hung_up());
    }
    bystander.is_well();
}

#[test]
fn a_packet_that_comes_twice_ends_its_connection_and_is_kept_once() {
    let (_lab, relay, mut bystander) = relay();
    for (name, with_index) in [("pending", false), ("done", true)] {
        let (mut producer, stream) = with_stream(&relay, name);
        producer.data.write_all(&packet(stream, 0, 10)).unwrap();
        if with_index {
            assert_eq!(producer.send_index(stream, 0, index(0, 10)), OK);
            producer.settle(stream, 0);
        }
        producer.data.write_all(&packet(stream, 0, 10)).unwrap();
        assert!(is_at_end(&mut producer.data), "{name}");
        assert_eq!(recorded(&relay, name, "chan_0"), [[0; 10]]);
    }
    bystander.is_well();
}

#[test]
fn packet_and_index_that_disagree_about_the_size_are_refused() {
    let (_lab, relay, mut bystander) = relay();
    let (mut producer, stream) = with_stream(&relay, "index first");
    assert_eq!(producer.send_index(stream, 0, index(0, 11)), OK);
    producer.data.write_all(&packet(stream, 0, 10)).unwrap();
    assert!(is_at_end(&mut producer.data));
    let (mut producer, stream) = with_stream(&relay, "packet first");
    producer.send_packet(stream, 0, 10);
    producer.data.write_all(&packet(stream, 1, 10)).unwrap();
    wait_until("the packet is there", || {
        recorded(&relay, "packet first", "chan_0")[0].len() == 20
    });
    assert_eq!(
        producer.send_index(stream, 1, index(1, u64::MAX >> 3)),
        UNKNOWN
    );
    bystander.is_well();
}

#[test]
fn packets_far_ahead_of_their_turn_do_not_pile_up() {
    const BYTES: usize = 1 << 20;
    let (_lab, relay, mut bystander) = relay();
    let before = relay.memory();
    let (mut producer, stream) = with_stream(&relay, "ahead");
    producer.data.write_all(&packet(stream, 0, 10)).unwrap();
    // Every other one is missing.
    for number in 1..200 {
        producer
            .data
            .write_all(&packet(stream, number * 2, BYTES))
            .unwrap();
    }
    // Those that fell out of the window have been written without the ones before them.
    wait_until("most are written", || {
        recorded(&relay, "ahead", "chan_0")[0].len() > 100 * BYTES
    });
    let most = 64 << 20;
    assert!(
        relay.memory() < before + most,
        "{} of {before}",
        relay.memory()
    );
    bystander.is_well();
}

/// Memory for early packets of all sessions, as an argument, and for those of one.
const REORDER_MEMORY: &str = "--reorder-memory=64M";
const SESSION_MEMORY: u64 = 16 << 20;

/// What the relay's allocator and all else may add to that.
const OTHER_MEMORY: u64 = 24 << 20;

/// Sixty streams of one session, of each of which the first packet has come.
fn sixty_streams(relay: &Relay) -> (Producer, Vec<StreamId>) {
    let mut producer = Producer::open(relay, session("early"));
    let streams: Vec<_> = (0..60)
        .map(|number| producer.add(stream(&format!("chan_{number}"), "ust/uid/0/64-bit")))
        .collect();
    for stream in &streams {
        producer.data.write_all(&packet(*stream, 0, 10)).unwrap();
    }
    (producer, streams)
}

#[test]
fn early_packets_of_many_streams_take_no_more_memory_than_a_session_may() {
    const BYTES: usize = 128 << 10;
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--http=127.0.0.1:0", REORDER_MEMORY]);
    let watch = Watch::of(&relay);
    let (mut producer, streams) = sixty_streams(&relay);
    let before = relay.memory();
    // One after the other is missing of each. In all, four times what the session may keep.
    for number in [2, 3, 4, 6, 7, 8, 10, 11] {
        for stream in &streams {
            let sent = packet(*stream, number, BYTES);
            producer.data.write_all(&sent).unwrap();
        }
        assert!(watch.number("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
    }
    let sent = (8 * BYTES + 10) as u64 * 60;
    wait_until("all has been taken", || {
        let of = |name| watch.number(name);
        of("relayd_bytes_total") + of("relayd_reorder_buffered_bytes") == sent
    });
    assert!(watch.number("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
    let memory = relay.memory();
    assert!(
        memory < before + SESSION_MEMORY + OTHER_MEMORY,
        "{memory} of {before}"
    );
    relay.wait_for_log(&["reorder memory exhausted"]);
    // What is missing never comes, and what has come is all there.
    producer.hang_up();
    for number in 0..60 {
        let file = recorded(&relay, "early", &format!("chan_{number}")).concat();
        assert_eq!(file.len(), 10 + 8 * BYTES);
        let has_all = [2, 3, 4, 6, 7, 8, 10, 11].iter().enumerate();
        for (place, number) in has_all {
            let packet = &file[10 + place * BYTES..][..BYTES];
            assert!(packet.iter().all(|byte| byte == number));
        }
    }
    assert_eq!(watch.number("relayd_reorder_memory_bytes"), 0);
}

#[test]
fn early_packets_that_are_still_arriving_count_for_the_memory_of_their_session() {
    const BYTES: usize = 1 << 20;
    let lab = Lab::new();
    let relay = Relay::start_with(&lab, &["--http=127.0.0.1:0", REORDER_MEMORY]);
    let watch = Watch::of(&relay);
    let (producer, streams) = sixty_streams(&relay);
    wait_until("the first packets are written", || {
        watch.number("relayd_packets_total") == 60
    });
    let before = relay.memory();
    // Of each packet all but the last byte comes, on a connection of its own.
    let connections: Vec<_> = streams
        .iter()
        .map(|stream| {
            let mut data = connect(relay.data);
            let sent = packet(*stream, 2, BYTES);
            data.write_all(&sent[..sent.len() - 1]).unwrap();
            assert!(watch.number("relayd_reorder_memory_bytes") <= SESSION_MEMORY);
            data
        })
        .collect();
    // Those for which there is no memory are written as they come.
    wait_until("missing packets have been given up", || {
        watch.number("relayd_packets_lost_total") >= 20
    });
    let memory = relay.memory();
    assert!(
        memory < before + SESSION_MEMORY + OTHER_MEMORY,
        "{memory} of {before}"
    );
    for mut data in connections {
        data.write_all(&[2]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert!(is_at_end(&mut data));
    }
    producer.hang_up();
    for number in 0..60 {
        let file = recorded(&relay, "early", &format!("chan_{number}")).concat();
        assert_eq!(file.len(), 10 + BYTES);
        assert!(file[10..].iter().all(|byte| *byte == 2));
    }
    assert_eq!(watch.number("relayd_reorder_memory_bytes"), 0);
}

#[test]
fn the_last_numbers_there_are_end_the_connection_or_pass() {
    let (_lab, relay, mut bystander) = relay();
    for number in [u64::MAX, u64::MAX - 1] {
        let (mut producer, stream) = with_stream(&relay, "last");
        producer
            .data
            .write_all(&packet(stream, number, 10))
            .unwrap();
        producer.data.write_all(&packet(stream, 0, 10)).unwrap();
        assert!(is_at_end(&mut producer.data), "{number}");
        bystander.is_well();
    }
}

#[test]
fn a_packet_for_nobody_takes_no_memory_however_long_it_says_it_is() {
    let (_lab, relay, mut bystander) = relay();
    let before = relay.memory();
    // Far from those that there are.
    for number in 1000..1050 {
        let mut data = connect(relay.data);
        // It may be hung up on before all is sent.
        let _ = data.write_all(&packet(StreamId(number), 0, 1 << 20));
        assert!(is_at_end(&mut data));
    }
    assert!(relay.memory() < before + (8 << 20));
    bystander.is_well();
}
