//! The same commands, good and slightly bad, to the reference and to ours: what is answered, and whether
//! the connection goes on. Of what kills the reference nothing is sent; where ours differs it is on
//! purpose, and stands in [`DEVIATIONS`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::chunk::{
    CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams, RotationPosition,
    TraceChunkExists,
};
use relay_proto::command::GetConfiguration;
use relay_proto::index::SendIndex;
use relay_proto::stream::{AddStream, BeginDataPending, CloseStream, DataPending, EndDataPending};
use relay_proto::{Command, CommandCode};
use tests::lab::Lab;
use tests::probe_session::ProbeSession;
use tests::producer::{CREATED, index, stream};
use tests::relay::Relay;
use wire::{ChunkId, EpochSeconds, Flagged, PacketSeqNum, SeqNum, SessionId, Text};

use super::conversation::{Outcome, Talk, payload};
use super::{raw, session};

/// Where ours is known to differ: the case, the reference's outcome, ours, and why.
const DEVIATIONS: &[(&str, &str, &str, &str)] = &[
    (
        "chunk beyond the calendar",
        "done ",
        "ended",
        "2^64-1 is a second before 1970 there, and no date here",
    ),
    (
        "chunk exists",
        "done ChunkExists(ChunkExists { code: ReturnCode(10), exists: 0 })",
        "done ChunkExists(ChunkExists { code: ReturnCode(10), exists: 1 })",
        "a chunk that is written to exists, as with 2.14.2 and later",
    ),
    (
        "configuration",
        "done ",
        "ended",
        "protocol 2.11, which was agreed on, does not have it",
    ),
    (
        "configuration with a query",
        "refused 152",
        "ended",
        "the same",
    ),
    (
        "end of nobody",
        "done Pending(false)",
        "done Pending(true)",
        "a round is about the session's own streams, whatever number is named",
    ),
    (
        "index of metadata",
        "done ",
        "ended",
        "metadata has no indexes",
    ),
    (
        "pending of metadata",
        "done Pending(true)",
        "ended",
        "metadata has no packets",
    ),
    (
        "session cut short",
        "refused 25",
        "ended",
        "who is refused a session may wait for more, and others for him",
    ),
    (
        "session of a host with a slash",
        "refused 25",
        "ended",
        "the same",
    ),
    ("session of nobody", "refused 25", "ended", "the same"),
    ("session that is hidden", "refused 25", "ended", "the same"),
    ("session without a name", "refused 25", "ended", "the same"),
    (
        "stream without a name",
        "refused 11",
        "ended",
        "a length that no name can have is malformed, as any other",
    ),
];

/// A reproducible choice: xorshift.
struct Choice(u64);

impl Choice {
    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        &all[usize::try_from(self.0 % all.len() as u64).unwrap()]
    }
}

/// What may be said before there is a session, a good one last.
const BEFORE: [&str; 9] = [
    "configuration",
    "configuration with a query",
    "session without a name",
    "session that is hidden",
    "session of a host with a slash",
    "session of nobody",
    "session cut short",
    "number 4",
    "session",
];

/// What may be said in one, good and bad.
const WITHIN: [&str; 44] = [
    "stream",
    "stream",
    "metadata stream",
    "stream with a path that climbs and climbs",
    "stream without a name",
    "stream cut short",
    "stream with more behind it",
    "streams sent",
    "index",
    "index",
    "index cut short",
    "index with more behind it",
    "index of nobody",
    "index of metadata",
    "beacon",
    "close",
    "close of nobody",
    "begin",
    "begin of nobody",
    "pending",
    "pending of nobody",
    "pending of metadata",
    "pending cut short",
    "end",
    "end of nobody",
    "quiescent",
    "quiescent of nobody",
    "chunk",
    "chunk with a bad name",
    "chunk beyond the calendar",
    "chunk cut short",
    "rotation",
    "rotation of nobody",
    "rotation to nowhere",
    "rotation cut short",
    "close chunk",
    "close chunk of nobody",
    "close chunk with a wrong end",
    "chunk exists",
    "no such chunk exists",
    "configuration",
    "configuration cut short",
    "number 12",
    "number 99",
];

