//! The eight classes of faults that were mended in the reference in 2026, each with a name.

use std::io::Write;

use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use relay_proto::{Command, DataHeader, Minor};
use tests::lab::Lab;
use tests::producer::{Producer, index, is_at_end, live_session, packet, stream};
use tests::relay::Relay;
use tests::tree::tree;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::stream::NewStreamsStatus;
use wire::{Bytes, Field, SeqNum, StreamId, Text};

use super::{OK, recorded, relay, session};

/// What lies beside the relay's output.
fn beside(lab: &Lab) -> Vec<String> {
    let all = tree(lab.path()).into_keys();
    all.filter(|name| !name.starts_with("output")).collect()
}

#[test]
fn a_path_is_taken_if_it_stays_inside_and_refused_if_it_leaves() {
    let (lab, relay, mut bystander) = relay();
    let before = beside(&lab);
    let mut producer = Producer::open(&relay, session("paths"));
    for (number, good) in [
        "ust",
        "ust/uid/0/64-bit",
        "a..b/c",
        "/ust/pid",
        "ust//pid",
        "...",
    ]
    .into_iter()
    .enumerate()
    {
        producer.add(stream(&format!("good_{number}"), good));
    }
    for bad in [
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/b/../../..",
        "/..",
        "//a",
        ".",
        "a/./b",
        "/",
    ] {
        let reply = producer.ask(Command::AddStream(stream("chan_0", bad)));
        assert!(!reply.is_ok(), "{bad}");
    }
    assert_eq!(beside(&lab), before);
    let made = tree(&relay.output);
    assert!((0..6).all(|number| {
        made.keys()
            .any(|name| name.ends_with(&format!("/good_{number}")))
    }));
    bystander.is_well();
}

#[test]
fn a_channel_name_cannot_climb() {
    let (lab, relay, mut bystander) = relay();
    let before = (beside(&lab), tree(&relay.output).len());
    for minor in [15, 10, 4] {
        let mut producer = Producer::greet(&relay, Minor(minor));
        let recording = session("climb").recording.filter(|_| minor >= 11);
        producer.create(CreateSession {
            recording,
            ..session("climb")
        });
        if minor >= 11 {
            assert_eq!(producer.create_chunk(0), OK);
        }
        let path = if minor >= 11 {
            "ust"
        } else {
            "/host/climb/ust"
        };
        for name in [
            "../up",
            "../../../../tmp/up",
            "a/b",
            "..",
            ".",
            "/tmp/up",
            "up/",
        ] {
            let reply = producer.ask(Command::AddStream(stream(name, path)));
            assert!(!reply.is_ok(), "{minor} {name}");
        }
    }
    let after = (beside(&lab), tree(&relay.output).len());
    // The session's own directory is all there is.
    assert_eq!((after.0, after.1), (before.0, before.1 + 1));
    bystander.is_well();
}

#[test]
fn a_base_path_is_neither_absolute_nor_climbs_at_its_end() {
    let (lab, relay, mut bystander) = relay();
    let before = (beside(&lab), tree(&relay.output).len());
    for base in [
        "/", "/tmp", "/tmp/x", "..", "a/..", "a/b/..", "a/../..", "../a", "./..", ".",
    ] {
        let base_path = Text::from(base);
        let bad = CreateSession {
            base_path,
            ..session("base")
        };
        let mut producer = Producer::greet(&relay, Minor(15));
        assert!(!producer.ask(Command::CreateSession(bad)).is_ok(), "{base}");
    }
    let mut producer = Producer::greet(&relay, Minor(15));
    assert_eq!((beside(&lab), tree(&relay.output).len()), before);
    let base_path = Text::from("a/b");
    producer.create(CreateSession {
        base_path,
        ..session("base")
    });
    bystander.is_well();
}

