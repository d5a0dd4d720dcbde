//! The eight classes of faults that were fixed in the reference in 2026, a test for each.

use std::io::Write;

use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use relay_proto::{Command, DataHeader, Minor};
use tests::lab::Lab;
use tests::producer::{Producer, data_header, index, is_closed, live_session, packet, stream};
use tests::relay::Relay;
use tests::tree::tree;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::stream::NewStreamsStatus;
use wire::{Bytes, Field, StreamId, Text};

use super::{OK, recorded_files, session, start_relay_with_probe};

/// Returns the paths in the directory of the test that are not below the relay's output.
fn paths_outside_output(lab: &Lab) -> Vec<String> {
    let all = tree(lab.path()).into_keys();
    all.filter(|name| !name.starts_with("output")).collect()
}

#[test]
fn a_stream_path_is_accepted_inside_the_session_directory_and_refused_outside() {
    let (lab, relay, mut probe) = start_relay_with_probe();
    let before = paths_outside_output(&lab);
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
        producer.add_stream(stream(&format!("good_{number}"), good));
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
        let reply = producer.request(Command::AddStream(stream("chan_0", bad)));
        assert!(!reply.is_ok(), "{bad}");
    }
    assert_eq!(paths_outside_output(&lab), before);
    let created = tree(&relay.output);
    assert!((0..6).all(|number| {
        created
            .keys()
            .any(|name| name.ends_with(&format!("/good_{number}")))
    }));
    probe.assert_served();
}

#[test]
fn a_channel_name_cannot_lead_out_of_its_directory() {
    let (lab, relay, mut probe) = start_relay_with_probe();
    let before = (paths_outside_output(&lab), tree(&relay.output).len());
    for minor in [15, 10, 4] {
        let mut producer = Producer::connect(&relay, Minor(minor));
        let recording = session("climb").recording.filter(|_| minor >= 11);
        producer.create_session(CreateSession {
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
            let reply = producer.request(Command::AddStream(stream(name, path)));
            assert!(!reply.is_ok(), "{minor} {name}");
        }
    }
    let after = (paths_outside_output(&lab), tree(&relay.output).len());
    // Only the session's own directory was created.
    assert_eq!((after.0, after.1), (before.0, before.1 + 1));
    probe.assert_served();
}

#[test]
fn a_base_path_that_is_absolute_or_leads_out_is_refused() {
    let (lab, relay, mut probe) = start_relay_with_probe();
    let before = (paths_outside_output(&lab), tree(&relay.output).len());
    for base in [
        "/", "/tmp", "/tmp/x", "..", "a/..", "a/b/..", "a/../..", "../a", "./..", ".",
    ] {
        let base_path = Text::from(base);
        let bad = CreateSession {
            base_path,
            ..session("base")
        };
        let mut producer = Producer::connect(&relay, Minor(15));
        assert!(
            !producer.request(Command::CreateSession(bad)).is_ok(),
            "{base}"
        );
    }
    let mut producer = Producer::connect(&relay, Minor(15));
    assert_eq!(
        (paths_outside_output(&lab), tree(&relay.output).len()),
        before
    );
    let base_path = Text::from("a/b");
    producer.create_session(CreateSession {
        base_path,
        ..session("base")
    });
    probe.assert_served();
}

/// Returns a live session with one data stream and one packet, and a viewer that has not requested
/// the index yet.
fn open_viewed_session(relay: &Relay) -> (Producer, StreamId, Viewer) {
    let mut producer = Producer::open(relay, live_session("watched"));
    let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
    producer.send_packet(stream, 0, 100);
    let (viewer, _, _) = Viewer::attached(relay.live, "watched", Seek::Beginning);
    (producer, stream, viewer)
}

fn wait_for_first_index(viewer: &mut Viewer, stream: StreamId) {
    wait_until("the packet is published", || {
        viewer.next_index(stream).status == IndexStatus::Ready
    });
}

#[test]
fn a_packet_requested_with_a_length_near_2_to_the_32_fails() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = relay.memory();
    let (_producer, stream, mut viewer) = open_viewed_session(&relay);
    wait_for_first_index(&mut viewer, stream);
    for len in (0..64).map(|less| u32::MAX - less).chain([1 << 31, 101]) {
        for offset in [0, 99, 100, u64::MAX, u64::MAX - u64::from(len) + 1] {
            let (head, bytes) = viewer.packet(stream, offset, len);
            assert_eq!((head.status, head.len), (PacketStatus::Failed, 0));
            assert!(bytes.is_empty());
        }
    }
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    assert!(relay.memory() < before + (8 << 20));
    probe.assert_served();
}