/// The command of this name, for the relay whose numbers `talk` knows.
fn command(name: &str, turn: u64, talk: &Talk) -> (CommandCode, Vec<u8>) {
    let (of, is_of_nobody) = (talk.stream(name), name.ends_with("of nobody"));
    let session_id = if is_of_nobody {
        SessionId(77_777)
    } else {
        talk.session
    };
    let seq = Some(SeqNum(turn));
    let mut asked = session(&format!("differential {turn}"));
    let recording = asked.recording.as_mut().unwrap();
    match name {
        "session without a name" => asked.name = Text::from(""),
        "session that is hidden" => asked.name = Text::from(".hidden"),
        "session of a host with a slash" => asked.host = Text::from("ho/st"),
        "session of nobody" => recording.daemon = relay_proto::session::DaemonId([0; 16]),
        _ => {}
    }
    let add = |channel: &str, path: &str| {
        Command::AddStream(AddStream {
            ..stream(channel, path)
        })
    };
    let chunk = |created, name: Option<&str>| {
        let chunk = ChunkId(1);
        Command::CreateTraceChunk(CreateTraceChunk {
            chunk,
            created: EpochSeconds(created),
            name: name.map(Text::from),
        })
    };
    let rotate = |target: u64| {
        let positions = vec![RotationPosition {
            stream: of,
            at: PacketSeqNum(0),
        }];
        Command::RotateStreams(RotateStreams {
            target: Some(ChunkId(target)),
            positions,
        })
    };
    let close = |chunk: u64| {
        let closed = EpochSeconds(CREATED.0 + 9);
        let command = Flagged(Some(CloseCommand::NoOperation));
        Command::CloseTraceChunk(CloseTraceChunk {
            chunk: ChunkId(chunk),
            closed,
            command,
        })
    };
    let good = match name.split(" cut short").next().unwrap() {
        "configuration" => Command::GetConfiguration(GetConfiguration { query: 0 }),
        "configuration with a query" => Command::GetConfiguration(GetConfiguration { query: 1 }),
        "stream" | "stream with more behind it" => add(&format!("chan_{turn}"), "ust/uid/0/64-bit"),
        "metadata stream" => add("metadata", &format!("ust/uid/{turn}/64-bit")),
        "stream with a path that climbs and climbs" => add("chan_0", "a/../../b"),
        "stream without a name" => add("", "ust"),
        "streams sent" => Command::StreamsSent,
        "index" | "index of nobody" | "index of metadata" | "index with more behind it" => {
            Command::SendIndex(SendIndex {
                stream: of,
                seq,
                packet: index(turn, 10),
            })
        }
        "beacon" => Command::SendIndex(SendIndex {
            stream: of,
            seq,
            packet: tests::producer::beacon(turn),
        }),
        "close" | "close of nobody" => Command::CloseStream(CloseStream {
            stream: of,
            last: None,
        }),
        "begin" | "begin of nobody" => Command::BeginDataPending(BeginDataPending {
            session: session_id,
        }),
        "pending" | "pending of nobody" | "pending of metadata" => {
            Command::DataPending(DataPending {
                stream: of,
                last: seq,
            })
        }
        "end" | "end of nobody" => Command::EndDataPending(EndDataPending {
            session: session_id,
        }),
        "quiescent" | "quiescent of nobody" => {
            Command::QuiescentControl(relay_proto::stream::QuiescentControl { stream: of })
        }
        "first chunk" => {
            let created = EpochSeconds(CREATED.0);
            Command::CreateTraceChunk(CreateTraceChunk {
                chunk: ChunkId(0),
                created,
                name: None,
            })
        }
        "chunk" => chunk(CREATED.0 + 1, None),
        "chunk with a bad name" => chunk(CREATED.0 + 1, Some("a/b")),
        "chunk beyond the calendar" => chunk(u64::MAX, None),
        "rotation" | "rotation of nobody" => rotate(0),
        "rotation to nowhere" => rotate(9),
        "close chunk" | "close chunk with a wrong end" => close(0),
        "close chunk of nobody" => close(9),
        "chunk exists" => Command::TraceChunkExists(TraceChunkExists { chunk: ChunkId(0) }),
        "no such chunk exists" => Command::TraceChunkExists(TraceChunkExists { chunk: ChunkId(9) }),
        _ => Command::CreateSession(asked),
    };
    let mut bytes = payload(&good, talk.minor);
    if name.ends_with("cut short") {
        bytes.pop();
    } else if name.ends_with("more behind it") {
        bytes.extend_from_slice(b"more");
    } else if name.ends_with("wrong end") {
        bytes[20] = 7;
    }
    (good.code(), bytes)
}

