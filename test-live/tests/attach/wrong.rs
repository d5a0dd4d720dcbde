//! Relays that make no sense.

use viewer_proto::CommandCode::{
    AttachSession, Connect, CreateViewerSession, GetMetadata, GetNextIndex, GetPacket, ListSessions,
};
use viewer_proto::index::{IndexStatus, NextIndex};
use wire::Bits;

use crate::fake::{Fake, Session, ready, record, trace_records};
use crate::watch::{one_stream, options, watch};

#[test]
fn each_protocol_error_of_a_relay_ends_the_source_with_its_reason() {
    let bare = |status| {
        let mut bytes = Vec::new();
        wire::Field::write(&NextIndex::without_packet(status, 0), &mut bytes);
        bytes
    };
    let hostile_head = [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0];
    let empty_head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let metadata = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut unknown = bare(IndexStatus::Ready);
    unknown[59] = 9;
    for (command, reply, why) in [
        (
            GetNextIndex,
            &bare(IndexStatus::Failed)[..],
            "next packet of stream 2",
        ),
        (
            GetNextIndex,
            &bare(IndexStatus::EndOfFile),
            "next packet of stream 2",
        ),
        (GetNextIndex, &unknown, "malformed reply"),
        (GetPacket, &hostile_head, "announces 256, at most 16"),
        (GetPacket, &empty_head, "a packet without bytes"),
        (GetMetadata, &metadata, "announces"),
        (ListSessions, &[0xff; 4], "announces 4294967295"),
        (AttachSession, &[0, 0, 0, 1, 0xff, 0, 0, 0], "announces"),
        (AttachSession, &[0, 0, 0, 2, 0, 0, 0, 0], "Already"),
        (CreateViewerSession, &[0, 0, 0, 2], "viewer session"),
        (Connect, &[0; 20], "speaks protocol 0"),
        (Connect, &[], "a relay of another version closes it"),
        (GetNextIndex, &[], "closed the connection"),
    ] {
        let fake = one_stream();
        fake.put(2, [ready(0, 0)]);
        fake.answer_instead(command, reply);
        let received = watch(&fake, "/host/vm/s", options()).receive_rest();
        let last = received.last().unwrap();
        assert!(
            last.starts_with("failed") && last.contains(why),
            "{command:?}: {last}"
        );
    }
}

#[test]
fn a_stream_announced_twice_is_a_protocol_error() {
    for batch in [
        ["c", "c"].map(|channel| record(2, 1, "a", channel)),
        [1, 2].map(|id| record(id, 1, "a", "metadata")),
    ] {
        let fake = Fake::start(vec![Session::new(1, "s", vec![batch.to_vec()])]);
        let received = watch(&fake, "", options()).receive_rest();
        assert!(
            received.last().unwrap().starts_with("failed"),
            "{received:#?}"
        );
    }
}

#[test]
fn a_stream_with_contradictory_indexes_is_left_out_and_the_others_continue() {
    let odd = |change: fn(&mut NextIndex)| {
        let mut index = ready(0, 0);
        change(&mut index);
        index
    };
    for index in [
        odd(|index| index.packet.packet_size = Bits(129)),
        odd(|index| index.packet.content_size = Bits(129)),
        odd(|index| index.packet.packet_size = Bits((1 << 33) + 8)),
    ] {
        let records = [trace_records(1, "a"), vec![record(3, 1, "a", "d")]].concat();
        let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
        fake.put_metadata(1, &["m1"]);
        fake.put(2, [index, ready(1, 0)]);
        fake.put(3, [ready(0, 0)]);
        let mut watch = watch(&fake, "/host/vm/s", options());
        watch.receive_until("packet a/d 0");
        fake.end();
        let received = watch.receive_rest();
        assert!(received.contains(&"end a/c".to_owned()), "{received:#?}");
        assert!(
            !received.contains(&"packet a/c 1".to_owned()),
            "{received:#?}"
        );
        assert_eq!(received.last().unwrap(), "done");
    }
}
