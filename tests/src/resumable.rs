//! A synthetic producer of resumable sessions, which has its whole recording in memory and loses
//! its connections wherever a test wants: it resumes the session until the relay has everything, as
//! `consumer` does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ctf::model::Uuid;
use ctf::write::{
    Appended, EventDeclaration, EventRecord, FieldType, MetadataText, PacketSize, StreamWriter,
    TraceDeclaration, Value, Width,
};
use relay_proto::chunk::{CloseTraceChunk, CreateTraceChunk};
use relay_proto::command::GetConfiguration;
use relay_proto::metadata::SendMetadata;
use relay_proto::producer::Producer as StateMachine;
use relay_proto::reply::ReturnCode;
use relay_proto::resume::{
    GetPosition, MakeResumable, OpenStream, ResumeSession, StreamOpened, StreamPosition,
};
use relay_proto::session::CreateSession;
use relay_proto::stream::{AddStream, CloseStream};
use relay_proto::{Command, Reply, Version};
use wire::{Bytes, ChunkId, Flagged, PacketIndex, SeqNum, StreamId, Timestamp};

use crate::TEST_TIMEOUT;
use crate::producer::{CREATED, OK, TRACE_PATH, connect, packet_of, send_index, stream};

/// What a producer sends in one session.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The command that creates the session.
    pub session: CreateSession,
    /// Time for which the relay is to keep the session without a connection, in seconds.
    pub timeout: u32,
    /// The pieces of the metadata.
    pub metadata: Vec<Vec<u8>>,
    /// The data streams, in the order in which they are added.
    pub streams: Vec<RecordedStream>,
}

/// A stream of a recording.
#[derive(Debug, Clone)]
pub struct RecordedStream {
    /// ADD_STREAM of the stream.
    pub add: AddStream,
    /// Number of the first packet.
    pub first: u64,
    /// The packets and their indexes.
    pub packets: Vec<(Vec<u8>, PacketIndex)>,
}

/// The producer of a recording: what it remembers when its connections are lost.
#[derive(Debug)]
pub struct ResumableProducer {
    recording: Recording,
    /// Whether the relay has acknowledged all packets and metadata as durable.
    is_durable: bool,
    /// Number of connections so far.
    pub connections: usize,
    /// Number of times that the relay had the session when the producer connected.
    pub resumed: usize,
    /// Bytes sent so far, on all connections. Of the questions for one position only the last is
    /// counted: their number depends on the speed of the relay.
    pub sent: usize,
    /// Whether connections that break stay open, as those of a host that has lost its power.
    pub leaves_open: bool,
    left_open: Vec<Connections>,
}

/// Both connections of a producer, which break when a number of bytes has been sent.
#[derive(Debug)]
struct Connections {
    control: TcpStream,
    data: TcpStream,
    state_machine: StateMachine,
    received: Vec<u8>,
    /// Bytes that can still be sent on both together.
    left: usize,
}

/// A stream as it is open on one connection.
#[derive(Debug, Clone, Copy)]
struct OpenedStream {
    id: StreamId,
    next: u64,
}

impl Recording {
    /// A recording with a trace of these data streams, made up of bytes.
    #[must_use]
    pub fn new(session: CreateSession, streams: Vec<RecordedStream>) -> Self {
        Self {
            session,
            timeout: 600,
            metadata: vec![b"/* CTF 1.8 */\n".to_vec(), b"trace {};\n".to_vec()],
            streams,
        }
    }
}

/// Returns a recording of `streams` streams that every reader of CTF can print: packet after
/// packet, in turn, has an event whose field `number` counts from 0.
///
/// # Panics
/// If the packets cannot be written.
#[must_use]
pub fn printable(
    session: CreateSession,
    streams: u32,
    packets: u64,
    limits: (u64, u64),
) -> Recording {
    let (size, files) = limits;
    let uuid = Uuid(*b"resumable-trace!");
    let mut metadata = MetadataText::new(&TraceDeclaration::new(uuid, "resumed"));
    let class = metadata.stream(0).unwrap();
    let declaration = EventDeclaration {
        fields: vec![("number".to_owned(), FieldType::Unsigned(Width::Bits64))],
        ..EventDeclaration::new(0, "event")
    };
    let event = metadata.event(&class, &declaration).unwrap();
    let stream = |id: u32| {
        let mut writer = StreamWriter::new(&class, id.into(), id, PacketSize::new(4096, 4096));
        let packets = (0..packets).map(|packet| {
            let number = packet * u64::from(streams) + u64::from(id);
            let time = Timestamp(1000 * number);
            writer.open(time).unwrap();
            let record = EventRecord {
                time,
                process: 1,
                thread: 1,
                values: &[Value::Unsigned(number)],
            };
            assert_eq!(writer.append(&event, &record), Ok(Appended::Written));
            let closed = writer.close(Timestamp(time.0 + 1)).unwrap();
            (closed.bytes.to_vec(), closed.index)
        });
        RecordedStream {
            packets: packets.collect(),
            ..RecordedStream::made_up(&format!("chan_{id}"), 0, 0, size, files)
        }
    };
    let streams = (0..streams).map(stream).collect();
    Recording {
        metadata: vec![metadata.as_str().as_bytes().to_vec()],
        ..Recording::new(session, streams)
    }
}

