//! Malformed and forbidden commands of producers.

use std::io::Write;

use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::reply::{ReturnCode, StreamAdded};
use relay_proto::session::{CreateSession, DaemonId};
use relay_proto::stream::{AddStream, BeginDataPending, DataPending, EndDataPending};
use relay_proto::stream::{CloseStream, QuiescentControl};
use relay_proto::{Command, CommandCode, Minor, Reply};
use tests::producer::{CREATED, Producer, TRACE_PATH, connect, index, read_to_close, stream};
use tests::tree::tree;
use wire::{Bytes, ChunkId, EpochSeconds, Field, Flagged, SeqNum, SessionId, StreamId, Text};

use super::{OK, command_bytes, send_and_read_to_end, session, start_relay_with_probe};

/// Returns the payload of a command of protocol 2.15, for tests to change.
fn payload(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(Minor(15), &mut bytes);
    bytes
}

/// Whether bytes are a refusal of CREATE_SESSION: session id 0, return code 25 and an empty path.
fn is_refused_session(answer: &[u8]) -> bool {
    answer == [&[0; 8][..], &25u32.to_be_bytes(), &[0; 4]].concat()
}

fn is_refused_stream(reply: &Reply) -> bool {
    let Reply::StreamAdded(added) = reply else {
        return false;
    };
    *added
        == StreamAdded {
            stream: None,
            code: ReturnCode::UNKNOWN,
        }
}

#[test]
fn lengths_beyond_the_end_of_their_command_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = tree(&relay.output).len();
    let valid = payload(&Command::CreateSession(session("lengths")));
    // Each of the three string lengths in turn: zero, too long, and so long that their sum
    // overflows 32 bits.
    for at in [0, 4, 8] {
        for length in [0u32, 5000, u32::MAX, u32::MAX - 11, 1 << 31] {
            if (at, length) == (8, 0) {
                // An empty base path is valid: the bytes of the path are ignored.
                continue;
            }
            let mut bad = valid.clone();
            bad[at..at + 4].copy_from_slice(&length.to_be_bytes());
            let producer = Producer::connect(&relay, Minor(15));
            let answer = send_and_read_to_end(&producer, &command_bytes(2, &bad));
            assert!(is_refused_session(&answer), "{at} {length}: {answer:?}");
        }
    }
    for end in 0..valid.len() {
        let producer = Producer::connect(&relay, Minor(15));
        let answer = send_and_read_to_end(&producer, &command_bytes(2, &valid[..end]));
        assert!(is_refused_session(&answer), "{end}: {answer:?}");
    }
    assert_eq!(tree(&relay.output).len(), before);
    let add = payload(&Command::AddStream(stream("chan_0", TRACE_PATH)));
    let rotate = [&u32::MAX.to_be_bytes()[..], &[0; 16]].concat();
    for (code, bad) in [
        (1, &add[..add.len() - 1]),
        (1, &add[..20]),
        (18, &rotate[..]),
    ] {
        let producer = Producer::open(&relay, session("lengths"));
        let answer = send_and_read_to_end(&producer, &command_bytes(code, bad));
        assert!(
            answer.is_empty() || answer.ends_with(&11u32.to_be_bytes()),
            "{answer:?}"
        );
        probe.assert_served();
    }
}

#[test]
fn names_without_a_terminator_or_with_one_inside_are_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let valid = payload(&Command::CreateSession(session("name")));
    let name = valid
        .windows(5)
        .position(|bytes| bytes == b"name\0")
        .unwrap();
    for (at, byte) in [
        (name + 4, b'x'),
        (name + 1, 0),
        (name + 9, b'x'),
        (name + 6, 0),
    ] {
        let mut bad = valid.clone();
        bad[at] = byte;
        let producer = Producer::connect(&relay, Minor(15));
        let answer = send_and_read_to_end(&producer, &command_bytes(2, &bad));
        assert!(is_refused_session(&answer), "{at}: {answer:?}");
    }
    // Before 2.11 names are in fields of a fixed length.
    let producer = Producer::connect(&relay, Minor(10));
    let endless = [&[b'x'; 255 + 64][..], &[0; 8]].concat();
    let answer = send_and_read_to_end(&producer, &command_bytes(2, &endless));
    assert_eq!(answer, [&[0; 8][..], &25u32.to_be_bytes()].concat());
    probe.assert_served();
}

