//! Both ends of a control connection, joined in memory: each end keeps to the protocol however
//! bytes are split, when commands are sent too early, and when messages are malformed.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod resume;

use proptest::prelude::*;
use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use relay_proto::error::ControlError;
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::producer::{Producer, ProducerError};
use relay_proto::relay::{Refusal, Relay, SessionCreated};
use relay_proto::reply::RelayClock;
use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use relay_proto::server::{Connection, Progress};
use relay_proto::session::{CreateSession, DaemonId, Recording, TraceFormat};
use relay_proto::stream::{AddStream, CloseStream, DataPending};
use relay_proto::{Command, CommandCode, ControlHeader, Minor, Reply, ReturnCode, Version};
use wire::{
    Bits, ChunkId, EpochSeconds, Field, Message, Micros, PacketIndex, SeqNum, SessionId, StreamId,
    Text, Timestamp,
};

/// A relay that records what it is asked for, and refuses on request.
#[derive(Default)]
struct Recorder {
    asked: Vec<String>,
    metadata: Vec<u8>,
    refuse: bool,
    has_resume: bool,
}

impl Recorder {
    fn record(&mut self, what: String) -> Result<(), Refusal> {
        self.asked.push(what);
        if self.refuse {
            Err(Refusal::new(ReturnCode::UNKNOWN, "by request"))
        } else {
            Ok(())
        }
    }
}

/// The clocks that the relay tells.
const CLOCK: RelayClock = RelayClock {
    code: ReturnCode::OK,
    time: 1 << 60,
    monotonic: 1 << 40,
    boot: [7; 16],
};

impl Relay for Recorder {
    fn clear_allowed(&self) -> bool {
        true
    }
    fn create_session(
        &mut self,
        minor: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal> {
        self.record(format!("session {} at {}", session.name, minor.0))?;
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/name"),
        })
    }
    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal> {
        self.record(format!("stream {}", stream.channel))?;
        Ok(StreamId(7))
    }
    fn streams_sent(&mut self) -> Result<(), Refusal> {
        self.record("sent".to_owned())
    }
    fn begin_metadata(&mut self, metadata: SendMetadata, length: u64) -> Result<(), Refusal> {
        self.record(format!("metadata {length}+{}", metadata.padding))
    }
    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal> {
        self.metadata.extend_from_slice(text);
        Ok(())
    }
    fn end_metadata(&mut self) -> Result<(), Refusal> {
        self.record("metadata end".to_owned())
    }
    fn reset_metadata(&mut self, reset: ResetMetadata) -> Result<(), Refusal> {
        self.record(format!("reset {}", reset.version))
    }
    fn add_index(&mut self, index: SendIndex) -> Result<(), Refusal> {
        self.record(format!("index {:?}", index.seq))
    }
    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal> {
        self.record(format!("close {}", close.stream))
    }
    fn begin_data_pending(&mut self) {
        self.asked.push("begin".to_owned());
    }
    fn data_pending(&mut self, _: DataPending) -> Option<bool> {
        self.record("pending".to_owned()).ok().map(|()| false)
    }
    fn quiescent_control(&mut self, _: StreamId) {
        self.asked.push("quiescent".to_owned());
    }
    fn end_data_pending(&mut self) -> bool {
        self.asked.push("end".to_owned());
        false
    }
    fn create_chunk(&mut self, chunk: CreateTraceChunk) -> Result<(), Refusal> {
        self.record(format!("create {}", chunk.chunk))
    }
    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal> {
        self.record(format!("rotate {}", rotation.positions.len()))
    }
    fn close_chunk(&mut self, close: CloseTraceChunk) -> Result<Text, Refusal> {
        self.record(format!("close {}", close.chunk))?;
        Ok(Text::from("host/name"))
    }
    fn chunk_exists(&mut self, _: TraceChunkExists) -> bool {
        false
    }
    fn clock(&self) -> RelayClock {
        CLOCK
    }
    fn has_resume(&self) -> bool {
        self.has_resume
    }
    fn make_resumable(&mut self, request: MakeResumable) -> Result<(), Refusal> {
        self.record(format!("resumable for {} s", request.timeout))
    }
    fn resume_session(
        &mut self,
        minor: Minor,
        request: ResumeSession,
    ) -> Result<SessionCreated, Refusal> {
        self.record(format!("resume {} at {}", request.id, minor.0))?;
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/name"),
        })
    }
    fn open_stream(&mut self, request: OpenStream) -> Result<(Option<StreamId>, u64), Refusal> {
        self.record(format!("open {} from {}", request.key, request.first.0))?;
        Ok((Some(StreamId(7)), 12))
    }
    fn position(&mut self, stream: StreamId) -> Option<(u64, u64)> {
        (stream == StreamId(7)).then_some((12, 9))
    }
    fn skip_packets(&mut self, request: SkipPackets) -> Result<(), Refusal> {
        self.record(format!("skip {} from {}", request.count, request.first.0))
    }
}

