//! Commands of producers that say what they may not.

use std::io::{Read, Write};

use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::reply::{ReturnCode, StreamAdded};
use relay_proto::session::{CreateSession, DaemonId};
use relay_proto::stream::{AddStream, BeginDataPending, DataPending, EndDataPending};
use relay_proto::stream::{CloseStream, QuiescentControl};
use relay_proto::{Command, CommandCode, Minor, Reply};
use tests::producer::{CREATED, Producer, connect, index, packet, stream};
use tests::tree::tree;
use wire::{Bytes, ChunkId, EpochSeconds, Field, Flagged, SeqNum, SessionId, StreamId, Text};

use super::{OK, last_words, raw, relay, session};

/// A command in the form of 2.15, to be changed.
fn payload(command: &Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(Minor(15), &mut bytes);
    bytes
}

/// Whether bytes are a refusal of a session: its number, the code, and no path.
fn is_refused_session(answer: &[u8]) -> bool {
    answer == [&[0; 8][..], &25u32.to_be_bytes(), &[0; 4]].concat()
}

fn refused(reply: &Reply) -> bool {
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
fn lengths_that_reach_beyond_their_command_are_refused() {
    let (_lab, relay, mut bystander) = relay();
    let before = tree(&relay.output).len();
    let good = payload(&Command::CreateSession(session("lengths")));
    // Each of its three lengths in turn: none, one that is too long, and some whose sum wraps.
    for at in [0, 4, 8] {
        for length in [0u32, 5000, u32::MAX, u32::MAX - 11, 1 << 31] {
            if (at, length) == (8, 0) {
                // No base path: what follows is ignored.
                continue;
            }
            let mut bad = good.clone();
            bad[at..at + 4].copy_from_slice(&length.to_be_bytes());
            let producer = Producer::greet(&relay, Minor(15));
            let answer = last_words(&producer, &raw(2, &bad));
            assert!(is_refused_session(&answer), "{at} {length}: {answer:?}");
        }
    }
    for end in 0..good.len() {
        let producer = Producer::greet(&relay, Minor(15));
        let answer = last_words(&producer, &raw(2, &good[..end]));
        assert!(is_refused_session(&answer), "{end}: {answer:?}");
    }
    assert_eq!(tree(&relay.output).len(), before);
    let add = payload(&Command::AddStream(stream("chan_0", "ust/uid/0/64-bit")));
    let rotate = [&u32::MAX.to_be_bytes()[..], &[0; 16]].concat();
    for (code, bad) in [
        (1, &add[..add.len() - 1]),
        (1, &add[..20]),
        (18, &rotate[..]),
    ] {
        let producer = Producer::open(&relay, session("lengths"));
        let answer = last_words(&producer, &raw(code, bad));
        assert!(
            answer.is_empty() || answer.ends_with(&11u32.to_be_bytes()),
            "{answer:?}"
        );
        bystander.is_well();
    }
}

#[test]
fn names_without_their_end_or_with_one_inside_are_refused() {
    let (_lab, relay, mut bystander) = relay();
    let good = payload(&Command::CreateSession(session("name")));
    let name = good
        .windows(5)
        .position(|bytes| bytes == b"name\0")
        .unwrap();
    for (at, byte) in [
        (name + 4, b'x'),
        (name + 1, 0),
        (name + 9, b'x'),
        (name + 6, 0),
    ] {
        let mut bad = good.clone();
        bad[at] = byte;
        let producer = Producer::greet(&relay, Minor(15));
        let answer = last_words(&producer, &raw(2, &bad));
        assert!(is_refused_session(&answer), "{at}: {answer:?}");
    }
    // Before 2.11 they lie in fields of a fixed length.
    let producer = Producer::greet(&relay, Minor(10));
    let endless = [&[b'x'; 255 + 64][..], &[0; 8]].concat();
    let answer = last_words(&producer, &raw(2, &endless));
    assert_eq!(answer, [&[0; 8][..], &25u32.to_be_bytes()].concat());
    bystander.is_well();
}

#[test]
fn a_session_with_a_name_too_long_or_without_a_daemon_or_format_is_refused() {
    let (_lab, relay, mut bystander) = relay();
    let before = tree(&relay.output).len();
    let long = |letters: usize| Text::from("n".repeat(letters).as_str());
    let refused = |session: CreateSession| {
        let mut producer = Producer::greet(&relay, Minor(15));
        let reply = producer.ask(Command::CreateSession(session.clone()));
        assert!(!reply.is_ok(), "{session:?}");
    };
    for letters in [240, 254] {
        // With the date behind it no directory can be called that.
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
    let good = payload(&Command::CreateSession(session("format")));
    for format in [0, 3, 255] {
        let mut bad = good.clone();
        bad[62] = format;
        let producer = Producer::greet(&relay, Minor(15));
        let answer = last_words(&producer, &raw(2, &bad));
        assert!(is_refused_session(&answer), "{format}: {answer:?}");
    }
    let made: Vec<_> = tree(&relay.output).into_keys().collect();
    // The one that began in a chunk that nobody has is only found out in its directory.
    assert!(made.len() <= before + 1, "{made:?}");
    bystander.is_well();
}

#[test]
fn a_stream_with_a_path_or_name_too_long_is_refused() {
    let (_lab, relay, mut bystander) = relay();
    let mut producer = Producer::open(&relay, session("long"));
    let long = |letters: usize| Text::from("c".repeat(letters).as_str());
    for (channel, path) in [(252, 10), (263, 10), (10, 260), (256, 300)] {
        let add = AddStream {
            channel: long(channel),
            path: long(path),
            tracefile_size: Bytes(4096),
            ..stream("", "")
        };
        // What does not even fit its field ends the connection.
        let answer = producer.try_ask(Command::AddStream(add));
        assert!(
            answer.as_ref().is_none_or(refused),
            "{channel} {path}: {answer:?}"
        );
        producer = Producer::open(&relay, session("long"));
    }
    producer.add(AddStream {
        channel: long(200),
        ..stream("", "ust/uid/0/64-bit")
    });
    bystander.is_well();
}

#[test]
fn a_chunk_beyond_the_calendar_or_with_a_wrong_name_or_end_is_refused() {
    let (_lab, relay, mut bystander) = relay();
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
        let mut producer = Producer::greet(&relay, Minor(15));
        producer.create(session("chunk"));
        assert_eq!(producer.ask(bad), Reply::Ended(code));
        assert!(producer.is_hung_up());
    }
    let mut producer = Producer::open(&relay, session("closed late"));
    let closed = EpochSeconds(u64::MAX);
    let late = CloseTraceChunk {
        chunk: ChunkId(0),
        closed,
        command: Flagged(None),
    };
    assert!(!producer.ask(Command::CloseTraceChunk(late)).is_ok());
    // One that does not exist, and an end that nobody knows.
    let mut producer = Producer::open(&relay, session("none"));
    assert!(!producer.close_chunk(9, None).is_ok());
    let producer = Producer::open(&relay, session("unknown end"));
    let mut bad = [0; 21];
    bad[12] = 1;
    bad[16] = 1;
    bad[20] = 3;
    let answer = last_words(&producer, &raw(20, &bad));
    assert!(!answer.starts_with(&10u32.to_be_bytes()), "{answer:?}");
    bystander.is_well();
}

#[test]
fn a_second_version_or_one_of_another_world_ends_the_connection() {
    let (_lab, relay, mut bystander) = relay();
    let version = |major: u32| raw(5, &[major.to_be_bytes(), 11u32.to_be_bytes()].concat());
    let producer = Producer::open(&relay, session("version"));
    assert!(last_words(&producer, &version(2)).is_empty());
    for major in [0, 1, 3, u32::MAX] {
        let mut control = connect(relay.control);
        control.write_all(&version(major)).unwrap();
        let mut answer = Vec::new();
        let _ = control.read_to_end(&mut answer);
        // It is told what would do.
        assert_eq!(answer, [0, 0, 0, 2, 0, 0, 0, 15]);
    }
    bystander.is_well();
}

/// All commands that name a stream, and what they are answered if it is not there.
fn commands_about(stream: StreamId) -> [(Command, Option<Reply>); 5] {
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
        // It asks for nothing and is answered in any case.
        (
            Command::QuiescentControl(QuiescentControl { stream }),
            Some(OK),
        ),
    ]
}