impl RecordedStream {
    /// A stream of `count` packets of different lengths, up to `bytes` bytes. Limits its tracefiles
    /// to `size` bytes and `files` in number; 0: no limit.
    #[must_use]
    pub fn made_up(channel: &str, count: u64, bytes: usize, size: u64, files: u64) -> Self {
        let packets = (0..count).map(|number| {
            let len = bytes - usize::try_from(number % 3).unwrap() * (bytes / 4);
            let fill = u8::try_from(number % 251).unwrap();
            (vec![fill; len], crate::producer::index(number, len as u64))
        });
        Self {
            add: AddStream {
                tracefile_size: Bytes(size),
                tracefile_count: files,
                ..stream(channel, TRACE_PATH)
            },
            first: 0,
            packets: packets.collect(),
        }
    }

    fn end(&self) -> u64 {
        self.first + self.packets.len() as u64
    }
}

impl ResumableProducer {
    /// A producer that has not connected.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        Self {
            recording,
            is_durable: false,
            connections: 0,
            resumed: 0,
            sent: 0,
            leaves_open: false,
            left_open: Vec::new(),
        }
    }

    /// Connects and sends what the relay does not have, until the session is closed or `bytes`
    /// bytes are sent: then both connections are closed at once.
    ///
    /// # Errors
    /// If the connections are lost before.
    ///
    /// # Panics
    /// If the relay breaks the protocol.
    pub fn try_send(&mut self, relay: [SocketAddr; 3], bytes: usize) -> io::Result<()> {
        self.connections += 1;
        let [control, data, _] = relay;
        let lost = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        TcpStream::connect(control).map_err(lost)?;
        let mut connections = Connections {
            control: connect(control),
            data: connect(data),
            state_machine: StateMachine::default(),
            received: Vec::new(),
            left: bytes,
        };
        let sent = self.send_on(&mut connections);
        self.sent += bytes - connections.left;
        if self.leaves_open && sent.is_err() {
            self.left_open.push(connections);
        }
        sent
    }

    fn send_on(&mut self, connections: &mut Connections) -> io::Result<()> {
        connections.negotiate()?;
        if self.open_session(connections)? {
            self.send_all(connections)?;
        }
        Ok(())
    }

    /// Sends as [`try_send`](Self::try_send) does, again and again, without the limit.
    ///
    /// # Panics
    /// If that does not succeed after many attempts.
    pub fn send(&mut self, relay: [SocketAddr; 3]) {
        let mut errors = Vec::new();
        while let Err(error) = self.try_send(relay, usize::MAX) {
            errors.push(error);
            assert!(
                errors.len() < 100,
                "the session is not complete after 100 connections: {errors:?}"
            );
        }
    }

    /// Resumes the session, or creates it. Returns false if the relay has completed it.
    fn open_session(&mut self, relay: &mut Connections) -> io::Result<bool> {
        let recording = &self.recording;
        let own = recording.session.recording.as_ref().unwrap();
        let resume = ResumeSession {
            daemon: own.daemon,
            id: own.id,
        };
        match relay.request(Command::ResumeSession(resume))? {
            Reply::SessionCreated {
                code: ReturnCode::OK,
                ..
            } => self.resumed += 1,
            Reply::SessionCreated {
                code: ReturnCode::UNKNOWN,
                ..
            } if self.is_durable => return Ok(false),
            Reply::SessionCreated {
                code: ReturnCode::UNKNOWN,
                ..
            } => {
                let create = Command::CreateSession(recording.session.clone());
                relay.expect_ok(create)?;
                let timeout = recording.timeout;
                relay.expect_ok(Command::MakeResumable(MakeResumable { timeout }))?;
            }
            other => panic!("{other:?}"),
        }
        relay.expect_ok(Command::CreateTraceChunk(CreateTraceChunk {
            chunk: ChunkId(0),
            created: CREATED,
            name: None,
        }))?;
        Ok(true)
    }

    fn send_all(&mut self, relay: &mut Connections) -> io::Result<()> {
        let recording = self.recording.clone();
        let metadata = relay.open(0, 0, &stream("metadata", TRACE_PATH))?;
        let mut streams = Vec::new();
        for (key, stream) in recording.streams.iter().enumerate() {
            streams.push(relay.open(key as u64, stream.first, &stream.add)?);
        }
        relay.expect_ok(Command::StreamsSent)?;
        if let Some(metadata) = metadata {
            relay.send_metadata(metadata, &recording.metadata)?;
        }
        let longest = recording.streams.iter().map(|stream| stream.packets.len());
        for number in 0..longest.max().unwrap_or(0) {
            for (stream, opened) in recording.streams.iter().zip(&streams) {
                let seq = stream.first + number as u64;
                let opened = opened.filter(|opened| opened.next <= seq);
                let Some((opened, (bytes, index))) = opened.zip(stream.packets.get(number)) else {
                    continue;
                };
                relay.send_data(&packet_of(opened.id, seq, bytes, 0))?;
                relay.expect_ok(send_index(opened.id, seq, *index))?;
            }
        }
        for (stream, opened) in recording.streams.iter().zip(&streams) {
            if let Some(opened) = opened {
                relay.wait_for_position(opened.id, stream.end())?;
            }
        }
        let all: usize = recording.metadata.iter().map(Vec::len).sum();
        if let Some(metadata) = metadata {
            relay.wait_for_position(metadata.id, all as u64)?;
        }
        self.is_durable = true;
        relay.expect_ok(Command::CloseTraceChunk(CloseTraceChunk {
            chunk: ChunkId(0),
            closed: CREATED,
            command: Flagged(None),
        }))?;
        for (stream, opened) in recording.streams.iter().zip(&streams) {
            if let Some(opened) = opened {
                let last = stream.end().checked_sub(1).map(SeqNum);
                relay.close(opened.id, last)?;
            }
        }
        metadata.map_or(Ok(()), |metadata| relay.close(metadata.id, None))
    }
}