#[test]
fn a_session_with_an_invalid_name_daemon_id_chunk_or_format_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let before = tree(&relay.output).len();
    let long = |letters: usize| Text::from("n".repeat(letters).as_str());
    let refused = |session: CreateSession| {
        let mut producer = Producer::connect(&relay, Minor(15));
        let reply = producer.request(Command::CreateSession(session.clone()));
        assert!(!reply.is_ok(), "{session:?}");
    };
    for letters in [240, 254] {
        // With the date appended the name is too long for a directory.
        refused(CreateSession {
            name: long(letters),
            ..session("")
        });
    }
    for name in ["", ".", ".hidden", "a/b"] {
        refused(CreateSession {
            name: Text::from(name),
            ..session("")
        });
        refused(CreateSession {
            host: Text::from(name),
            ..session("name")
        });
    }
    let mut nobody = session("nobody");
    nobody.recording.as_mut().unwrap().daemon = DaemonId([0; 16]);
    refused(nobody);
    let mut unknown = session("chunkless");
    unknown.recording.as_mut().unwrap().current_chunk = Some(ChunkId(7));
    refused(unknown);
    let valid = payload(&Command::CreateSession(session("format")));
    for format in [0, 3, 255] {
        let mut bad = valid.clone();
        bad[62] = format;
        let producer = Producer::connect(&relay, Minor(15));
        let answer = send_and_read_to_end(&producer, &command_bytes(2, &bad));
        assert!(is_refused_session(&answer), "{format}: {answer:?}");
    }
    let created: Vec<_> = tree(&relay.output).into_keys().collect();
    // An unknown current chunk is found out only after the session's directory was created.
    assert!(created.len() <= before + 1, "{created:?}");
    probe.assert_served();
}

#[test]
fn a_stream_with_a_path_or_name_too_long_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut producer = Producer::open(&relay, session("long"));
    let long = |letters: usize| Text::from("c".repeat(letters).as_str());
    for (channel, path) in [(252, 10), (263, 10), (10, 260), (256, 300)] {
        let add = AddStream {
            channel: long(channel),
            path: long(path),
            tracefile_size: Bytes(4096),
            ..stream("", "")
        };
        // A string that does not fit its field closes the connection.
        let answer = producer.try_request(Command::AddStream(add));
        assert!(
            answer.as_ref().is_none_or(is_refused_stream),
            "{channel} {path}: {answer:?}"
        );
        producer = Producer::open(&relay, session("long"));
    }
    producer.add_stream(AddStream {
        channel: long(200),
        ..stream("", TRACE_PATH)
    });
    probe.assert_served();
}

#[test]
fn a_directory_that_is_too_deep_to_be_repaired_and_removed_is_refused_with_the_reason() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let based = |parts: usize| CreateSession {
        base_path: Text::from(vec!["b"; parts].join("/").as_str()),
        ..session("deep")
    };
    let mut producer = Producer::connect(&relay, Minor(15));
    let bytes = command_bytes(2, &payload(&Command::CreateSession(based(130))));
    let answer = send_and_read_to_end(&producer, &bytes);
    assert!(is_refused_session(&answer), "{answer:?}");
    relay.wait_for_log(&["CreateSession refused", "more than 120 parts"]);
    producer = Producer::open(&relay, based(100));
    let path = vec!["s"; 30].join("/");
    let answer = producer.request(Command::AddStream(stream("chan_0", &path)));
    assert!(is_refused_stream(&answer), "{answer:?}");
    relay.wait_for_log(&["invalid path", "has more than 120 parts"]);
    producer.add_stream(stream("chan_0", TRACE_PATH));
    probe.assert_served();
}