#[test]
fn every_command_about_a_stream_of_another_session_is_refused() {
    let (_lab, relay, mut bystander) = relay();
    let mut owner = Producer::open(&relay, session("owner"));
    let metadata = owner.add(stream("metadata", "ust/uid/1/64-bit"));
    let stream = owner.add_trace("ust/uid/0/64-bit", &["chan_0"])[0];
    owner.send_packet(stream, 0, 10);
    for theirs in [stream, metadata, StreamId(1), StreamId(u64::MAX)] {
        for (command, answer) in commands_about(theirs) {
            let mut thief = Producer::open(&relay, session("thief"));
            assert_eq!(thief.try_ask(command.clone()), answer, "{command:?}");
        }
        let thief = Producer::open(&relay, session("thief"));
        let mut text = Vec::new();
        SendMetadata {
            stream: theirs,
            padding: 0,
        }
        .write(&mut text);
        text.extend_from_slice(b"overwritten");
        assert!(last_words(&thief, &raw(CommandCode::SendMetadata.code(), &text)).is_empty());
    }
    assert!(
        !tests::tree::files(&relay.output, "")
            .values()
            .any(|bytes| bytes.ends_with(b"overwritten"))
    );
    // It has noticed nothing.
    owner.send_packet(stream, 1, 10);
    owner.settle(stream, 1);
    owner.send_metadata(metadata, b"/* its own */", 0);
    assert_eq!(owner.close(stream, Some(1)), OK);
    bystander.is_well();
}

