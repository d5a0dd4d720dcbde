//! A relay on `relay-proto`'s own machine that does what a test tells it, and remembers what it heard.

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

/// What it does on one pair of connections.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Script {
    /// Hangs up both when so many indexes have come, before it has said anything of packets.
    pub(super) hang_up_after: Option<usize>,
    /// From the first index on, says nothing until so many have come.
    pub(super) silent_until: usize,
    pub(super) refuse_session: bool,
    /// So many streams are refused.
    pub(super) refuse_streams: usize,
    /// Never says that it has everything.
    pub(super) always_pending: bool,
    /// Never answers.
    pub(super) is_mute: bool,
}

/// What it heard on one pair of connections.
#[derive(Debug, Default)]
pub(super) struct Heard {
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

pub(super) type Connections = Arc<Mutex<Vec<Arc<Mutex<Heard>>>>>;

/// A running one. One pair of connections for each script; then it is gone.
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
        let heard = Arc::clone(&connections);
        let mut scripts: VecDeque<Script> = scripts.iter().copied().collect();
        tokio::spawn(async move {
            while let Some(script) = scripts.pop_front() {
                let (control, _) = control.accept().await.unwrap();
                let (data, _) = data.accept().await.unwrap();
                let state = Heard {
                    script,
                    ..Heard::default()
                };
                let state = Arc::new(Mutex::new(state));
                heard.lock().unwrap().push(Arc::clone(&state));
                tokio::spawn(serve(control, data, state));
            }
        });
        Self { url, connections }
    }

    /// What was heard on a pair of connections.
    pub(super) fn heard(&self, place: usize) -> Arc<Mutex<Heard>> {
        Arc::clone(&self.connections.lock().unwrap()[place])
    }
}

async fn serve(mut control: TcpStream, mut data: TcpStream, state: Arc<Mutex<Heard>>) {
    let mut ears = Ears::default();
    loop {
        tokio::select! {
            read = control.read_buf(&mut ears.commands) => if !matches!(read, Ok(1..)) { return },
            read = data.read_buf(&mut ears.packets) => if !matches!(read, Ok(1..)) { return },
        }
        match ears.hear(&mut state.lock().unwrap()) {
            Then::Listen => continue,
            Then::HangUp => return,
            Then::Answer => {}
        }
        if control.write_all(&ears.replies).await.is_err() {
            return;
        }
        ears.replies.clear();
    }
}

/// What has come on a pair of connections and is not understood yet.
#[derive(Default)]
struct Ears {
    connection: Connection,
    decoder: DataDecoder,
    commands: BytesMut,
    packets: BytesMut,
    packet: Option<(DataHeader, Vec<u8>)>,
    replies: BytesMut,
}

/// What it does about it.
enum Then {
    Listen,
    Answer,
    HangUp,
}

impl Ears {
    fn hear(&mut self, heard: &mut Heard) -> Then {
        let mut input = &self.commands[..];
        let (connection, replies) = (&mut self.connection, &mut self.replies);
        while let Ok(progress) = connection.advance(&mut input, heard, replies) {
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
                        heard.packets.insert((header.stream, header.seq.0), packet);
                    }
                }
            }
        }
        let left = input.len();
        self.packets.advance(self.packets.len() - left);
        let (script, indexes) = (heard.script, heard.indexes.len());
        if script.hang_up_after.is_some_and(|most| indexes >= most) {
            Then::HangUp
        } else if script.is_mute || (1..script.silent_until).contains(&indexes) {
            Then::Listen
        } else {
            Then::Answer
        }
    }
}

impl Heard {
    fn say(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    /// Name of a stream's file.
    pub(super) fn channel(&self, stream: StreamId) -> String {
        self.added[usize::try_from(stream.0).unwrap() - 1]
            .channel
            .to_string()
    }

    /// The packets of a stream, by the name of its file.
    pub(super) fn packets_of(&self, channel: &str) -> Vec<(Vec<u8>, u32)> {
        let of = |((stream, _), packet): (&(StreamId, u64), &(Vec<u8>, u32))| {
            (self.channel(*stream) == channel).then(|| packet.clone())
        };
        self.packets.iter().filter_map(of).collect()
    }
}

impl Relay for Heard {
    fn clear_allowed(&self) -> bool {
        true
    }

    fn create_session(
        &mut self,
        _: Minor,
        session: CreateSession,
    ) -> Result<SessionCreated, Refusal> {
        self.say("create session");
        if self.script.refuse_session {
            return Err(Refusal::new(ReturnCode::FATAL, "as told"));
        }
        self.session = Some(session);
        Ok(SessionCreated {
            session: SessionId(1),
            path: Text::from("host/session"),
        })
    }

    fn add_stream(&mut self, stream: AddStream) -> Result<StreamId, Refusal> {
        self.say(format!("add {}/{}", stream.path, stream.channel));
        if self.script.refuse_streams > 0 {
            self.script.refuse_streams -= 1;
            return Err(Refusal::new(ReturnCode::UNKNOWN, "as told"));
        }
        self.added.push(stream);
        Ok(StreamId(self.added.len() as u64))
    }

    fn streams_sent(&mut self) -> Result<(), Refusal> {
        self.say("streams sent");
        Ok(())
    }

    fn begin_metadata(&mut self, metadata: SendMetadata, _: u64) -> Result<(), Refusal> {
        self.say("metadata");
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

    fn index(&mut self, index: SendIndex) -> Result<(), Refusal> {
        let channel = self.channel(index.stream);
        if index.packet.is_beacon() {
            self.say(format!("beacon {channel} {}", index.packet.end.0));
            return Ok(());
        }
        let SeqNum(seq) = index.seq.unwrap();
        self.say(format!("index {channel} {seq}"));
        let known = self.indexes.insert((index.stream, seq), index);
        assert_eq!(known, None);
        Ok(())
    }

    fn close_stream(&mut self, close: CloseStream) -> Result<(), Refusal> {
        let channel = self.channel(close.stream);
        let last = close.last.map_or(-1, |SeqNum(last)| last.cast_signed());
        self.say(format!("close {channel} {last}"));
        Ok(())
    }

    fn begin_data_pending(&mut self) {
        self.say("begin round");
    }

    fn data_pending(&mut self, ask: DataPending) -> Option<bool> {
        let has = |seq| {
            let key = (ask.stream, seq);
            self.packets.contains_key(&key) && self.indexes.contains_key(&key)
        };
        let is_there = ask.last.is_none_or(|SeqNum(last)| (0..=last).all(has));
        Some(self.script.always_pending || !is_there)
    }

    fn quiescent(&mut self, _: StreamId) {}

    fn end_data_pending(&mut self) -> bool {
        self.say("end round");
        false
    }

    fn create_chunk(&mut self, _: CreateTraceChunk) -> Result<(), Refusal> {
        self.say("create chunk");
        Ok(())
    }

    fn rotate_streams(&mut self, rotation: RotateStreams) -> Result<(), Refusal> {
        assert_eq!(rotation.target, None);
        self.say(format!("leave chunk: {}", rotation.positions.len()));
        Ok(())
    }

    fn close_chunk(&mut self, _: CloseTraceChunk) -> Result<Text, Refusal> {
        self.say("close chunk");
        Ok(Text::from("host/session"))
    }

    fn chunk_exists(&mut self, _: TraceChunkExists) -> bool {
        panic!("never asked")
    }
}
