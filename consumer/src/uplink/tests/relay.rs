//! A scripted relay on the state machine of `relay-proto`, which records what it received.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BytesMut};
use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::relay::{Refusal, Relay, SessionCreated};
use relay_proto::resume::{MakeResumable, OpenStream, ResumeSession, SkipPackets};
use relay_proto::server::{Connection, Progress};
use relay_proto::session::CreateSession;
use relay_proto::stream::{AddStream, CloseStream, DataPending};
use relay_proto::{DataDecoder, DataEvent, DataHeader, Minor, ReturnCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::{SeqNum, SessionId, StreamId, Text};

/// The behaviour of the relay on one pair of connections.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Script {
    /// The relay closes both connections after this number of indexes, before it confirms any
    /// packet.
    pub(super) hang_up_after: Option<usize>,
    /// The relay delays all replies after the first index until it has received this number of
    /// indexes.
    pub(super) silent_until: usize,
    pub(super) refuse_session: bool,
    /// Number of streams that are refused.
    pub(super) refuse_streams: usize,
    /// The relay never confirms packets.
    pub(super) always_pending: bool,
    /// The relay never replies.
    pub(super) is_mute: bool,
    /// The relay offers the resume extension.
    pub(super) has_resume: bool,
    /// The relay has forgotten the session of the connection before.
    pub(super) has_forgotten: bool,
    /// The relay closes both connections when the chunk is to be closed.
    pub(super) hang_up_at_end: bool,
    /// Number of the last packets of each stream that are never durable.
    pub(super) never_durable: u64,
}

/// The commands and packets that the relay has received on one pair of connections.
#[derive(Debug, Default)]
pub(super) struct ReceivedSession {
    script: Script,
    /// Commands that the relay has received, in order.
    pub(super) log: Vec<String>,
    pub(super) session: Option<CreateSession>,
    pub(super) added: Vec<AddStream>,
    pub(super) metadata: BTreeMap<StreamId, Vec<u8>>,
    /// Packets with their padding.
    pub(super) packets: BTreeMap<(StreamId, u64), (Vec<u8>, u32)>,
    pub(super) indexes: BTreeMap<(StreamId, u64), SendIndex>,
    describing: StreamId,
    skipped: BTreeMap<StreamId, BTreeSet<u64>>,
    /// The producer's keys of the streams in `added`.
    keys: Vec<u64>,
    /// What was received on the pair of connections before.
    before: Option<Arc<Mutex<Self>>>,
}

pub(super) type Connections = Arc<Mutex<Vec<Arc<Mutex<ReceivedSession>>>>>;

/// A running relay: it serves one pair of connections for each script, then stops listening.
pub(super) struct Scripted {
    pub(super) url: String,
    pub(super) connections: Connections,
}

impl Scripted {
    pub(super) async fn start(scripts: &[Script]) -> Self {
        let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let data = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let url = format!("net://127.0.0.1:{}:{}", port(&control), port(&data));
        let connections = Connections::default();
        let received = Arc::clone(&connections);
        let mut scripts: VecDeque<Script> = scripts.iter().copied().collect();
        tokio::spawn(async move {
            while let Some(script) = scripts.pop_front() {
                let (control, _) = control.accept().await.unwrap();
                let (data, _) = data.accept().await.unwrap();
                let before = received.lock().unwrap().last().cloned();
                let state = ReceivedSession {
                    script,
                    before,
                    ..ReceivedSession::default()
                };
                let state = Arc::new(Mutex::new(state));
                received.lock().unwrap().push(Arc::clone(&state));
                tokio::spawn(serve(control, data, state));
            }
        });
        Self { url, connections }
    }

    /// Returns what was received on a pair of connections.
    pub(super) fn received(&self, place: usize) -> Arc<Mutex<ReceivedSession>> {
        Arc::clone(&self.connections.lock().unwrap()[place])
    }
}

async fn serve(mut control: TcpStream, mut data: TcpStream, state: Arc<Mutex<ReceivedSession>>) {
    let mut connection = RelayConnection::default();
    loop {
        tokio::select! {
            read = control.read_buf(&mut connection.commands) => if !matches!(read, Ok(1..)) { return },
            read = data.read_buf(&mut connection.packets) => if !matches!(read, Ok(1..)) { return },
        }
        match connection.handle_input(&mut state.lock().unwrap()) {
            NextAction::ReadMore => continue,
            NextAction::Close => return,
            NextAction::SendReplies => {}
        }
        if control.write_all(&connection.replies).await.is_err() {
            return;
        }
        connection.replies.clear();
    }
}