/// Whether a relay takes connections and answers.
fn goes_on(relay: &mut Relay) -> bool {
    let is_there = TcpStream::connect(relay.control).is_ok_and(|mut socket| {
        let hello = raw(5, &[2u32.to_be_bytes(), 13u32.to_be_bytes()].concat());
        socket.write_all(&hello).is_ok() && matches!(socket.read(&mut [0; 8]), Ok(1..))
    });
    is_there && relay.process().is_running()
}

#[test]
fn both_relays_answer_alike_except_for_known_deviations() {
    const CONVERSATIONS: u64 = 1500;
    let lab = Lab::new();
    let mut reference = Relay::start_reference(&lab);
    let ours = Relay::start(&lab);
    let mut probe = ProbeSession::of(&ours);
    let mut choice = Choice(0x2545_f491_4f6c_dd1d);
    let mut seen = BTreeMap::new();
    for number in 0..CONVERSATIONS {
        let minor = *choice.of(&[11, 12, 13]);
        let mut talks = [&reference, &ours].map(|relay| Talk::with(relay, minor));
        let mut said = Vec::new();
        let mut is_open = false;
        for step in 0..16 {
            let name = match () {
                () if !is_open && step < 3 => *choice.of(&BEFORE),
                () if !is_open => "session",
                () if !said.contains(&"first chunk") => "first chunk",
                () => *choice.of(&WITHIN),
            };
            said.push(name);
            let outcomes = talks.each_mut().map(|talk| {
                let (code, payload) = command(name, number * 100 + step, talk);
                let known = code.code();
                let code_number = name
                    .strip_prefix("number ")
                    .map_or(known, |code| code.parse().unwrap());
                let code = if code_number == known {
                    code
                } else {
                    CommandCode::StartData
                };
                let outcome = talk.request(code_number, code, &payload);
                if name == "metadata stream" {
                    talk.metadata = talk.streams.pop();
                }
                outcome
            });
            is_open |= name == "session";
            let [theirs, own] = outcomes.each_ref().map(ToString::to_string);
            if theirs != own {
                let deviation = (name, theirs, own);
                seen.entry(deviation).or_insert_with(|| said.clone());
            }
            if outcomes.contains(&Outcome::Ended) {
                break;
            }
        }
        // It may die of a connection's end, too.
        assert!(
            goes_on(&mut reference),
            "the reference has died of {said:?}"
        );
    }
    probe.assert_served();
    let known: BTreeSet<_> = DEVIATIONS
        .iter()
        .map(|(name, theirs, own, _)| (*name, *theirs, *own))
        .collect();
    for ((name, theirs, own), said) in &seen {
        assert!(
            known.contains(&(*name, theirs.as_str(), own.as_str())),
            "{name}: theirs {theirs}, ours {own}, after {said:?}; all: {:#?}",
            seen
        );
    }
    assert_eq!(
        seen.len(),
        known.len(),
        "some do not deviate any more: {seen:#?}"
    );
}
