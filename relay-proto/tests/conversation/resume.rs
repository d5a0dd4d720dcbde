//! The commands of the resume extension.

use relay_proto::command::GetConfiguration;
use relay_proto::resume::{
    GetPosition, MakeResumable, OpenStream, ResumeSession, SkipPackets, StreamOpened,
    StreamPosition,
};

use super::*;

fn resumable_commands() -> [Command; 4] {
    [
        Command::MakeResumable(MakeResumable { timeout: 60 }),
        Command::OpenStream(OpenStream {
            key: 3,
            first: SeqNum(9),
            stream: match stream() {
                Command::AddStream(stream) => stream,
                _ => unreachable!(),
            },
        }),
        Command::GetPosition(GetPosition {
            stream: StreamId(7),
        }),
        Command::SkipPackets(SkipPackets {
            stream: StreamId(7),
            first: SeqNum(12),
            count: 3,
        }),
    ]
}

#[test]
fn resume_extension_is_used_after_the_relay_has_offered_it() {
    let mut pair = Pair::greeted(15);
    pair.relay.has_resume = true;
    let resume = Command::ResumeSession(ResumeSession {
        daemon: DaemonId([9; 16]),
        id: 4,
    });
    let early = pair.producer.send(&resume, &mut Vec::new());
    assert!(matches!(early, Err(ProducerError::NotNow { .. })));
    let ask = Command::GetConfiguration(GetConfiguration { query: 0 });
    assert!(pair.ask(&ask).unwrap().is_ok());
    assert!(pair.producer.has_resume());
    let replies: Vec<_> = [resume]
        .into_iter()
        .chain(resumable_commands())
        .map(|command| pair.ask(&command).unwrap())
        .collect();
    assert!(replies.iter().all(Reply::is_ok));
    assert!(matches!(
        replies[0],
        Reply::SessionCreated {
            session: SessionId(1),
            ..
        }
    ));
    let opened = StreamOpened {
        stream: Some(StreamId(7)),
        code: ReturnCode::OK,
        next: 12,
    };
    assert_eq!(replies[2], Reply::StreamOpened(opened));
    let position = StreamPosition {
        code: ReturnCode::OK,
        written: 12,
        durable: 9,
    };
    assert_eq!(replies[3], Reply::Position(position));
    assert_eq!(
        pair.relay.asked,
        [
            "resume 4 at 15",
            "resumable for 60 s",
            "open 3 from 9",
            "skip 3 from 12"
        ]
    );
}

#[test]
fn unknown_session_is_not_resumed_and_another_may_be_created() {
    let mut pair = Pair::greeted(15);
    pair.relay.has_resume = true;
    let ask = Command::GetConfiguration(GetConfiguration { query: 0 });
    pair.ask(&ask).unwrap();
    pair.relay.refuse = true;
    let resume = Command::ResumeSession(ResumeSession {
        daemon: DaemonId([9; 16]),
        id: 4,
    });
    assert!(!pair.ask(&resume).unwrap().is_ok());
    pair.relay.refuse = false;
    assert!(pair.ask(&session()).unwrap().is_ok());
}

#[test]
fn extension_commands_are_unknown_to_a_relay_without_them() {
    for command in resumable_commands() {
        let mut pair = Pair::in_session();
        let mut payload = Vec::new();
        command.encode(Minor(15), &mut payload);
        let code = command.code().code();
        let outcome = pair.deliver(&raw(code, payload.len() as u64, &payload));
        assert!(matches!(outcome, Err(ControlError::UnknownCommand { .. })));
    }
}

#[test]
fn position_of_an_unknown_stream_closes_the_connection() {
    let mut pair = Pair::in_session();
    pair.relay.has_resume = true;
    let ask = Command::GetPosition(GetPosition {
        stream: StreamId(8),
    });
    let mut payload = Vec::new();
    ask.encode(Minor(15), &mut payload);
    let outcome = pair.deliver(&raw(ask.code().code(), 8, &payload));
    assert!(matches!(outcome, Err(ControlError::Refused { .. })));
}

#[test]
fn relay_with_extensions_tells_its_clock_without_a_session() {
    let mut pair = Pair::greeted(15);
    let early = pair.producer.send(&Command::GetClock, &mut Vec::new());
    assert!(matches!(early, Err(ProducerError::NotNow { .. })));
    pair.relay.has_resume = true;
    let configuration = Command::GetConfiguration(GetConfiguration { query: 0 });
    assert!(pair.ask(&configuration).unwrap().is_ok());
    assert_eq!(pair.ask(&Command::GetClock).unwrap(), Reply::Clock(CLOCK));
}