#[test]
fn a_chunk_with_an_invalid_time_name_or_close_command_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let chunk = |created: u64, name: Option<&str>| {
        Command::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: EpochSeconds(created),
            name: name.map(Text::from),
        })
    };
    for (bad, code) in [
        (chunk((1 << 63) - 1, None), ReturnCode::NO_MEMORY),
        (chunk(u64::MAX, None), ReturnCode::NO_MEMORY),
        (chunk(CREATED.0, Some("..")), ReturnCode::INVALID),
        (chunk(CREATED.0, Some("a/b")), ReturnCode::INVALID),
        (chunk(CREATED.0, Some("snap.shot")), ReturnCode::INVALID),
    ] {
        let mut producer = Producer::connect(&relay, Minor(15));
        producer.create_session(session("chunk"));
        assert_eq!(producer.request(bad), Reply::Ended(code));
        assert!(producer.is_disconnected());
    }
    let mut producer = Producer::open(&relay, session("closed late"));
    let closed = EpochSeconds(u64::MAX);
    let late = CloseTraceChunk {
        chunk: ChunkId(0),
        closed,
        command: Flagged(None),
    };
    assert!(!producer.request(Command::CloseTraceChunk(late)).is_ok());
    // A chunk that does not exist, and an unknown close command.
    let mut producer = Producer::open(&relay, session("none"));
    assert!(!producer.close_chunk(9, None).is_ok());
    let producer = Producer::open(&relay, session("unknown end"));
    let mut bad = [0; 21];
    bad[12] = 1;
    bad[16] = 1;
    bad[20] = 3;
    let answer = send_and_read_to_end(&producer, &command_bytes(20, &bad));
    assert!(!answer.starts_with(&10u32.to_be_bytes()), "{answer:?}");
    probe.assert_served();
}

#[test]
fn a_second_or_unsupported_version_closes_the_connection() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let version =
        |major: u32| command_bytes(5, &[major.to_be_bytes(), 11u32.to_be_bytes()].concat());
    let producer = Producer::open(&relay, session("version"));
    assert!(send_and_read_to_end(&producer, &version(2)).is_empty());
    for major in [0, 1, 3, u32::MAX] {
        let mut control = connect(relay.control);
        control.write_all(&version(major)).unwrap();
        let answer = read_to_close(&control);
        // The reply names the version of the relay.
        assert_eq!(answer, [0, 0, 0, 2, 0, 0, 0, 15]);
    }
    probe.assert_served();
}

/// Returns all commands that name a stream, and their replies if the stream is unknown.
fn commands_for_stream(stream: StreamId) -> [(Command, Option<Reply>); 5] {
    let (seq, unknown) = (Some(SeqNum(0)), Some(Reply::Ended(ReturnCode::UNKNOWN)));
    let packet = index(0, 10);
    [
        (
            Command::SendIndex(SendIndex {
                stream,
                seq,
                packet,
            }),
            unknown.clone(),
        ),
        (
            Command::CloseStream(CloseStream { stream, last: None }),
            unknown.clone(),
        ),
        (
            Command::DataPending(DataPending { stream, last: seq }),
            Some(Reply::PendingUnknown),
        ),
        (
            Command::ResetMetadata(ResetMetadata { stream, version: 1 }),
            unknown,
        ),
        // QUIESCENT_CONTROL changes nothing and is always answered.
        (
            Command::QuiescentControl(QuiescentControl { stream }),
            Some(OK),
        ),
    ]
}

#[test]
fn every_command_for_a_stream_of_another_session_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut owner = Producer::open(&relay, session("owner"));
    let metadata = owner.add_stream(stream("metadata", "ust/uid/1/64-bit"));
    let stream = owner.add_trace(TRACE_PATH, &["chan_0"])[0];
    owner.send_packet(stream, 0, 10);
    for theirs in [stream, metadata, StreamId(1), StreamId(u64::MAX)] {
        for (command, answer) in commands_for_stream(theirs) {
            let mut attacker = Producer::open(&relay, session("attacker"));
            assert_eq!(attacker.try_request(command.clone()), answer, "{command:?}");
        }
        let attacker = Producer::open(&relay, session("attacker"));
        let mut text = Vec::new();
        SendMetadata {
            stream: theirs,
            padding: 0,
        }
        .write(&mut text);
        text.extend_from_slice(b"overwritten");
        assert!(
            send_and_read_to_end(
                &attacker,
                &command_bytes(CommandCode::SendMetadata.code(), &text)
            )
            .is_empty()
        );
    }
    assert!(
        !tests::tree::files(&relay.output, "")
            .values()
            .any(|bytes| bytes.ends_with(b"overwritten"))
    );
    // The owner of the stream is not affected.
    owner.record_packet(stream, 1, 10);
    owner.send_metadata(metadata, b"/* its own */", 0);
    assert_eq!(owner.close_stream(stream, Some(1)), OK);
    probe.assert_served();
}