fn session() -> Command {
    Command::CreateSession(CreateSession {
        name: Text::from("name"),
        host: Text::from("host"),
        live_timer: Micros(1000),
        recording: Some(Recording {
            daemon: DaemonId([1; 16]),
            id: 3,
            created: EpochSeconds(1_795_210_711),
            ..Recording::default()
        }),
        trace_format: TraceFormat::Ctf2,
        ..CreateSession::default()
    })
}

fn stream() -> Command {
    Command::AddStream(AddStream {
        channel: Text::from("chan_0"),
        path: Text::from("ust/uid/0/64-bit"),
        chunk: Some(ChunkId(0)),
        ..AddStream::default()
    })
}

fn index(seq: u64) -> Command {
    Command::SendIndex(SendIndex {
        stream: StreamId(7),
        seq: Some(SeqNum(seq)),
        packet: PacketIndex {
            packet_size: Bits(4096),
            content_size: Bits(4096),
            begin: Timestamp(1),
            end: Timestamp(2),
            ..PacketIndex::default()
        },
    })
}

/// The two ends, and the bytes in flight between them.
#[derive(Default)]
struct Pair {
    producer: Producer,
    connection: Connection,
    relay: Recorder,
    replies: Vec<u8>,
    kept: Vec<u8>,
}

impl Pair {
    /// A pair that has agreed on `minor`.
    fn greeted(minor: u32) -> Self {
        let mut pair = Self::default();
        let mut hello = Vec::new();
        let version = Command::Version(Version { major: 2, minor });
        pair.producer.send(&version, &mut hello).unwrap();
        pair.deliver(&hello).unwrap();
        // The relay replies its own version, not the lower one that both agree on.
        let reply = (CommandCode::Version, Reply::Version(Version::OURS));
        assert_eq!(pair.replies(), [reply]);
        pair
    }

    /// A pair with a session open.
    fn in_session() -> Self {
        let mut pair = Self::greeted(15);
        pair.ask(&session()).unwrap();
        pair.relay.asked.clear();
        pair
    }

    /// Delivers bytes to the relay's end. Returns the commands that it refused.
    fn deliver(&mut self, bytes: &[u8]) -> Result<Vec<(CommandCode, Refusal)>, ControlError> {
        self.kept.extend_from_slice(bytes);
        let mut refused = Vec::new();
        let kept = std::mem::take(&mut self.kept);
        let mut input = &kept[..];
        loop {
            match self
                .connection
                .advance(&mut input, &mut self.relay, &mut self.replies)?
            {
                Progress::Advanced => {}
                Progress::Refused(command, refusal) => refused.push((command, refusal)),
                Progress::NeedsMore => break,
            }
        }
        self.kept = input.to_vec();
        Ok(refused)
    }

    /// Takes the replies that have arrived at the producer's end.
    fn replies(&mut self) -> Vec<(CommandCode, Reply)> {
        let bytes = std::mem::take(&mut self.replies);
        let mut input = &bytes[..];
        let mut replies = Vec::new();
        while let Some(reply) = self.producer.receive(&mut input).unwrap() {
            replies.push(reply);
        }
        assert!(input.is_empty());
        replies
    }

    fn ask(&mut self, command: &Command) -> Result<Reply, ControlError> {
        let mut bytes = Vec::new();
        self.producer.send(command, &mut bytes).unwrap();
        self.deliver(&bytes)?;
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1);
        Ok(replies.remove(0).1)
    }
}