#[test]
fn a_viewer_cannot_read_a_session_that_it_is_not_attached_to() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (_producer, stream, mut viewer) = open_viewed_session(&relay);
    let session = viewer.wait_for_session("watched").session;
    for creates in [false, true] {
        let mut unattached = Viewer::connect(relay.live);
        if creates {
            unattached.request(&viewer_proto::Command::CreateViewerSession);
        } else {
            let (status, streams) = unattached.attach(session, Seek::Beginning.code());
            assert_eq!((status, streams.len()), (AttachStatus::NoViewerSession, 0));
        }
        assert_eq!(
            unattached.next_index(stream),
            NextIndex::without_packet(IndexStatus::Failed, 0)
        );
        assert_eq!(
            unattached.packet(stream, 0, 100).0.status,
            PacketStatus::Failed
        );
        assert_eq!(unattached.metadata(stream).0, MetadataStatus::Failed);
        assert_eq!(unattached.new_streams(session).0, NewStreamsStatus::Failed);
        assert_eq!(
            unattached.detach(session),
            viewer_proto::session::DetachStatus::NotAttached
        );
    }
    // The attached viewer's read position has not moved.
    wait_for_first_index(&mut viewer, stream);
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    probe.assert_served();
}

#[test]
fn a_packet_requested_before_its_index_fails() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream, mut viewer) = open_viewed_session(&relay);
    for (offset, len) in [(0, 100), (0, 1), (50, 10), (0, 0)] {
        assert_eq!(
            viewer.packet(stream, offset, len).0.status,
            PacketStatus::Failed
        );
    }
    wait_for_first_index(&mut viewer, stream);
    producer.record_packet(stream, 1, 100);
    // The viewer has not requested the index of the second packet.
    assert_eq!(
        viewer.packet(stream, 100, 100).0.status,
        PacketStatus::Failed
    );
    assert_eq!(viewer.packet(stream, 0, 100).1, [0; 100]);
    probe.assert_served();
}

#[test]
fn a_tracefile_size_without_a_count_creates_as_many_tracefiles_as_needed() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("sizes"));
    for (channel, size) in [("chan_0", 4096), ("tiny_0", 1), ("huge_0", u64::MAX)] {
        let stream = producer.add_stream(AddStream {
            tracefile_size: Bytes(size),
            tracefile_count: 0,
            ..stream(channel, "ust/uid/0/64-bit")
        });
        (0..5).for_each(|number| producer.send_packet(stream, number, 3000));
        producer.wait_while_pending(stream, 4);
    }
    let count = |channel: &str| {
        let names = (0..9).map(|number| format!("{channel}_{number}"));
        names
            .map(|name| recorded_files(&relay, "sizes", &name).len())
            .sum::<usize>()
    };
    assert_eq!(
        (count("chan_0"), count("tiny_0"), count("huge_0")),
        (5, 5, 1)
    );
    probe.assert_served();
}

#[test]
fn packet_sizes_that_overflow_32_bits_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for (data_size, padding_size) in [(10, u32::MAX), (u32::MAX, 11), (1 << 31, 1 << 31)] {
        let (mut producer, stream) = Producer::open_with_stream(&relay, session("wraps"));
        // The index has the size modulo 2^32.
        let wrapped = u64::from(data_size.wrapping_add(padding_size));
        assert_eq!(producer.send_index(stream, 0, index(0, wrapped.max(1))), OK);
        let mut sent = data_header(stream, 0, data_size, padding_size);
        sent.extend_from_slice(&packet(stream, 0, 10)[DataHeader::SIZE..]);
        producer.data.write_all(&sent).unwrap();
        assert!(is_closed(&mut producer.data), "{data_size} {padding_size}");
        probe.assert_served();
    }
    let written = recorded_files(&relay, "wraps", "chan_0");
    assert!(written.iter().all(|bytes| bytes.len() < 4096));
}
