//! Invariants for any bytes on a control connection. Used by the tests here and by the fuzz target.
#![allow(unreachable_pub, reason = "the fuzz target uses it too")]

use std::collections::BTreeSet;

use relay_proto::chunk::{
    CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams, RotationPosition,
    TraceChunkExists,
};
use relay_proto::command::{GetConfiguration, MAX_ROTATED_STREAMS};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::relay::{Refusal, Relay, SessionCreated};
use relay_proto::server::{Connection, MAX_COMMAND_BYTES, Progress};
use relay_proto::session::{CreateSession, DaemonId, Recording};
use relay_proto::stream::{AddStream, CloseStream, DataPending, QuiescentControl};
use relay_proto::{Command, CommandCode, ControlHeader, Minor, Reply, ReturnCode, Version};
use wire::{
    Bits, ChunkId, EpochSeconds, Field, Flagged, Micros, PacketIndex, PacketSeqNum, SeqNum,
    SessionId, StreamId, Text, Timestamp,
};

/// Sends these bytes to a relay, at once and in pieces of `cut` bytes. Checks the protocol's
/// invariants, and that the replies do not depend on the pieces. Returns the number of commands
/// that were answered.
pub fn converse(cut: u8, bytes: &[u8]) -> usize {
    let mut whole = End::default();
    whole.receive(bytes);
    let mut pieces = End::default();
    for piece in bytes.chunks(usize::from(cut).max(1)) {
        pieces.receive(piece);
    }
    assert_eq!(whole.replies, pieces.replies, "replies depend on the split");
    assert_eq!(whole.relay, pieces.relay, "the state depends on the split");
    assert_eq!(whole.failed, pieces.failed);
    whole.answered
}

/// The relay's end of a connection, and its replies so far.
#[derive(Default)]
struct End {
    connection: Connection,
    relay: Model,
    minor: Option<Minor>,
    kept: Vec<u8>,
    replies: Vec<u8>,
    answered: usize,
    failed: Option<String>,
}

impl End {
    fn receive(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(piece);
        let kept = std::mem::take(&mut self.kept);
        let mut input = &kept[..];
        while self.failed.is_none() && self.step(&mut input) {}
        self.kept = input.to_vec();
    }

    /// Makes one call. Returns whether there may be more to do.
    fn step(&mut self, input: &mut &[u8]) -> bool {
        let before = *input;
        // Inside a command all bytes are metadata text, or ignored.
        let header = if self.connection.in_command(&[]) {
            None
        } else {
            ControlHeader::read(&mut { before }).ok()
        };
        let mut reply = Vec::new();
        let progress = self.connection.advance(input, &mut self.relay, &mut reply);
        let continues = match &progress {
            Ok(Progress::NeedsMore) => {
                assert!(reply.is_empty() && before.len() == input.len());
                let max = ControlHeader::SIZE + CommandCode::RotateStreams.max_size();
                assert!(input.len() < max, "{} bytes are kept", input.len());
                false
            }
            Ok(_) => {
                assert!(input.len() < before.len(), "no byte was consumed");
                true
            }
            Err(error) => {
                self.failed = Some(error.to_string());
                false
            }
        };
        if let Some(header) = header {
            self.check_reply(&header, before, &reply, progress.is_err());
        } else {
            assert!(reply.is_empty(), "a reply in the middle of a command");
        }
        self.replies.extend_from_slice(&reply);
        continues
    }

    /// Every command but one is answered once, in a form that producers can read.
    fn check_reply(&mut self, header: &ControlHeader, sent: &[u8], reply: &[u8], failed: bool) {
        let refused = failed && reply == 11u32.to_be_bytes();
        let Ok(code) = CommandCode::from_code(header.code) else {
            return assert!(refused, "an unknown command was accepted");
        };
        if reply.is_empty() {
            return;
        }
        // The relay of these tests has no extensions.
        let lacks = |minor| minor < code.since() || code.is_extension();
        if self.minor.is_some_and(lacks) {
            return assert!(refused, "a command that the relay lacks was accepted");
        }
        assert_ne!(code, CommandCode::SendMetadata, "the command has no reply");
        assert!(header.data_size <= MAX_COMMAND_BYTES);
        let mut rest = reply;
        let minor = self.minor.unwrap_or(Minor(0));
        let read = Reply::decode(code, minor, &mut rest).expect("a valid reply");
        let read = read.expect("a complete reply");
        assert!(rest.is_empty(), "more than a reply");
        assert!(!failed || !read.is_ok() || code == CommandCode::Version);
        self.answered += 1;
        if code == CommandCode::Version {
            let theirs = sent.split_at(ControlHeader::SIZE).1;
            let theirs = Version::read(&mut { theirs }).expect("the command was answered");
            self.minor = theirs.common(Version::OURS);
            assert_eq!(self.minor.is_none(), failed);
        }
        if let Reply::SessionCreated { path, code, .. } = read {
            assert_eq!(path.is_some(), code == ReturnCode::OK && minor.has_chunks());
            assert_eq!(self.relay.minor, (code == ReturnCode::OK).then_some(minor));
        }
    }
}