#[test]
fn a_data_pending_round_covers_the_streams_of_its_own_session_only() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let (mut owner, stream) = Producer::open_with_stream(&relay, session("owner"));
    // A round that covers the owner's only stream: END_DATA_PENDING reports nothing pending.
    let own = owner.session;
    let begin = |session| Command::BeginDataPending(BeginDataPending { session });
    let end = |session| Command::EndDataPending(EndDataPending { session });
    assert_eq!(owner.request(begin(own)), OK);
    assert!(!owner.is_pending(stream, u64::MAX));
    let mut attacker = Producer::open(&relay, session("attacker"));
    for theirs in [own, SessionId(0), SessionId(u64::MAX)] {
        assert_eq!(attacker.request(begin(theirs)), OK);
        assert_eq!(attacker.request(end(theirs)), Reply::Pending(false));
    }
    // The other session has not restarted the owner's round.
    assert_eq!(owner.request(end(own)), Reply::Pending(false));
    assert_eq!(owner.request(begin(own)), OK);
    assert_eq!(owner.request(end(own)), Reply::Pending(true));
    probe.assert_served();
}

#[test]
fn metadata_is_accepted_for_metadata_streams_only_and_packets_for_data_streams_only() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let mut text = Vec::new();
    for closed in [false, true] {
        let mut producer = Producer::open(&relay, session("text"));
        let channel = if closed { "metadata" } else { "chan_0" };
        let stream = producer.add_stream(stream(channel, TRACE_PATH));
        if closed {
            assert_eq!(producer.close_stream(stream, None), OK);
        }
        text.clear();
        SendMetadata { stream, padding: 0 }.write(&mut text);
        text.extend_from_slice(b"text");
        assert!(
            send_and_read_to_end(
                &producer,
                &command_bytes(CommandCode::SendMetadata.code(), &text)
            )
            .is_empty()
        );
    }
    let mut producer = Producer::open(&relay, session("packets"));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    producer.send_data(metadata, 0, 10);
    assert!(tests::producer::is_closed(&mut producer.data));
    let refused = Reply::Ended(ReturnCode::UNKNOWN);
    assert_eq!(producer.send_index(metadata, 0, index(0, 10)), refused);
    assert!(producer.is_disconnected());
    let (mut producer, data) = Producer::open_with_stream(&relay, session("reset"));
    let reset = ResetMetadata {
        stream: data,
        version: 1,
    };
    assert_eq!(producer.request(Command::ResetMetadata(reset)), refused);
    probe.assert_served();
}

#[test]
fn a_rotation_to_an_unknown_chunk_or_extreme_position_affects_no_other_session() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    let everything = [
        (Some(5), 1, ReturnCode::INVALID_PROTOCOL),
        (Some(u64::MAX), 1, ReturnCode::INVALID_PROTOCOL),
        (Some(1), 0, ReturnCode::OK),
        (Some(1), u64::MAX, ReturnCode::OK),
        (Some(1), 1 << 63, ReturnCode::OK),
        (None, u64::MAX, ReturnCode::OK),
        (None, 0, ReturnCode::OK),
    ];
    for (number, (target, at, answer)) in everything.into_iter().enumerate() {
        let (mut producer, stream) =
            Producer::open_with_stream(&relay, session(&format!("{number}. rotation")));
        (0..3).for_each(|number| producer.send_packet(stream, number, 10));
        producer.wait_while_pending(stream, 2);
        assert_eq!(producer.create_chunk(1), OK);
        let rotated = producer.rotate_streams(target, &[(stream, at)]);
        assert_eq!(rotated, Reply::Ended(answer), "{target:?} {at}");
        if answer == ReturnCode::OK {
            // A second rotation while the first is in progress.
            producer.rotate_streams(target, &[(stream, 0)]);
        }
        probe.assert_served();
    }
}

#[test]
fn metadata_beyond_the_maximum_length_is_refused() {
    let (_lab, relay, mut probe) = start_relay_with_probe();
    for (first, second) in [(u32::MAX, 0), (255 << 20, 1 << 20)] {
        let mut producer = Producer::open(&relay, session("metadata"));
        let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
        producer.send_metadata(metadata, b"/* CTF 1.8 */", first);
        producer.send_metadata(metadata, b"/* CTF 1.8 */", second);
        assert!(producer.is_disconnected(), "{first} {second}");
    }
    relay.wait_for_log(&["SendMetadata refused", "too much metadata of"]);
    probe.assert_served();
}
