//! Peers that access what belongs to others, or use more than their share.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};

use relay_proto::chunk::CloseCommand;
use relay_proto::session::CreateSession;
use relay_proto::{Command, Minor};
use tests::producer::{
    Producer, TRACE_PATH, connect, connect_from, is_closed, live_session, packet, stream,
};
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::{AttachStatus, Seek};
use wire::{StreamId, Text};

use super::{OK, session, start_relay_with_probe};

#[test]
fn packets_from_another_address_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let elsewhere = |last| connect_from(Ipv4Addr::new(127, 0, 0, last), relay.data);
    let (mut victim, id) = Producer::open_with_stream(&relay, session("victim"));
    victim.record_packet(id, 0, 10);
    let mut attacker = elsewhere(2);
    attacker.write_all(&packet(id, 1, 10)).unwrap();
    assert!(is_closed(&mut attacker));
    for guess in [id.0 + 1, 0, u64::MAX] {
        let mut attacker = connect(relay.data);
        attacker.write_all(&packet(StreamId(guess), 1, 10)).unwrap();
        assert!(is_closed(&mut attacker));
    }
    victim.record_packet(id, 1, 10);
    // A host may have several addresses: the first one that sends packets of a session is accepted
    // as well.
    let (mut of_two, id) = Producer::open_with_stream(&relay, session("of two"));
    of_two.data = elsewhere(3);
    of_two.record_packet(id, 0, 10);
    let mut attacker = elsewhere(2);
    attacker.write_all(&packet(id, 1, 10)).unwrap();
    assert!(is_closed(&mut attacker));
    of_two.data = connect(relay.data);
    of_two.record_packet(id, 1, 10);
    probe.assert_served();
}

/// The address of another host, which sends the same host name.
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn a_recording_in_above_or_below_the_directory_of_another_one_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let base = |base: &str, name: &str| CreateSession {
        base_path: Text::from(base),
        ..session(name)
    };
    let (mut owner, stream_of_owner) =
        Producer::open_with_stream(&relay, base("some/where", "owner"));
    owner.record_packet(stream_of_owner, 0, 10);
    for place in [
        "some",
        "some/where",
        "some//where/",
        "some/where/ust",
        "some/where/ust/uid",
    ] {
        let mut attacker = Producer::connect_from(OTHER_HOST, &relay, Minor(15));
        let reply = attacker.request(Command::CreateSession(base(place, "attacker")));
        assert!(!reply.is_ok(), "{place}");
    }
    // A directory whose name only begins with the same letters is another one.
    let mut neighbour = Producer::open(&relay, base("some/where else", "neighbour"));
    neighbour.add_stream(stream("chan_0", TRACE_PATH));
    assert!(neighbour.close_chunk(0, Some(CloseCommand::Delete)).is_ok());
    drop(neighbour);
    assert_eq!(owner.close_stream(stream_of_owner, Some(0)), OK);
    let recorded = files(&relay.output, "some/where/ust/uid/0/64-bit/chan_0");
    assert_eq!(recorded.into_values().next().unwrap(), [0; 10]);
    // The directory is free once its owner has disconnected.
    owner.disconnect();
    let mut afterwards = Producer::connect_from(OTHER_HOST, &relay, Minor(15));
    afterwards.create_session(base("some/where", "afterwards"));
    probe.assert_served();
}

// LTTng keeps the connections of a recording that has ended for a while, and those of a snapshot as
// long as the session exists.
#[test]
fn a_recording_that_has_ended_releases_its_directory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let base = |name: &str| CreateSession {
        base_path: Text::from("some/where"),
        ..session(name)
    };
    let (mut first, of_first) = Producer::open_with_stream(&relay, base("first"));
    first.record_packet(of_first, 0, 10);
    let refused = |name: &str| {
        let third = Ipv4Addr::new(127, 0, 0, 3);
        let mut producer = Producer::connect_from(third, &relay, Minor(15));
        !producer.request(Command::CreateSession(base(name))).is_ok()
    };
    // Its chunk is closed, but a stream of it is still open: moving the chunk would move other
    // files as well.
    assert!(first.close_chunk(0, None).is_ok());
    assert!(refused("early"));
    assert_eq!(first.close_stream(of_first, Some(0)), OK);
    let mut second = Producer::connect_from(OTHER_HOST, &relay, Minor(15));
    second.create_session(base("second"));
    // The directory belongs to the second recording from the beginning, even before its first
    // chunk.
    assert!(refused("third"));
    assert!(!first.create_chunk(1).is_ok());
    assert_eq!(second.create_chunk(0), OK);
    let of_second = second.add_stream(stream("chan_0", TRACE_PATH));
    second.record_packet(of_second, 0, 20);
    probe.assert_served();
}