fn raw(code: u32, data_size: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ControlHeader {
        circuit: 0,
        data_size,
        code,
        code_version: 0,
    }
    .write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

proptest! {
    #[test]
    fn pipelined_commands_are_answered_in_order_however_they_are_split(
        minor in 11..=15u32,
        cuts in prop::collection::vec(1..40usize, 1..20),
    ) {
        let mut pair = Pair::greeted(minor);
        let mut sent = Vec::new();
        for command in [session(), stream(), Command::StreamsSent] {
            pair.producer.send(&command, &mut sent).unwrap();
        }
        let text = b"/* CTF 1.8 */ and more than one piece of it";
        let metadata = SendMetadata { stream: StreamId(7), padding: 5 };
        pair.producer.send_metadata(metadata, text, &mut sent).unwrap();
        sent.extend_from_slice(text);
        pair.producer.send(&index(0), &mut sent).unwrap();
        pair.producer.send(&index(1), &mut sent).unwrap();
        let mut rest = &sent[..];
        for &cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pair.deliver(piece).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let order: Vec<_> = pair.replies().into_iter().map(|(command, reply)| {
            assert!(reply.is_ok());
            command
        }).collect();
        prop_assert_eq!(order, [
            CommandCode::CreateSession,
            CommandCode::AddStream,
            CommandCode::StreamsSent,
            CommandCode::SendIndex,
            CommandCode::SendIndex,
        ]);
        prop_assert_eq!(&pair.relay.metadata, text);
        prop_assert_eq!(&pair.relay.asked, &[
            &format!("session name at {minor}"), "stream chan_0", "sent", "metadata 43+5",
            "metadata end", "index Some(SeqNum(0))", "index Some(SeqNum(1))",
        ]);
        prop_assert!(!pair.connection.in_command(&pair.kept));
    }

    #[test]
    fn random_bytes_close_the_connection_or_wait_for_more(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut pair = Pair::in_session();
        let _ = pair.deliver(&bytes);
        let mut fresh = Pair::default();
        let _ = fresh.deliver(&bytes);
    }

    #[test]
    fn server_survives_random_payloads_of_real_commands(
        code in prop_oneof![0..30u32, 0x4558_0000..0x4558_0007u32],
        payload in prop::collection::vec(any::<u8>(), 0..400),
        greeted in any::<bool>(),
    ) {
        let mut pair = if greeted { Pair::in_session() } else { Pair::default() };
        pair.relay.has_resume = true;
        let _ = pair.deliver(&raw(code, payload.len() as u64, &payload));
    }

    #[test]
    fn encoded_commands_decode_to_the_same_values(
        name in "[a-z]{1,20}", host in "[a-z]{1,20}", base in "[a-z/]{0,20}",
        live: u32, snapshot: bool, id: u64, chunk in prop::option::of(any::<u64>()),
        minor in 11..=15u32,
    ) {
        let sent = CreateSession {
            name: Text::from(name.as_str()),
            host: Text::from(host.as_str()),
            base_path: Text::from(base.as_str()),
            live_timer: Micros(live),
            snapshot,
            recording: Some(Recording {
                daemon: DaemonId([9; 16]),
                id,
                created: EpochSeconds(id),
                name_has_date: snapshot,
                current_chunk: chunk.map(ChunkId),
            }),
            trace_format: if minor < 15 { TraceFormat::Ctf1 } else { TraceFormat::Ctf2 },
        };
        let mut bytes = Vec::new();
        sent.encode(Minor(minor), &mut bytes);
        prop_assert_eq!(CreateSession::decode(Minor(minor), &bytes), Ok(sent));
    }
}

#[test]
fn version_must_come_first_and_once() {
    let mut pair = Pair::default();
    let early = raw(CommandCode::StreamsSent.code(), 0, &[]);
    let outcome = pair.deliver(&early);
    assert!(matches!(outcome, Err(ControlError::OutOfPlace { .. })));
    let mut pair = Pair::greeted(13);
    let again = raw(CommandCode::Version.code(), 8, &[0, 0, 0, 2, 0, 0, 0, 13]);
    let outcome = pair.deliver(&again);
    assert!(matches!(outcome, Err(ControlError::OutOfPlace { .. })));
}

#[test]
fn another_major_version_is_answered_and_the_connection_closed() {
    let mut pair = Pair::default();
    let hello = raw(CommandCode::Version.code(), 8, &[0, 0, 0, 3, 0, 0, 0, 0]);
    let outcome = pair.deliver(&hello);
    assert!(matches!(outcome, Err(ControlError::Incompatible { .. })));
    assert_eq!(pair.replies, [0, 0, 0, 2, 0, 0, 0, 15]);
}

#[test]
fn unknown_command_is_answered_11_and_the_connection_closed() {
    for code in [0, 4, 12, 14, 15, 23, 10_000, u32::MAX] {
        let mut pair = Pair::in_session();
        let error = pair.deliver(&raw(code, 0, &[])).unwrap_err();
        assert!(matches!(error, ControlError::UnknownCommand { code: c } if c == code));
        assert_eq!(pair.replies, [0, 0, 0, 11]);
    }
    let mut old = Pair::greeted(10);
    old.ask(&session()).unwrap();
    let chunk = raw(CommandCode::CreateTraceChunk.code(), 20, &[0; 20]);
    let outcome = old.deliver(&chunk);
    assert!(matches!(
        outcome,
        Err(ControlError::UnknownCommand { code: 19 })
    ));
}

#[test]
fn second_session_on_a_connection_is_rejected() {
    let mut pair = Pair::in_session();
    let mut bytes = Vec::new();
    pair.producer.send(&session(), &mut bytes).unwrap();
    let outcome = pair.deliver(&bytes);
    assert!(matches!(outcome, Err(ControlError::OutOfPlace { .. })));
    assert_eq!(pair.relay.asked, Vec::<String>::new());
}

#[test]
fn commands_that_need_a_session_are_rejected_before_one_is_created() {
    for code in CommandCode::ALL {
        let mut pair = Pair::greeted(15);
        pair.relay.has_resume = true;
        // A session that is resumed would be recorded as asked for.
        pair.relay.refuse = true;
        let outcome = pair.deliver(&raw(code.code(), 4376, &[0; 4376]));
        pair.relay
            .asked
            .retain(|asked| !asked.starts_with("resume"));
        let allowed = [
            CommandCode::CreateSession,
            CommandCode::ResumeSession,
            CommandCode::GetConfiguration,
            CommandCode::GetClock,
            CommandCode::StartData,
        ];
        assert_eq!(
            !matches!(outcome, Err(ControlError::OutOfPlace { .. })),
            allowed.contains(code),
            "{code:?}: {outcome:?}"
        );
        assert_eq!(pair.relay.asked, Vec::<String>::new(), "{code:?}");
    }
}

#[test]
fn refused_stream_leaves_the_connection_open() {
    let mut pair = Pair::in_session();
    pair.relay.refuse = true;
    assert!(!pair.ask(&stream()).unwrap().is_ok());
    pair.relay.refuse = false;
    assert!(pair.ask(&stream()).unwrap().is_ok());
}

#[test]
fn malformed_session_is_answered_25_and_malformed_stream_11() {
    let mut pair = Pair::greeted(15);
    let outcome = pair.deliver(&raw(2, 10, &[0; 10]));
    assert!(matches!(outcome, Err(ControlError::Malformed { .. })));
    assert_eq!(
        pair.replies,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25, 0, 0, 0, 0]
    );
    let mut pair = Pair::in_session();
    let outcome = pair.deliver(&raw(1, 10, &[0; 10]));
    assert!(matches!(outcome, Err(ControlError::Malformed { .. })));
    assert_eq!(
        pair.replies,
        [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 11]
    );
}