/// A pair of connections: bytes that are not decoded yet, and replies that are not written yet.
#[derive(Default)]
struct RelayConnection {
    connection: Connection,
    decoder: DataDecoder,
    commands: BytesMut,
    packets: BytesMut,
    packet: Option<(DataHeader, Vec<u8>)>,
    replies: BytesMut,
}

/// The reaction of the relay after it has handled input.
enum NextAction {
    ReadMore,
    SendReplies,
    Close,
}

impl RelayConnection {
    fn handle_input(&mut self, received: &mut ReceivedSession) -> NextAction {
        let mut input = &self.commands[..];
        let (connection, replies) = (&mut self.connection, &mut self.replies);
        while let Ok(progress) = connection.advance(&mut input, received, replies) {
            if matches!(progress, Progress::NeedsMore) {
                break;
            }
        }
        let left = input.len();
        self.commands.advance(self.commands.len() - left);
        let mut input = &self.packets[..];
        while let Some(event) = self.decoder.next(&mut input) {
            match event {
                DataEvent::Begin(header) => self.packet = Some((header, Vec::new())),
                DataEvent::Payload { bytes, last } => {
                    let (header, payload) = self.packet.as_mut().unwrap();
                    payload.extend_from_slice(bytes);
                    if last {
                        let packet = (std::mem::take(payload), header.padding_size);
                        received
                            .packets
                            .insert((header.stream, header.seq.0), packet);
                    }
                }
            }
        }
        let left = input.len();
        self.packets.advance(self.packets.len() - left);
        let (script, indexes) = (received.script, received.indexes.len());
        let is_closing = received.log.iter().any(|line| line == "close chunk");
        if script.hang_up_after.is_some_and(|max| indexes >= max)
            || (script.hang_up_at_end && is_closing)
        {
            NextAction::Close
        } else if script.is_mute || (1..script.silent_until).contains(&indexes) {
            NextAction::ReadMore
        } else {
            NextAction::SendReplies
        }
    }
}

impl ReceivedSession {
    fn record(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    /// Returns the name of a stream's file.
    pub(super) fn channel(&self, stream: StreamId) -> String {
        self.added[usize::try_from(stream.0).unwrap() - 1]
            .channel
            .to_string()
    }

    /// Returns the number of packets of a stream, from its first, that are complete with their
    /// indexes.
    fn next(&self, stream: StreamId) -> u64 {
        let has = |seq| {
            let key = (stream, seq);
            let is_skipped = self
                .skipped
                .get(&stream)
                .is_some_and(|of| of.contains(&seq));
            is_skipped || (self.packets.contains_key(&key) && self.indexes.contains_key(&key))
        };
        (0..).find(|seq| !has(*seq)).unwrap()
    }

    /// Returns the packets of the stream with this file name.
    pub(super) fn packets_of(&self, channel: &str) -> Vec<(Vec<u8>, u32)> {
        let of = |((stream, _), packet): (&(StreamId, u64), &(Vec<u8>, u32))| {
            (self.channel(*stream) == channel).then(|| packet.clone())
        };
        self.packets.iter().filter_map(of).collect()
    }
}

impl Relay for ReceivedSession {
    fn clear_allowed(&self) -> bool {
        true
    }

    fn create_session(
        &mut self,
        _: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal> {
        self.record("create session");
        if self.script.refuse_session {
            return Err(Refusal::new(ReturnCode::FATAL, "scripted"));
        }
        self.session = Some(session);
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/session"),
        })
    }

    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal> {
        self.record(format!("add {}/{}", stream.path, stream.channel));
        if self.script.refuse_streams > 0 {
            self.script.refuse_streams -= 1;
            return Err(Refusal::new(ReturnCode::UNKNOWN, "scripted"));
        }
        self.added.push(stream);
        Ok(StreamId(self.added.len() as u64))
    }

    fn streams_sent(&mut self) -> Result<(), Refusal> {
        self.record("streams sent");
        Ok(())
    }

    fn begin_metadata(&mut self, metadata: SendMetadata, _: u64) -> Result<(), Refusal> {
        self.record("metadata");
        self.describing = metadata.stream;
        Ok(())
    }

    fn metadata_text(&mut self, text: &[u8]) -> Result<(), Refusal> {
        let metadata = self.metadata.entry(self.describing).or_default();
        metadata.extend_from_slice(text);
        Ok(())
    }

