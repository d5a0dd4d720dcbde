//! Recordings below one base path: of a host that has restarted while its old connections look
//! alive, and of a host that records twice at a time.

use std::net::Ipv4Addr;

use relay_proto::session::CreateSession;
use relay_proto::{Command, Minor};
use tests::lab::Lab;
use tests::producer::{Producer, TRACE_PATH, is_closed, stream};
use tests::relay::Relay;
use tests::tree::files;
use wire::Text;

use super::{OK, session, start_relay_with_probe};

/// Returns a session with a base path. The session daemon id is derived from the name.
fn session_with_base_path(base: &str, name: &str) -> CreateSession {
    CreateSession {
        base_path: Text::from(base),
        ..session(name)
    }
}

/// Another session of the same session daemon, as [`session_with_base_path`] with another session
/// id.
fn of_same_daemon(base: &str, name: &str, id: u64) -> CreateSession {
    let mut session = session_with_base_path(base, name);
    session.recording.as_mut().unwrap().id = id;
    session
}

/// Returns the contents of the only file whose path ends with `path`.
fn only_file(relay: &Relay, path: &str) -> Vec<u8> {
    let mut found = files(&relay.output, path).into_values();
    let content = found.next().unwrap();
    assert!(found.next().is_none(), "more than one {path}");
    content
}

#[test]
fn a_restarted_host_takes_over_the_directory_from_its_stale_connections() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut old, of_old) =
        Producer::open_with_stream(&relay, session_with_base_path("some/where", "before"));
    let metadata = old.add_stream(stream("metadata", TRACE_PATH));
    old.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
    old.record_packet(of_old, 0, 10);
    // An early packet, which the relay holds in memory: packet 1 never arrives.
    old.send_data(of_old, 2, 10);
    let index = tests::producer::index(2, 10);
    assert_eq!(old.send_index(of_old, 2, index), OK);
    // A packet after the early one on the same connection: once it is processed, the early one has
    // arrived.
    let other = old.add_stream(stream("chan_1", TRACE_PATH));
    old.record_packet(other, 0, 10);

    let (mut new, of_new) =
        Producer::open_with_stream(&relay, session_with_base_path("some/where", "after"));
    relay.wait_for_log(&["its host has started again", "host/before", "host/after"]);
    assert!(is_closed(&mut old.data));
    assert!(old.is_disconnected());
    new.add_stream(stream("metadata", TRACE_PATH));
    new.record_packet(of_new, 0, 20);
    assert_eq!(
        only_file(&relay, &format!("some/where/{TRACE_PATH}/chan_0")),
        [0; 20]
    );
    // Everything that the old connection recorded is moved to where rotated chunks go.
    let archived = files(&relay.output, "/chan_0");
    let archived = archived
        .iter()
        .find(|(path, _)| path.contains("some/where/archives/"));
    let (_, archived) = archived.unwrap();
    assert_eq!(archived[..], [[0; 10], [2; 10]].concat());
    assert_eq!(files(&relay.output, ".tmp_old_chunk").len(), 0);
    // The new recording can rotate.
    assert_eq!(new.create_chunk(1), OK);
    new.archive_chunk(0);
    probe.assert_served();
}

#[test]
fn a_restarted_host_takes_over_after_it_died_during_a_rotation() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut old, of_old) =
        Producer::open_with_stream(&relay, session_with_base_path("some/where", "before"));
    old.record_packet(of_old, 0, 10);
    assert_eq!(old.create_chunk(1), OK);
    let (mut new, of_new) =
        Producer::open_with_stream(&relay, session_with_base_path("some/where", "after"));
    new.record_packet(of_new, 0, 20);
    assert!(old.is_disconnected());
    for chunk in 1..3 {
        assert_eq!(new.create_chunk(chunk), OK);
        assert_eq!(new.rotate_streams(Some(chunk), &[(of_new, chunk)]), OK);
        let last = chunk - 1;
        new.archive_chunk(last);
        new.record_packet(of_new, chunk, 20);
    }
    let recorded = files(&relay.output, "/chan_0");
    assert!(recorded.values().any(|bytes| bytes[..] == [0; 10]));
    assert!(
        recorded.keys().all(|path| !path.contains(".tmp_")),
        "{recorded:?}"
    );
    probe.assert_served();
}

