//! A differential test: random conversations of valid and invalid commands with the reference and
//! with `relayd`, comparing the replies and whether the connection stays open. Nothing is sent that
//! crashes the reference. Intended differences are listed in [`DEVIATIONS`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::chunk::{
    CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams, RotationPosition,
    TraceChunkExists,
};
use relay_proto::command::GetConfiguration;
use relay_proto::index::SendIndex;
use relay_proto::session::DaemonId;
use relay_proto::stream::{
    BeginDataPending, CloseStream, DataPending, EndDataPending, QuiescentControl,
};
use relay_proto::{Command, CommandCode};
use tests::lab::Lab;
use tests::probe_session::ProbeSession;
use tests::producer::{CREATED, TRACE_PATH, beacon, index, stream};
use tests::relay::Relay;
use wire::{ChunkId, EpochSeconds, Flagged, PacketSeqNum, SeqNum, SessionId, StreamId, Text};

use super::conversation::{Conversation, Outcome, payload};
use super::{command_bytes, session};

/// The intended differences: the command, the outcome of the reference, that of `relayd`, and the
/// reason.
const DEVIATIONS: &[(&str, &str, &str, &str)] = &[
    (
        "chunk with a time out of range",
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
        "end of unknown session",
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
        "session truncated",
        "refused 25",
        "ended",
        "LTTng up to 2.13 waits for one more byte of the refusal, until the connection ends",
    ),
    (
        "session of a host with a slash",
        "refused 25",
        "ended",
        "the same",
    ),
    (
        "session without a daemon id",
        "refused 25",
        "ended",
        "the same",
    ),
    (
        "session with a hidden name",
        "refused 25",
        "ended",
        "the same",
    ),
    ("session without a name", "refused 25", "ended", "the same"),
    (
        "stream without a name",
        "refused 11",
        "ended",
        "a length that no name can have is malformed, as any other",
    ),
];

/// A reproducible random generator (xorshift64).
struct Choice(u64);

impl Choice {
    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        &all[usize::try_from(self.0 % all.len() as u64).unwrap()]
    }
}

/// The commands that are tried before there is a session, a valid CREATE_SESSION last.
const WITHOUT_SESSION: [&str; 9] = [
    "configuration",
    "configuration with a query",
    "session without a name",
    "session with a hidden name",
    "session of a host with a slash",
    "session without a daemon id",
    "session truncated",
    "command 4",
    "session",
];

/// The commands that are tried in a session, valid and invalid.
const IN_SESSION: [&str; 44] = [
    "stream",
    "stream",
    "metadata stream",
    "stream with a path that leads out",
    "stream without a name",
    "stream truncated",
    "stream with trailing bytes",
    "streams sent",
    "index",
    "index",
    "index truncated",
    "index with trailing bytes",
    "index of unknown stream",
    "index of metadata",
    "beacon",
    "close of stream",
    "close of unknown stream",
    "begin",
    "begin of unknown session",
    "pending",
    "pending of unknown stream",
    "pending of metadata",
    "pending truncated",
    "end",
    "end of unknown session",
    "quiescent",
    "quiescent of unknown stream",
    "chunk",
    "chunk with a bad name",
    "chunk with a time out of range",
    "chunk truncated",
    "rotation",
    "rotation of unknown stream",
    "rotation to unknown chunk",
    "rotation truncated",
    "close chunk",
    "close unknown chunk",
    "close chunk with unknown command",
    "chunk exists",
    "no such chunk exists",
    "configuration",
    "configuration truncated",
    "command 12",
    "command 99",
];

/// Ids that no session, stream or chunk has.
const UNKNOWN_SESSION: SessionId = SessionId(77_777);
const UNKNOWN_CHUNK: ChunkId = ChunkId(9);

/// Returns the code and the payload of the command of this name. The ids in it are those that the
/// relay of `conversation` has given; `turn` makes names and numbers unique.
fn command(name: &str, turn: u64, conversation: &Conversation) -> (CommandCode, Vec<u8>) {
    let valid = match name.split(" truncated").next().unwrap() {
        "configuration" => Command::GetConfiguration(GetConfiguration { query: 0 }),
        "configuration with a query" => Command::GetConfiguration(GetConfiguration { query: 1 }),
        name => None
            .or_else(|| chunk_command(name, conversation.stream(name)))
            .or_else(|| add_stream_command(name, turn))
            .or_else(|| stream_command(name, turn, conversation))
            .unwrap_or_else(|| create_session_command(name, turn)),
    };
    let mut bytes = payload(&valid, conversation.minor);
    if name.ends_with("truncated") {
        bytes.pop();
    } else if name.ends_with("trailing bytes") {
        bytes.extend_from_slice(b"more");
    } else if name.ends_with("unknown command") {
        bytes[20] = 7;
    }
    (valid.code(), bytes)
}

fn create_session_command(name: &str, turn: u64) -> Command {
    let mut created = session(&format!("differential {turn}"));
    let recording = created.recording.as_mut().unwrap();
    match name {
        "session without a name" => created.name = Text::from(""),
        "session with a hidden name" => created.name = Text::from(".hidden"),
        "session of a host with a slash" => created.host = Text::from("ho/st"),
        "session without a daemon id" => recording.daemon = DaemonId([0; 16]),
        _ => {}
    }
    Command::CreateSession(created)
}