impl Connections {
    fn negotiate(&mut self) -> io::Result<()> {
        self.expect_ok(Command::Version(Version {
            major: 2,
            minor: 15,
        }))?;
        self.expect_ok(Command::GetConfiguration(GetConfiguration { query: 0 }))
    }

    /// Sends bytes on one of the connections, or breaks both at the limit.
    fn write(&mut self, is_data: bool, bytes: &[u8]) -> io::Result<()> {
        let (sent, rest) = bytes.split_at(bytes.len().min(self.left));
        self.left -= sent.len();
        let socket = if is_data {
            &mut self.data
        } else {
            &mut self.control
        };
        socket.write_all(sent)?;
        if rest.is_empty() {
            return Ok(());
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    fn send_data(&mut self, packet: &[u8]) -> io::Result<()> {
        self.write(true, packet)
    }

    fn request(&mut self, command: Command) -> io::Result<Reply> {
        let mut bytes = Vec::new();
        self.state_machine.send(&command, &mut bytes).unwrap();
        self.write(false, &bytes)?;
        loop {
            let mut input = &self.received[..];
            if let Some((_, reply)) = self.state_machine.receive(&mut input).unwrap() {
                self.received = input.to_vec();
                return Ok(reply);
            }
            let mut buffer = [0; 4096];
            let read = self.control.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// Sends a command. If it is refused, which closes the connection, that counts as a lost
    /// connection: a command of an earlier connection may have overtaken it.
    fn expect_ok(&mut self, command: Command) -> io::Result<()> {
        let what = format!("{:?}", command.code());
        let reply = self.request(command)?;
        if reply.is_ok() {
            return Ok(());
        }
        Err(io::Error::other(format!("{what}: {reply:?}")))
    }

    /// Opens a stream. None: it is closed.
    fn open(&mut self, key: u64, first: u64, add: &AddStream) -> io::Result<Option<OpenedStream>> {
        let first = SeqNum(first);
        let stream = add.clone();
        let reply = self.request(Command::OpenStream(OpenStream { key, first, stream }))?;
        match reply {
            Reply::StreamOpened(StreamOpened {
                stream,
                code: ReturnCode::OK,
                next,
            }) => Ok(stream.map(|id| OpenedStream { id, next })),
            refused => Err(io::Error::other(format!("OPEN_STREAM: {refused:?}"))),
        }
    }

    /// Sends the pieces that the relay does not have.
    fn send_metadata(&mut self, opened: OpenedStream, pieces: &[Vec<u8>]) -> io::Result<()> {
        let mut at = 0;
        for piece in pieces {
            if at >= opened.next {
                let mut bytes = Vec::new();
                let stream = opened.id;
                let metadata = SendMetadata { stream, padding: 0 };
                self.state_machine
                    .send_metadata(metadata, piece, &mut bytes)
                    .unwrap();
                bytes.extend_from_slice(piece);
                self.write(false, &bytes)?;
            }
            at += piece.len() as u64;
            assert!(
                at <= opened.next || at - piece.len() as u64 >= opened.next,
                "the relay has a part of a piece"
            );
        }
        Ok(())
    }

    fn wait_for_position(&mut self, stream: StreamId, end: u64) -> io::Result<()> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let left = self.left;
            match self.request(Command::GetPosition(GetPosition { stream }))? {
                Reply::Position(StreamPosition {
                    code: ReturnCode::OK,
                    written,
                    durable,
                }) => {
                    assert!(durable <= written && written <= end, "{durable} {written}");
                    if durable == end {
                        return Ok(());
                    }
                    assert!(
                        Instant::now() < deadline,
                        "timed out: {stream:?} of {end} packets or bytes is at {written}, {durable} durable"
                    );
                    self.left = left;
                    thread::sleep(Duration::from_millis(1));
                }
                refused => return Err(io::Error::other(format!("GET_POSITION: {refused:?}"))),
            }
        }
    }

    fn close(&mut self, stream: StreamId, last: Option<SeqNum>) -> io::Result<()> {
        let reply = self.request(Command::CloseStream(CloseStream { stream, last }))?;
        assert_eq!(reply, OK);
        Ok(())
    }
}