/// A relay that records what it is asked for, and refuses invalid requests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    minor: Option<Minor>,
    streams: BTreeSet<u64>,
    ever: u64,
    chunks: BTreeSet<u64>,
    /// Bytes of metadata that were announced and have not arrived.
    text: Option<u64>,
    metadata: u64,
    indexes: u64,
}

impl Model {
    /// Before a session is open, the only call is the one that opens it.
    fn in_session(&self) {
        assert!(self.minor.is_some(), "no session is open");
        assert_eq!(self.text, None, "the metadata text is incomplete");
    }

    fn known(&self, stream: StreamId) -> Result<(), Refusal> {
        self.in_session();
        let refused = || Refusal::new(ReturnCode::UNKNOWN, "no such stream");
        self.streams.get(&stream.0).map(|_| ()).ok_or_else(refused)
    }
}

impl Relay for Model {
    fn clear_allowed(&self) -> bool {
        true
    }

    fn create_session(
        &mut self,
        minor: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal> {
        assert_eq!(self.minor, None, "one session for each connection");
        for text in [&session.name, &session.host, &session.base_path] {
            assert!(!text.as_bytes().contains(&0));
        }
        if session
            .recording
            .is_some_and(|recording| recording.daemon.is_nil())
        {
            return Err(Refusal::new(ReturnCode::FATAL, "no daemon"));
        }
        self.minor = Some(minor);
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/name"),
        })
    }

    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal> {
        self.in_session();
        for text in [&stream.channel, &stream.path] {
            assert!(!text.as_bytes().contains(&0));
        }
        // The protocol crate does not check names: the relay does.
        if stream.channel.is_empty() || stream.channel.as_bytes().contains(&b'/') {
            return Err(Refusal::new(ReturnCode::UNKNOWN, "not a name"));
        }
        self.ever += 1;
        self.streams.insert(self.ever);
        Ok(StreamId(self.ever))
    }

    fn streams_sent(&mut self) -> Result<(), Refusal> {
        self.in_session();
        Ok(())
    }

    fn begin_metadata(&mut self, metadata: SendMetadata, length: u64) -> Result<(), Refusal> {
        self.known(metadata.stream)?;
        assert!(0 < length && length <= MAX_COMMAND_BYTES);
        self.text = Some(length);
        Ok(())
    }

    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let left = self.text.as_mut().expect("text that was announced");
        assert!(!text.is_empty());
        *left = left
            .checked_sub(text.len() as u64)
            .expect("no more than announced");
        self.metadata += text.len() as u64;
        Ok(())
    }

    fn end_metadata(&mut self) -> Result<(), Refusal> {
        assert_eq!(self.text.take(), Some(0));
        Ok(())
    }

    fn reset_metadata(&mut self, reset: ResetMetadata) -> Result<(), Refusal> {
        self.known(reset.stream)
    }

    fn add_index(&mut self, index: SendIndex) -> Result<(), Refusal> {
        self.indexes += 1;
        self.known(index.stream)
    }

    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal> {
        self.known(close.stream)?;
        self.streams.remove(&close.stream.0);
        Ok(())
    }

    fn begin_data_pending(&mut self) {
        self.in_session();
    }

    fn data_pending(&mut self, ask: DataPending) -> Option<bool> {
        self.known(ask.stream).ok().map(|()| ask.last.is_some())
    }

    fn quiescent_control(&mut self, _: StreamId) {
        self.in_session();
    }

    fn end_data_pending(&mut self) -> bool {
        self.in_session();
        !self.streams.is_empty()
    }

    fn create_chunk(&mut self, chunk: CreateTraceChunk) -> Result<(), Refusal> {
        self.in_session();
        let refused = || Refusal::new(ReturnCode::INVALID_PROTOCOL, "it exists");
        let is_new = self.chunks.insert(chunk.chunk.0);
        is_new.then_some(()).ok_or_else(refused)
    }

    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal> {
        assert!(rotation.positions.len() <= MAX_ROTATED_STREAMS);
        let mut positions = rotation.positions.iter();
        positions.try_for_each(|position| self.known(position.stream))
    }

    fn close_chunk(&mut self, close: CloseTraceChunk) -> Result<Text, Refusal> {
        self.in_session();
        let refused = || Refusal::new(ReturnCode::NO_MEMORY, "no such chunk");
        let is_there = self.chunks.remove(&close.chunk.0);
        is_there
            .then(|| Text::from("host/name"))
            .ok_or_else(refused)
    }

    fn chunk_exists(&mut self, ask: TraceChunkExists) -> bool {
        self.in_session();
        self.chunks.contains(&ask.chunk.0)
    }
}

