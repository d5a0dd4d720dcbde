//! Sessions of one name that are created in the same second, whose directories would have the same
//! name.

use std::collections::BTreeMap;
use std::fs;

use relay_proto::resume::{MakeResumable, OpenStream};
use relay_proto::session::CreateSession;
use relay_proto::{Command, Minor, Reply, ReturnCode};
use tests::consumer::replay_command;
use tests::lab::Lab;
use tests::process::Process;
use tests::producer::{OK, Producer, TRACE_PATH, live_session, stream};
use tests::relay::Relay;
use tests::replay::HOST;
use tests::traces;
use tests::tree::tree;
use wire::{SeqNum, Text};

const EXISTS: Reply = Reply::Ended(ReturnCode::EXISTS);

/// Returns a live session of the producer with this number.
fn session(producer: u8) -> CreateSession {
    let mut session = live_session("same");
    session.recording.as_mut().unwrap().daemon.0[15] = producer;
    session
}

fn create(relay: &Relay, session: CreateSession) -> Producer {
    let mut producer = Producer::connect(relay, Minor(15));
    producer.create_session(session);
    producer
}

fn make_resumable(producer: &mut Producer) -> Reply {
    producer.request(Command::MakeResumable(MakeResumable { timeout: 60 }))
}

/// Sends metadata, and ends the session.
fn record(producer: &mut Producer) {
    assert_eq!(producer.create_chunk(0), OK);
    let opened = producer.request(Command::OpenStream(OpenStream {
        key: 0,
        first: SeqNum(0),
        stream: stream("metadata", TRACE_PATH),
    }));
    let Reply::StreamOpened(opened) = opened else {
        panic!("{opened:?}");
    };
    let metadata = opened.stream.unwrap();
    producer.send_metadata(metadata, b"text", 0);
    assert!(matches!(
        producer.close_chunk(0, None),
        Reply::ChunkClosed { .. }
    ));
    assert_eq!(producer.close_stream(metadata, None), OK);
}

#[test]
fn directory_of_a_session_that_has_ended_is_not_used_again() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut first = create(&relay, session(1));
    assert_eq!(make_resumable(&mut first), OK);
    record(&mut first);
    drop(first);
    let recorded = tree(&relay.output);
    assert_eq!(make_resumable(&mut create(&relay, session(2))), EXISTS);
    assert_eq!(tree(&relay.output), recorded);
}

#[test]
fn directory_of_a_session_whose_producer_may_return_is_not_used_by_another() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let (mut first, mut second) = (create(&relay, session(1)), create(&relay, session(2)));
    assert_eq!(make_resumable(&mut second), OK);
    assert_eq!(make_resumable(&mut first), EXISTS);
    drop(second);
    assert_eq!(make_resumable(&mut create(&relay, session(3))), EXISTS);
}

#[test]
fn directory_that_the_user_has_named_may_have_a_recording() {
    let (_lab, relay) = Relay::start_in_new_lab();
    for number in 1..=2 {
        let named = CreateSession {
            base_path: Text::from("named"),
            ..session(number)
        };
        let mut producer = create(&relay, named);
        assert_eq!(make_resumable(&mut producer), OK);
        record(&mut producer);
    }
}

#[test]
fn replays_of_one_name_have_a_directory_each() {
    // More than a second has room for, one after the other and all at once.
    const REPLAYS: usize = 12;
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let trace = traces::with_equal_timestamps(&lab);
    let replay = || Process::start(&mut replay_command(&lab, &relay, "same", &trace));
    for _ in 0..REPLAYS {
        replay().wait().expect_success();
    }
    let processes: Vec<_> = (0..REPLAYS).map(|_| replay()).collect();
    for process in processes {
        process.wait().expect_success();
    }
    let directories = fs::read_dir(relay.output.join(HOST)).unwrap();
    let sessions: BTreeMap<_, _> = directories
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), tree(&path)))
        .collect();
    assert_eq!(sessions.len(), 2 * REPLAYS);
    let first = sessions.values().next().unwrap();
    assert!(!first.is_empty());
    for (path, session) in &sessions {
        assert!(session == first, "{}", path.display());
    }
}