#[test]
fn only_the_same_host_takes_over_a_directory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut owner, of_owner) =
        Producer::open_with_stream(&relay, session_with_base_path("some/where", "owner"));
    owner.record_packet(of_owner, 0, 10);
    // A host is identified by its address, not by the name that it sends.
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    let mut attacker = Producer::connect_from(elsewhere, &relay, Minor(15));
    let reply = attacker.request(Command::CreateSession(session_with_base_path(
        "some/where",
        "attacker",
    )));
    assert!(!reply.is_ok());
    // A second session of the same session daemon is no restart.
    let mut twin = Producer::open(&relay, of_same_daemon("some/where", "owner", 1));
    assert!(
        !twin
            .request(Command::AddStream(stream("chan_0", TRACE_PATH)))
            .is_ok()
    );
    assert!(
        !twin
            .request(Command::AddStream(stream("chan_1", "ust/uid/1")))
            .is_ok()
    );
    owner.record_packet(of_owner, 1, 10);
    assert_eq!(owner.close_stream(of_owner, Some(1)), OK);
    let recorded = only_file(&relay, &format!("some/where/{TRACE_PATH}/chan_0"));
    assert_eq!(recorded, [[0; 10], [1; 10]].concat());
    probe.assert_served();
}

#[test]
fn recordings_of_one_host_below_one_base_path_are_accepted_where_their_trees_do_not_overlap() {
    let reference = Lab::new();
    let reference = (Relay::start_reference(&reference), reference);
    let ours = Lab::new();
    let ours = (Relay::start(&ours), ours);
    for (relay, _lab) in [reference, ours] {
        let mut ust = Producer::open(&relay, of_same_daemon("base", "one", 0));
        let mut kernel = Producer::open(&relay, of_same_daemon("base", "one", 1));
        let mut below = Producer::open(&relay, of_same_daemon("base/below", "one", 2));
        let mut above = Producer::open(&relay, of_same_daemon("base/below/it", "one", 3));
        let mut streams = Vec::new();
        for (producer, path) in [
            (&mut ust, TRACE_PATH),
            (&mut kernel, "kernel"),
            (&mut below, TRACE_PATH),
            (&mut above, "kernel"),
        ] {
            let stream = producer.add_stream(stream("chan_0", path));
            producer.record_packet(stream, 0, 10);
            streams.push(stream);
        }
        // All recordings continue after the last has begun.
        for (producer, stream) in [&mut ust, &mut kernel, &mut below, &mut above]
            .into_iter()
            .zip(streams)
        {
            producer.record_packet(stream, 1, 10);
        }
        for path in [
            "host/base/ust/uid/0/64-bit/chan_0",
            "host/base/kernel/chan_0",
            "host/base/below/ust/uid/0/64-bit/chan_0",
            "host/base/below/it/kernel/chan_0",
        ] {
            let recorded = only_file(&relay, path);
            assert_eq!(recorded, [[0; 10], [1; 10]].concat(), "{path}");
        }
    }
}

#[test]
fn a_recording_rotates_only_while_it_is_alone_in_its_directory() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut ust, of_ust) = Producer::open_with_stream(&relay, of_same_daemon("base", "one", 0));
    ust.record_packet(of_ust, 0, 10);
    let mut kernel = Producer::open(&relay, of_same_daemon("base", "one", 1));
    let of_kernel = kernel.add_stream(stream("chan_0", "kernel"));
    kernel.record_packet(of_kernel, 0, 10);
    // Chunks of both would be moved through the same temporary directory.
    assert!(!kernel.create_chunk(1).is_ok());
    assert!(kernel.is_disconnected());
    ust.record_packet(of_ust, 1, 10);
    assert_eq!(only_file(&relay, "base/kernel/chan_0"), [0; 10]);
    // No recording may be placed in the directories that another one's chunks are moved to.
    for place in ["base/archives", "base/.tmp_old_chunk/x"] {
        let mut hidden = Producer::connect(&relay, Minor(15));
        let reply = hidden.request(Command::CreateSession(of_same_daemon(place, "one", 2)));
        assert!(!reply.is_ok(), "{place}");
    }
    tests::wait_until("the other session has ended", || {
        relay.has_logged(&["session ended", "session 3 "])
    });
    assert_eq!(ust.create_chunk(1), OK);
    ust.archive_chunk(0);
    probe.assert_served();
}