/// Appends a command with its header.
pub fn put(command: &Command, minor: Minor, to: &mut Vec<u8>) {
    let mut payload = Vec::new();
    command.encode(minor, &mut payload);
    put_raw(command.code(), &payload, to);
}

fn put_raw(code: CommandCode, payload: &[u8], to: &mut Vec<u8>) {
    ControlHeader::new(code, payload.len() as u64).write(to);
    to.extend_from_slice(payload);
}

/// A valid conversation with every command that this version has.
pub fn conversation(minor: u32) -> Vec<u8> {
    let theirs = Minor(minor);
    let mut bytes = Vec::new();
    put(
        &Command::Version(Version { major: 2, minor }),
        theirs,
        &mut bytes,
    );
    let agreed = theirs.min(Minor(Version::OURS.minor));
    for command in commands() {
        if command.code().since() <= agreed {
            put(&command, agreed, &mut bytes);
        }
    }
    let mut metadata = Vec::new();
    SendMetadata {
        stream: StreamId(1),
        padding: 3,
    }
    .write(&mut metadata);
    metadata.extend_from_slice(b"/* CTF 1.8 */ and more of it");
    put_raw(CommandCode::SendMetadata, &metadata, &mut bytes);
    let close = CloseStream {
        stream: StreamId(1),
        last: None,
    };
    put(&Command::CloseStream(close), agreed, &mut bytes);
    bytes
}

fn commands() -> Vec<Command> {
    let (stream, chunk) = (StreamId(1), ChunkId(0));
    let packet = PacketIndex {
        packet_size: Bits(32768),
        content_size: Bits(672),
        begin: Timestamp(1),
        end: Timestamp(2),
        packet_seq: Some(PacketSeqNum(0)),
        ..PacketIndex::default()
    };
    let recording = Recording {
        daemon: DaemonId([1; 16]),
        id: 3,
        created: EpochSeconds(1_795_210_711),
        ..Recording::default()
    };
    vec![
        Command::GetConfiguration(GetConfiguration { query: 0 }),
        Command::CreateSession(CreateSession {
            name: Text::from("name"),
            host: Text::from("host"),
            base_path: Text::from("base"),
            live_timer: Micros(1000),
            recording: Some(recording),
            ..CreateSession::default()
        }),
        Command::CreateTraceChunk(CreateTraceChunk {
            chunk,
            created: EpochSeconds(1_795_210_711),
            name: Some(Text::from("snapshot-1")),
        }),
        Command::AddStream(AddStream {
            channel: Text::from("metadata"),
            path: Text::from("ust/uid/0/64-bit"),
            chunk: Some(chunk),
            ..AddStream::default()
        }),
        Command::StreamsSent,
        Command::StartData,
        Command::SendIndex(SendIndex {
            stream,
            seq: Some(SeqNum(0)),
            packet,
        }),
        Command::BeginDataPending(relay_proto::stream::BeginDataPending {
            session: SessionId(1),
        }),
        Command::DataPending(DataPending {
            stream,
            last: Some(SeqNum(0)),
        }),
        Command::QuiescentControl(QuiescentControl { stream }),
        Command::EndDataPending(relay_proto::stream::EndDataPending {
            session: SessionId(1),
        }),
        Command::ResetMetadata(ResetMetadata { stream, version: 1 }),
        Command::RotateStreams(RotateStreams {
            target: Some(chunk),
            positions: vec![RotationPosition {
                stream,
                at: PacketSeqNum(1),
            }],
        }),
        Command::TraceChunkExists(TraceChunkExists { chunk }),
        Command::CloseTraceChunk(CloseTraceChunk {
            chunk,
            closed: EpochSeconds(1_795_210_712),
            command: Flagged(Some(CloseCommand::NoOperation)),
        }),
    ]
}