/// A producer may wait for a path after a refusal that has none.
#[test]
fn refused_session_is_answered_and_the_connection_closed() {
    let mut pair = Pair::greeted(15);
    pair.relay.refuse = true;
    let mut bytes = Vec::new();
    pair.producer.send(&session(), &mut bytes).unwrap();
    let outcome = pair.deliver(&bytes);
    assert!(matches!(outcome, Err(ControlError::Refused { .. })));
    assert_eq!(pair.replies.len(), 16);
}

#[test]
fn all_other_refusals_are_answered_and_the_connection_closed() {
    let refused = [
        (Command::StreamsSent, &[0, 0, 0, 11][..]),
        (index(0), &[0, 0, 0, 11]),
        (
            Command::CloseTraceChunk(CloseTraceChunk {
                chunk: ChunkId(0),
                closed: EpochSeconds(0),
                command: wire::Flagged(None),
            }),
            &[0, 0, 0, 11, 0, 0, 0, 0],
        ),
        (
            Command::DataPending(DataPending {
                stream: StreamId(1),
                last: None,
            }),
            &[0xff, 0xff, 0xff, 0xff],
        ),
    ];
    for (command, answer) in refused {
        let mut pair = Pair::in_session();
        pair.relay.refuse = true;
        let mut bytes = Vec::new();
        pair.producer.send(&command, &mut bytes).unwrap();
        assert!(
            matches!(pair.deliver(&bytes), Err(ControlError::Refused { .. })),
            "{command:?}"
        );
        assert_eq!(pair.replies, answer, "{command:?}");
    }
}