fn add_stream_command(name: &str, turn: u64) -> Option<Command> {
    let (channel, path) = (format!("chan_{turn}"), format!("ust/uid/{turn}/64-bit"));
    Some(Command::AddStream(match name {
        "stream" | "stream with trailing bytes" => stream(&channel, TRACE_PATH),
        "metadata stream" => stream("metadata", &path),
        "stream with a path that leads out" => stream("chan_0", "a/../../b"),
        "stream without a name" => stream("", "ust"),
        _ => return None,
    }))
}

/// Commands for a stream, or for all streams of a session.
fn stream_command(name: &str, turn: u64, conversation: &Conversation) -> Option<Command> {
    let stream = conversation.stream(name);
    let session = match name.ends_with("of unknown session") {
        true => UNKNOWN_SESSION,
        false => conversation.session,
    };
    let seq = Some(SeqNum(turn));
    let send_index = |packet| {
        Command::SendIndex(SendIndex {
            stream,
            seq,
            packet,
        })
    };
    Some(match name.split(" of ").next().unwrap() {
        "streams sent" => Command::StreamsSent,
        "index" | "index with trailing bytes" => send_index(index(turn, 10)),
        "beacon" => send_index(beacon(turn)),
        "close" => Command::CloseStream(CloseStream { stream, last: None }),
        "begin" => Command::BeginDataPending(BeginDataPending { session }),
        "pending" => Command::DataPending(DataPending { stream, last: seq }),
        "end" => Command::EndDataPending(EndDataPending { session }),
        "quiescent" => Command::QuiescentControl(QuiescentControl { stream }),
        _ => return None,
    })
}

/// Commands for trace chunks. Chunk 0 is the first, chunk 1 the one to rotate to.
fn chunk_command(name: &str, stream: StreamId) -> Option<Command> {
    let create = |chunk, created, name: Option<&str>| {
        Command::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId(chunk),
            created: EpochSeconds(created),
            name: name.map(Text::from),
        })
    };
    let rotate = |target| {
        let at = PacketSeqNum(0);
        Command::RotateStreams(RotateStreams {
            target: Some(target),
            positions: vec![RotationPosition { stream, at }],
        })
    };
    let close = |chunk| {
        Command::CloseTraceChunk(CloseTraceChunk {
            chunk,
            closed: EpochSeconds(CREATED.0 + 9),
            command: Flagged(Some(CloseCommand::NoOperation)),
        })
    };
    let exists = |chunk| Command::TraceChunkExists(TraceChunkExists { chunk });
    Some(match name {
        "first chunk" => create(0, CREATED.0, None),
        "chunk" => create(1, CREATED.0 + 1, None),
        "chunk with a bad name" => create(1, CREATED.0 + 1, Some("a/b")),
        "chunk with a time out of range" => create(1, u64::MAX, None),
        "rotation" | "rotation of unknown stream" => rotate(ChunkId(0)),
        "rotation to unknown chunk" => rotate(UNKNOWN_CHUNK),
        "close chunk" | "close chunk with unknown command" => close(ChunkId(0)),
        "close unknown chunk" => close(UNKNOWN_CHUNK),
        "chunk exists" => exists(ChunkId(0)),
        "no such chunk exists" => exists(UNKNOWN_CHUNK),
        _ => return None,
    })
}

/// Whether a relay runs, accepts connections and replies.
fn is_alive(relay: &mut Relay) -> bool {
    let accepts = TcpStream::connect(relay.control).is_ok_and(|mut socket| {
        let version = command_bytes(5, &[2u32.to_be_bytes(), 13u32.to_be_bytes()].concat());
        socket.write_all(&version).is_ok() && matches!(socket.read(&mut [0; 8]), Ok(1..))
    });
    accepts && relay.process().is_running()
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
        let mut conversations =
            [&reference, &ours].map(|relay| Conversation::connect(relay, minor));
        let mut sent = Vec::new();
        let mut is_open = false;
        for step in 0..16 {
            let name = match () {
                () if !is_open && step < 3 => *choice.of(&WITHOUT_SESSION),
                () if !is_open => "session",
                () if !sent.contains(&"first chunk") => "first chunk",
                () => *choice.of(&IN_SESSION),
            };
            sent.push(name);
            let outcomes = conversations.each_mut().map(|conversation| {
                let (code, payload) = command(name, number * 100 + step, conversation);
                let known = code.code();
                let code_number = name
                    .strip_prefix("command ")
                    .map_or(known, |code| code.parse().unwrap());
                let code = if code_number == known {
                    code
                } else {
                    CommandCode::StartData
                };
                let outcome = conversation.request(code_number, code, &payload);
                if name == "metadata stream" {
                    conversation.metadata = conversation.streams.pop();
                }
                outcome
            });
            is_open |= name == "session";
            let [theirs, own] = outcomes.each_ref().map(ToString::to_string);
            if theirs != own {
                let deviation = (name, theirs, own);
                seen.entry(deviation).or_insert_with(|| sent.clone());
            }
            if outcomes.contains(&Outcome::Ended) {
                break;
            }
        }
        // The end of a connection may crash the reference, too.
        assert!(
            is_alive(&mut reference),
            "the reference has exited after {sent:?}"
        );
    }
    probe.assert_served();
    let known: BTreeSet<_> = DEVIATIONS
        .iter()
        .map(|(name, theirs, own, _)| (*name, *theirs, *own))
        .collect();
    for ((name, theirs, own), sent) in &seen {
        assert!(
            known.contains(&(*name, theirs.as_str(), own.as_str())),
            "{name}: reference {theirs}, relayd {own}, after {sent:?}; all: {seen:#?}"
        );
    }
    assert_eq!(seen.len(), known.len(), "a deviation has gone: {seen:#?}");
}