    fn end_metadata(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    fn reset_metadata(&mut self, _: ResetMetadata) -> Result<(), Refusal> {
        panic!("never sent")
    }

    fn add_index(&mut self, index: SendIndex) -> Result<(), Refusal> {
        let channel = self.channel(index.stream);
        if index.packet.is_beacon() {
            self.record(format!("beacon {channel} {}", index.packet.end.0));
            return Ok(());
        }
        let SeqNum(seq) = index.seq.unwrap();
        self.record(format!("index {channel} {seq}"));
        let known = self.indexes.insert((index.stream, seq), index);
        assert_eq!(known, None);
        Ok(())
    }

    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal> {
        let channel = self.channel(close.stream);
        let last = close.last.map_or(-1, |SeqNum(last)| last.cast_signed());
        self.record(format!("close {channel} {last}"));
        Ok(())
    }

    fn begin_data_pending(&mut self) {
        self.record("begin round");
    }

    fn data_pending(&mut self, ask: DataPending) -> Option<bool> {
        let next = self.next(ask.stream);
        let has_all = ask.last.is_none_or(|SeqNum(last)| last < next);
        Some(self.script.always_pending || !has_all)
    }

    fn quiescent_control(&mut self, _: StreamId) {}

    fn end_data_pending(&mut self) -> bool {
        self.record("end round");
        false
    }

    fn create_chunk(&mut self, _: CreateTraceChunk) -> Result<(), Refusal> {
        self.record("create chunk");
        Ok(())
    }

    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal> {
        assert_eq!(rotation.target, None);
        self.record(format!("leave chunk: {}", rotation.positions.len()));
        Ok(())
    }

    fn close_chunk(&mut self, _: CloseTraceChunk) -> Result<Text, Refusal> {
        self.record("close chunk");
        Ok(Text::from("host/session"))
    }

    fn chunk_exists(&mut self, _: TraceChunkExists) -> bool {
        panic!("never asked")
    }

    fn has_resume(&self) -> bool {
        self.script.has_resume
    }

    fn make_resumable(&mut self, _: MakeResumable) -> Result<(), Refusal> {
        self.record("make resumable");
        Ok(())
    }

    fn resume_session(&mut self, _: Minor, _: ResumeSession) -> Result<SessionCreated, Refusal> {
        self.record("resume session");
        let before = self.before.clone().filter(|_| !self.script.has_forgotten);
        let Some(before) = before else {
            return Err(Refusal::new(ReturnCode::UNKNOWN, "scripted"));
        };
        let before = before.lock().unwrap();
        (self.added, self.keys) = (before.added.clone(), before.keys.clone());
        self.metadata = before.metadata.clone();
        let is_whole = |(stream, seq): &(StreamId, u64)| *seq < before.next(*stream);
        self.packets = before.packets.clone();
        self.packets.retain(|key, _| is_whole(key));
        self.indexes = before.indexes.clone();
        self.indexes.retain(|key, _| is_whole(key));
        self.session = before.session.clone();
        self.skipped = before.skipped.clone();
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/session"),
        })
    }

    fn open_stream(&mut self, open: OpenStream) -> Result<(Option<StreamId>, u64), Refusal> {
        let mut known = self.added.iter().zip(&self.keys);
        let is_it = |(stream, key): (&AddStream, &u64)| *stream == open.stream && *key == open.key;
        let index = known.position(is_it).unwrap_or_else(|| {
            self.added.push(open.stream.clone());
            self.keys.push(open.key);
            self.added.len() - 1
        });
        let stream = StreamId(index as u64 + 1);
        let next = if open.stream.is_metadata() {
            self.metadata.get(&stream).map_or(0, Vec::len) as u64
        } else {
            self.next(stream)
        };
        self.record(format!("open {} at {next}", open.stream.channel));
        Ok((Some(stream), next))
    }

    fn position(&mut self, stream: StreamId) -> Option<(u64, u64)> {
        let next = self.next(stream);
        Some((next, next.saturating_sub(self.script.never_durable)))
    }

    fn skip_packets(&mut self, skip: SkipPackets) -> Result<(), Refusal> {
        let channel = self.channel(skip.stream);
        let first = skip.first.0;
        self.record(format!("skip {channel} {first}..{}", first + skip.count));
        self.skipped
            .entry(skip.stream)
            .or_default()
            .extend(first..first + skip.count);
        Ok(())
    }
}