#[test]
fn unknown_fields_at_the_end_of_a_command_are_ignored() {
    let mut pair = Pair::in_session();
    let mut bytes = raw(CommandCode::StreamsSent.code(), 100, &[0xaa; 100]);
    bytes.extend_from_slice(&raw(CommandCode::BeginDataPending.code(), 9, &[0; 9]));
    for byte in bytes {
        pair.deliver(&[byte]).unwrap();
    }
    assert_eq!(pair.relay.asked, ["sent", "begin"]);
    assert_eq!(pair.replies, [0, 0, 0, 10, 0, 0, 0, 10]);
}

#[test]
fn too_long_commands_are_rejected_before_memory_is_allocated() {
    let limit = 128 << 20;
    for (code, size, refused) in [
        (CommandCode::Version, limit + 1, true),
        (CommandCode::SendMetadata, limit, false),
        (CommandCode::SendMetadata, u64::MAX, true),
        (CommandCode::RotateStreams, 2 << 20, true),
    ] {
        let mut pair = if code == CommandCode::Version {
            Pair::default()
        } else {
            Pair::in_session()
        };
        let outcome = pair.deliver(&raw(code.code(), size, &[]));
        assert_eq!(outcome.is_err(), refused, "{code:?} of {size}: {outcome:?}");
    }
}

#[test]
fn metadata_without_text_is_rejected() {
    let mut pair = Pair::in_session();
    let empty = raw(CommandCode::SendMetadata.code(), 12, &[0; 12]);
    let outcome = pair.deliver(&empty);
    assert!(matches!(outcome, Err(ControlError::OutOfPlace { .. })));
    assert!(pair.replies.is_empty());
}

#[test]
fn producer_sends_no_command_that_the_agreed_version_lacks() {
    let mut producer = Producer::default();
    let mut bytes = Vec::new();
    assert!(matches!(
        producer.send(&session(), &mut bytes),
        Err(ProducerError::NotNow { .. })
    ));
    producer
        .send(&Command::Version(Version::OURS), &mut bytes)
        .unwrap();
    let mut reply = &[0, 0, 0, 2, 0, 0, 0, 10][..];
    producer.receive(&mut reply).unwrap().unwrap();
    assert_eq!(producer.minor(), Some(Minor(10)));
    let chunk = CreateTraceChunk {
        chunk: ChunkId(0),
        created: EpochSeconds(0),
        name: None,
    };
    let sent = producer.send(&Command::CreateTraceChunk(chunk), &mut bytes);
    assert!(matches!(sent, Err(ProducerError::NotNow { .. })));
    producer.send(&session(), &mut bytes).unwrap();
}

#[test]
fn producer_fails_at_bytes_without_a_command() {
    let mut producer = Producer::default();
    let unasked = producer.receive(&mut &[0, 0, 0, 10][..]);
    assert_eq!(unasked, Err(ProducerError::Unasked { bytes: 4 }));
    let mut bytes = Vec::new();
    producer
        .send(&Command::Version(Version::OURS), &mut bytes)
        .unwrap();
    let http = producer.receive(&mut &b"HTTP/1.1 400 Bad Request"[..]);
    assert_eq!(http, Err(ProducerError::Http));
    let other = producer.receive(&mut &[0, 0, 0, 3, 0, 0, 0, 0][..]);
    assert!(matches!(other, Err(ProducerError::Incompatible { .. })));
}