#[test]
fn sessions_of_one_recording_share_its_directory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut ust = Producer::open(&relay, session("shared"));
    let mut kernel = Producer::connect(&relay, Minor(15));
    let mut of_kernel = session("shared");
    of_kernel.recording.as_mut().unwrap().current_chunk = Some(wire::ChunkId(0));
    kernel.create_session(of_kernel);
    for (producer, path) in [(&mut ust, TRACE_PATH), (&mut kernel, "kernel")] {
        let stream = producer.add_stream(stream("chan_0", path));
        producer.record_packet(stream, 0, 10);
    }
    probe.assert_served();
}

#[test]
fn a_producer_with_too_many_refused_commands_is_disconnected() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("stubborn"));
    let refused = (0..10_000)
        .take_while(|_| {
            producer
                .try_request(Command::AddStream(stream("../chan", "ust")))
                .is_some()
        })
        .count();
    assert!((10..1000).contains(&refused), "{refused}");
    probe.assert_served();
}

#[test]
fn metadata_streams_of_a_session_are_bounded() {
    const MAX_METADATA_STREAMS: usize = 4096;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("processes"));
    for process in 0..MAX_METADATA_STREAMS {
        producer.add_stream(stream("metadata", &format!("ust/pid/{process}")));
    }
    let one_more = stream("metadata", "ust/pid/one more");
    assert!(!producer.request(Command::AddStream(one_more)).is_ok());
    // Other sessions are not affected, and this one may still add data streams.
    producer.add_stream(stream("chan_0", "ust/pid/0"));
    let mut other = Producer::open(&relay, live_session("other"));
    other.add_trace("ust/pid/0", &["chan_0"]);
    probe.assert_served();
}

#[test]
fn attached_sessions_of_a_viewer_are_bounded() {
    const MAX_ATTACHED_SESSIONS: usize = 64;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let producers: Vec<_> = (0..=MAX_ATTACHED_SESSIONS)
        .map(|number| Producer::open(&relay, live_session(&format!("{number} of many"))))
        .collect();
    let mut viewer = Viewer::connect(relay.live);
    viewer.request(&viewer_proto::Command::CreateViewerSession);
    let mut results = BTreeMap::new();
    for producer in &producers {
        let (status, _) = viewer.attach(producer.session, Seek::Beginning.code());
        results
            .entry(format!("{status:?}"))
            .or_insert_with(Vec::new)
            .push(producer.session);
    }
    assert_eq!(results["Ok"].len(), MAX_ATTACHED_SESSIONS);
    assert_eq!(
        results["Unknown"],
        [producers[MAX_ATTACHED_SESSIONS].session]
    );
    // After detaching from one session the viewer may attach to another; other viewers are not
    // affected.
    viewer.detach(producers[0].session);
    assert_eq!(
        viewer.attach(producers[MAX_ATTACHED_SESSIONS].session, 1).0,
        AttachStatus::Ok
    );
    let _other = Viewer::attached(relay.live, "64 of many", Seek::Last);
    probe.assert_served();
}

#[test]
fn connections_of_one_address_are_bounded() {
    const MAX_CONNECTIONS: usize = 4096;
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut producer, stream) = Producer::open_with_stream(&relay, session("packets"));
    // The probe session and the producer have one data connection each.
    let sockets: Vec<_> = (2..MAX_CONNECTIONS).map(|_| connect(relay.data)).collect();
    wait_until("all connections are accepted", || {
        relay.open_files() > MAX_CONNECTIONS
    });
    assert!(is_closed(&mut connect(relay.data)), "one too many");
    relay.wait_for_log(&["connection refused: too many"]);
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let mut elsewhere = connect_from(other, relay.data);
    assert_eq!(elsewhere.local_addr().unwrap().ip(), IpAddr::V4(other));
    elsewhere.write_all(&packet(stream, 0, 10)).unwrap();
    assert_eq!(
        producer.send_index(stream, 0, tests::producer::index(0, 10)),
        OK
    );
    producer.wait_while_pending(stream, 0);
    probe.assert_served();
    drop(sockets);
    wait_until("the connections are closed", || relay.open_files() < 100);
    producer.send_packet(stream, 1, 10);
    probe.assert_served();
}