/// A live session with one stream and one packet in it, and its viewer, who has not asked for it.
fn watched(relay: &Relay) -> (Producer, StreamId, Viewer) {
    let mut producer = Producer::open(relay, live_session("watched"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    producer.send_packet(stream, 0, 100);
    let (viewer, _, _) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    (producer, stream, viewer)
}

fn first_index(viewer: &mut Viewer, stream: StreamId) {
    wait_until("there is a packet", || {
        viewer.next_index(stream).status == IndexStatus::Ready
    });
}

#[test]
fn a_packet_of_a_length_near_2_to_the_32_is_not_there() {
    let (_lab, relay, mut bystander) = relay();
    let before = relay.memory();
    let (_producer, stream, mut viewer) = watched(&relay);
    first_index(&mut viewer, stream);
    for len in (0..64).map(|less| u32::MAX - less).chain([1 << 31, 101]) {
        for offset in [0, 99, 100, u64::MAX, u64::MAX - u64::from(len) + 1] {
            let (head, bytes) = viewer.packet(stream, offset, len);
            assert_eq!((head.status, head.len), (PacketStatus::Failed, 0));
            assert!(bytes.is_empty());
        }
    }
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    assert!(relay.memory() < before + (8 << 20));
    bystander.is_well();
}

#[test]
fn nothing_is_read_of_a_session_before_attaching_to_it_nor_with_another_viewers_numbers() {
    let (_lab, relay, mut bystander) = relay();
    let (_producer, stream, mut viewer) = watched(&relay);
    let session = viewer.wait_for_session("watched").session;
    for creates in [false, true] {
        let mut stranger = Viewer::connect(relay.live);
        if creates {
            stranger.ask(&viewer_proto::Command::CreateViewerSession);
        } else {
            let (status, streams) = stranger.attach(session, Seek::Beginning.code());
            assert_eq!((status, streams.len()), (AttachStatus::NoViewerSession, 0));
        }
        assert_eq!(
            stranger.next_index(stream),
            NextIndex::without_packet(IndexStatus::Failed, 0)
        );
        assert_eq!(
            stranger.packet(stream, 0, 100).0.status,
            PacketStatus::Failed
        );
        assert_eq!(stranger.metadata(stream).0, MetadataStatus::Failed);
        assert_eq!(stranger.new_streams(session).0, NewStreamsStatus::Failed);
        assert_eq!(
            stranger.detach(session),
            viewer_proto::session::DetachStatus::NotAttached
        );
    }
    // Who is attached still has everything before him.
    first_index(&mut viewer, stream);
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    bystander.is_well();
}

#[test]
fn a_packet_asked_for_before_its_index_is_not_there() {
    let (_lab, relay, mut bystander) = relay();
    let (mut producer, stream, mut viewer) = watched(&relay);
    for (offset, len) in [(0, 100), (0, 1), (50, 10), (0, 0)] {
        assert_eq!(
            viewer.packet(stream, offset, len).0.status,
            PacketStatus::Failed
        );
    }
    first_index(&mut viewer, stream);
    producer.send_packet(stream, 1, 100);
    producer.settle(stream, 1);
    // Of the second one it has no index.
    assert_eq!(
        viewer.packet(stream, 100, 100).0.status,
        PacketStatus::Failed
    );
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    bystander.is_well();
}

#[test]
fn a_tracefile_size_without_a_count_makes_one_file_after_the_other() {
    let (_lab, relay, mut bystander) = relay();
    let mut producer = Producer::open(&relay, session("sizes"));
    for (channel, size) in [("chan_0", 4096), ("tiny_0", 1), ("huge_0", u64::MAX)] {
        let stream = producer.add(AddStream {
            tracefile_size: Bytes(size),
            tracefile_count: 0,
            ..stream(channel, "ust/uid/0/64-bit")
        });
        (0..5).for_each(|number| producer.send_packet(stream, number, 3000));
        producer.settle(stream, 4);
    }
    let count = |channel: &str| {
        let names = (0..9).map(|number| format!("{channel}_{number}"));
        names
            .map(|name| recorded(&relay, "sizes", &name).len())
            .sum::<usize>()
    };
    assert_eq!(
        (count("chan_0"), count("tiny_0"), count("huge_0")),
        (5, 5, 1)
    );
    bystander.is_well();
}

#[test]
fn sizes_that_only_fit_32_bits_when_they_wrap_are_refused() {
    let (_lab, relay, mut bystander) = relay();
    for (data_size, padding_size) in [(10, u32::MAX), (u32::MAX, 11), (1 << 31, 1 << 31)] {
        let mut producer = Producer::open(&relay, session("wraps"));
        let stream = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
        // The index says what is left of it in 32 bits.
        let wrapped = u64::from(data_size.wrapping_add(padding_size));
        assert_eq!(producer.send_index(stream, 0, index(0, wrapped.max(1))), OK);
        let mut sent = Vec::new();
        DataHeader {
            circuit: 0,
            stream,
            seq: SeqNum(0),
            data_size,
            padding_size,
        }
        .write(&mut sent);
        sent.extend_from_slice(&packet(stream, 0, 10)[DataHeader::SIZE..]);
        producer.data.write_all(&sent).unwrap();
        assert!(is_at_end(&mut producer.data), "{data_size} {padding_size}");
        bystander.is_well();
    }
    let written = recorded(&relay, "wraps", "chan_0");
    assert!(written.iter().all(|bytes| bytes.len() < 4096));
}