#[test]
fn a_round_of_questions_is_about_the_sessions_own_streams_whatever_it_names() {
    let (_lab, relay, mut bystander) = relay();
    let mut owner = Producer::open(&relay, session("owner"));
    let stream = owner.add(stream("chan_0", "ust/uid/0/64-bit"));
    // A round in which its stream has been asked about: nothing was left out.
    let own = owner.session;
    let begin = |session| Command::BeginDataPending(BeginDataPending { session });
    let end = |session| Command::EndDataPending(EndDataPending { session });
    assert_eq!(owner.ask(begin(own)), OK);
    assert!(!owner.is_pending(stream, u64::MAX));
    let mut thief = Producer::open(&relay, session("thief"));
    for theirs in [own, SessionId(0), SessionId(u64::MAX)] {
        assert_eq!(thief.ask(begin(theirs)), OK);
        assert_eq!(thief.ask(end(theirs)), Reply::Pending(false));
    }
    // Theirs has not begun it anew.
    assert_eq!(owner.ask(end(own)), Reply::Pending(false));
    assert_eq!(owner.ask(begin(own)), OK);
    assert_eq!(owner.ask(end(own)), Reply::Pending(true));
    bystander.is_well();
}

#[test]
fn metadata_goes_to_metadata_streams_and_packets_to_the_others() {
    let (_lab, relay, mut bystander) = relay();
    let mut text = Vec::new();
    for closed in [false, true] {
        let mut producer = Producer::open(&relay, session("text"));
        let channel = if closed { "metadata" } else { "chan_0" };
        let stream = producer.add(stream(channel, "ust/uid/0/64-bit"));
        if closed {
            assert_eq!(producer.close(stream, None), OK);
        }
        text.clear();
        SendMetadata { stream, padding: 0 }.write(&mut text);
        text.extend_from_slice(b"text");
        assert!(last_words(&producer, &raw(CommandCode::SendMetadata.code(), &text)).is_empty());
    }
    let mut producer = Producer::open(&relay, session("packets"));
    let metadata = producer.add(stream("metadata", "ust/uid/0/64-bit"));
    producer.data.write_all(&packet(metadata, 0, 10)).unwrap();
    assert!(tests::producer::is_at_end(&mut producer.data));
    let refused = Reply::Ended(ReturnCode::UNKNOWN);
    assert_eq!(producer.send_index(metadata, 0, index(0, 10)), refused);
    assert!(producer.is_hung_up());
    let mut producer = Producer::open(&relay, session("reset"));
    let data = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
    let reset = ResetMetadata {
        stream: data,
        version: 1,
    };
    assert_eq!(producer.ask(Command::ResetMetadata(reset)), refused);
    bystander.is_well();
}

#[test]
fn a_rotation_to_nowhere_or_before_or_beyond_everything_does_no_harm() {
    let (_lab, relay, mut bystander) = relay();
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
        let mut producer = Producer::open(&relay, session(&format!("{number}. rotation")));
        let stream = producer.add(stream("chan_0", "ust/uid/0/64-bit"));
        (0..3).for_each(|number| producer.send_packet(stream, number, 10));
        producer.settle(stream, 2);
        assert_eq!(producer.create_chunk(1), OK);
        let rotated = producer.rotate(target, &[(stream, at)]);
        assert_eq!(rotated, Reply::Ended(answer), "{target:?} {at}");
        if answer == ReturnCode::OK {
            // A second time while the first is on its way, too.
            producer.rotate(target, &[(stream, 0)]);
        }
        bystander.is_well();
    }
}

#[test]
fn more_metadata_than_any_viewer_takes_is_refused() {
    let (_lab, relay, mut bystander) = relay();
    for (first, second) in [(u32::MAX, 0), (255 << 20, 1 << 20)] {
        let mut producer = Producer::open(&relay, session("metadata"));
        let metadata = producer.add(stream("metadata", "ust/uid/0/64-bit"));
        producer.send_metadata(metadata, b"/* CTF 1.8 */", first);
        producer.send_metadata(metadata, b"/* CTF 1.8 */", second);
        assert!(producer.is_hung_up(), "{first} {second}");
    }
    relay.wait_for_log(&["SendMetadata refused", "too much metadata of"]);
    bystander.is_well();
}
