//! A scripted relay on the state machine of `relay-proto`, which records what it received.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BytesMut};
use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk, RotateStreams, TraceChunkExists};
use relay_proto::index::SendIndex;
use relay_proto::metadata::{ResetMetadata, SendMetadata};
use relay_proto::relay::{Refusal, Relay, SessionCreated};
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
    /// The relay closes both connections after this number of indexes, before it confirms any packet.
    pub(super) hang_up_after: Option<usize>,
    /// The relay delays all replies after the first index until it has received this number of indexes.
    pub(super) silent_until: usize,
    pub(super) refuse_session: bool,
    /// Number of streams that are refused.
    pub(super) refuse_streams: usize,
    /// The relay never confirms packets.
    pub(super) always_pending: bool,
    /// The relay never replies.
    pub(super) is_mute: bool,
}

/// The commands and packets that the relay has received on one pair of connections.
#[derive(Debug, Default)]
pub(super) struct ReceivedSession {
    script: Script,
    /// Commands, in order.
    pub(super) log: Vec<String>,
    pub(super) session: Option<CreateSession>,
    pub(super) added: Vec<AddStream>,
    pub(super) metadata: BTreeMap<StreamId, Vec<u8>>,
    /// Packets with their padding.
    pub(super) packets: BTreeMap<(StreamId, u64), (Vec<u8>, u32)>,
    pub(super) indexes: BTreeMap<(StreamId, u64), SendIndex>,
    describing: StreamId,
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
                let state = ReceivedSession {
                    script,
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
        if script.hang_up_after.is_some_and(|max| indexes >= max) {
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
        let has = |seq| {
            let key = (ask.stream, seq);
            self.packets.contains_key(&key) && self.indexes.contains_key(&key)
        };
        let has_all = ask.last.is_none_or(|SeqNum(last)| (0..=last).all(has));
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
}
