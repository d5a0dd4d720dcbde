//! A synthetic producer on `relay-proto`, for what LTTng does not do: packets out of order, lost or
//! cut, and malformed input of every kind.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};

use relay_proto::chunk::{
    CloseCommand, CloseTraceChunk, CreateTraceChunk, RotateStreams, RotationPosition,
    TraceChunkExists,
};
use relay_proto::command::GetConfiguration;
use relay_proto::index::SendIndex;
use relay_proto::metadata::SendMetadata;
use relay_proto::producer::Producer as StateMachine;
use relay_proto::reply::{ReturnCode, StreamAdded};
use relay_proto::session::{CreateSession, DaemonId, Recording, TraceFormat};
use relay_proto::stream::{AddStream, CloseStream, DataPending, QuiescentControl};
use relay_proto::{Command, ControlHeader, DataHeader, Minor, Reply, Version};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use wire::{
    Bits, Bytes, ChunkId, ClassId, EpochSeconds, Field, Flagged, Micros, PacketIndex, PacketSeqNum,
    SeqNum, SessionId, StreamId, Text, Timestamp,
};

use crate::relay::Relay;
use crate::{TEST_TIMEOUT, wait_until};

/// A synthetic producer: the control and data connections of one session.
#[derive(Debug)]
pub struct Producer {
    control: TcpStream,
    state_machine: StateMachine,
    received: Vec<u8>,
    /// The data connection, on which tests write packets.
    pub data: TcpStream,
    /// The id that the relay has given the session; 0 before one is created.
    pub session: SessionId,
    /// The metadata streams of the traces added by [`Self::add_trace`], in that order.
    pub metadata: Vec<StreamId>,
}

/// The reply of a command that was executed.
pub const OK: Reply = Reply::Ended(ReturnCode::OK);

/// The directory of a trace with buffers per user, below that of the session, as LTTng-UST names
/// it.
pub const TRACE_PATH: &str = "ust/uid/0/64-bit";

/// The creation time of all synthetic sessions, in seconds since 1970 (2026-11-20 21:38:31 UTC).
pub const CREATED: EpochSeconds = EpochSeconds(1_795_210_711);

/// Makes CREATE_SESSION of a live session with a timer of 100 ms. Its session daemon id is derived
/// from the name.
#[must_use]
pub fn live_session(name: &str) -> CreateSession {
    let mut daemon = [7; 16];
    // The relay tells recordings apart by session daemon and session id.
    name.bytes()
        .zip(&mut daemon)
        .for_each(|(byte, place)| *place = byte);
    CreateSession {
        name: Text::from(name),
        host: Text::from("host"),
        base_path: Text::default(),
        live_timer: Micros(100_000),
        snapshot: false,
        recording: Some(Recording {
            daemon: DaemonId(daemon),
            id: 0,
            created: CREATED,
            name_has_date: false,
            current_chunk: None,
        }),
        trace_format: TraceFormat::Ctf1,
    }
}

/// Makes CREATE_SESSION of a session that is not live, and hence not restricted as live ones are.
#[must_use]
pub fn plain_session(name: &str) -> CreateSession {
    CreateSession {
        live_timer: Micros(0),
        ..live_session(name)
    }
}

/// Makes ADD_STREAM of an unlimited tracefile in chunk 0. `metadata` as `channel` makes a metadata
/// stream.
#[must_use]
pub fn stream(channel: &str, path: &str) -> AddStream {
    AddStream {
        channel: Text::from(channel),
        path: Text::from(path),
        tracefile_size: Bytes(0),
        tracefile_count: 0,
        chunk: Some(ChunkId(0)),
    }
}

/// Returns the index of packet `number`, which has `bytes` bytes and covers ten cycles from `10 *
/// number` on.
#[must_use]
pub fn index(number: u64, bytes: u64) -> PacketIndex {
    PacketIndex {
        packet_size: Bits(bytes * 8),
        content_size: Bits(bytes * 8),
        begin: Timestamp(number * 10),
        end: Timestamp(number * 10 + 10),
        events_discarded: 0,
        class: ClassId(0),
        instance: None,
        packet_seq: Some(PacketSeqNum(number)),
    }
}

/// Returns a beacon: an index without packet, which says that the stream has no event before cycle
/// `until`.
#[must_use]
pub fn beacon(until: u64) -> PacketIndex {
    PacketIndex {
        end: Timestamp(until),
        begin: Timestamp(0),
        packet_seq: None,
        ..index(0, 0)
    }
}

/// Returns the data header and the payload of a packet: `bytes` bytes of the value `number % 251`.
#[must_use]
pub fn packet(stream: StreamId, number: u64, bytes: usize) -> Vec<u8> {
    let fill = u8::try_from(number % 251).unwrap();
    packet_of(stream, number, &vec![fill; bytes], 0)
}

/// Returns the data header and the given payload of a packet. The header announces `padding` bytes
/// after the payload.
#[must_use]
pub fn packet_of(stream: StreamId, number: u64, bytes: &[u8], padding: u32) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).unwrap();
    let mut sent = data_header(stream, number, size, padding);
    sent.extend_from_slice(bytes);
    sent
}

/// Returns the header of a packet, with sizes in bytes that need not be true.
#[must_use]
pub fn data_header(stream: StreamId, number: u64, data_size: u32, padding_size: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    DataHeader {
        circuit: 0,
        stream,
        seq: SeqNum(number),
        data_size,
        padding_size,
    }
    .write(&mut bytes);
    bytes
}

/// Returns the header of a command, with a code and a payload size in bytes that need not be true.
#[must_use]
pub fn control_header(code: u32, data_size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    ControlHeader {
        circuit: 0,
        data_size,
        code,
        code_version: 0,
    }
    .write(&mut bytes);
    bytes
}

/// Makes SEND_INDEX of packet `number`.
#[must_use]
pub fn send_index(stream: StreamId, number: u64, packet: PacketIndex) -> Command {
    let seq = Some(SeqNum(number));
    Command::SendIndex(SendIndex {
        stream,
        seq,
        packet,
    })
}

/// Opens a connection to any port of a relay; reads time out after [`TEST_TIMEOUT`].
///
/// # Panics
/// If the relay does not listen.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    with_options(TcpStream::connect(address).unwrap())
}

/// Opens a connection from a given loopback address, as another host would.
///
/// # Panics
/// If the address is not local, or the relay does not listen.
#[must_use]
pub fn connect_from(address: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let from = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&from, &SocketAddr::from((address, 0))).unwrap();
    rustix::net::connect(&from, &to).unwrap();
    with_options(TcpStream::from(from))
}

fn with_options(socket: TcpStream) -> TcpStream {
    // With Nagle's algorithm, small commands would wait for acknowledgements that the relay delays.
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

impl Producer {
    /// Connects with protocol 2.15, creates a session and its chunk 0.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn open(relay: &Relay, session: CreateSession) -> Self {
        let mut producer = Self::connect(relay, Minor(15));
        producer.create_session(session);
        assert_eq!(producer.create_chunk(0), OK);
        producer
    }

    /// Opens a session with one data stream `chan_0` at [`TRACE_PATH`], without metadata.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn open_with_stream(relay: &Relay, session: CreateSession) -> (Self, StreamId) {
        let mut producer = Self::open(relay, session);
        let stream = producer.add_stream(stream("chan_0", TRACE_PATH));
        (producer, stream)
    }

    /// Opens a session with one trace at [`TRACE_PATH`], and returns its data stream `chan_0`.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn open_with_trace(relay: &Relay, session: CreateSession) -> (Self, StreamId) {
        let mut producer = Self::open(relay, session);
        let stream = producer.add_trace(TRACE_PATH, &["chan_0"])[0];
        (producer, stream)
    }

    /// Opens both connections and negotiates protocol 2.`minor`.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn connect(relay: &Relay, minor: Minor) -> Self {
        Self::negotiate(connect(relay.control), connect(relay.data), minor)
    }

    /// Connects as [`Self::connect`] does, from a given loopback address.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn connect_from(address: Ipv4Addr, relay: &Relay, minor: Minor) -> Self {
        let connect = |to| connect_from(address, to);
        Self::negotiate(connect(relay.control), connect(relay.data), minor)
    }

    fn negotiate(control: TcpStream, data: TcpStream, minor: Minor) -> Self {
        let mut producer = Self {
            control,
            state_machine: StateMachine::default(),
            received: Vec::new(),
            data,
            session: SessionId(0),
            metadata: Vec::new(),
        };
        producer.request(Command::Version(Version {
            major: 2,
            minor: minor.0,
        }));
        if minor.has_configuration() {
            producer.request(Command::GetConfiguration(GetConfiguration { query: 0 }));
        }
        producer
    }

    /// Creates the session of this connection.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn create_session(&mut self, session: CreateSession) {
        match self.request(Command::CreateSession(session)) {
            Reply::SessionCreated {
                session,
                code: ReturnCode::OK,
                ..
            } => self.session = session,
            refused => panic!("the relay refused: {refused:?}"),
        }
    }

    /// Adds the data streams and the metadata stream of one trace, publishes them (STREAMS_SENT),
    /// and sends metadata. Returns the data streams, in the order of `channels`.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn add_trace(&mut self, path: &str, channels: &[&str]) -> Vec<StreamId> {
        let streams = channels
            .iter()
            .map(|channel| self.add_stream(stream(channel, path)))
            .collect();
        let metadata = self.add_stream(stream("metadata", path));
        self.metadata.push(metadata);
        self.request(Command::StreamsSent);
        self.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
        // SEND_METADATA has no reply: that of the next command says that it was processed.
        self.request(Command::QuiescentControl(QuiescentControl {
            stream: metadata,
        }));
        streams
    }

    /// Adds one stream and returns its id.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn add_stream(&mut self, stream: AddStream) -> StreamId {
        match self.request(Command::AddStream(stream)) {
            Reply::StreamAdded(StreamAdded {
                stream: Some(stream),
                code: ReturnCode::OK,
            }) => stream,
            refused => panic!("the relay refused: {refused:?}"),
        }
    }

    /// Creates trace chunk `id`, which becomes the current one.
    pub fn create_chunk(&mut self, id: u64) -> Reply {
        let created = EpochSeconds(CREATED.0 + id);
        let chunk = CreateTraceChunk {
            chunk: ChunkId(id),
            created,
            name: None,
        };
        self.request(Command::CreateTraceChunk(chunk))
    }

    /// Closes trace chunk `id`, with what is to be done with its files.
    pub fn close_chunk(&mut self, id: u64, command: Option<CloseCommand>) -> Reply {
        let closed = EpochSeconds(CREATED.0 + id + 1);
        let command = Flagged(command);
        self.request(Command::CloseTraceChunk(CloseTraceChunk {
            chunk: ChunkId(id),
            closed,
            command,
        }))
    }

    /// Closes trace chunk `id`, whose files the relay moves to the completed chunks.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn archive_chunk(&mut self, id: u64) {
        let reply = self.close_chunk(id, Some(CloseCommand::MoveToCompleted));
        assert!(reply.is_ok(), "the relay refused: {reply:?}");
    }

    /// Whether the relay still has trace chunk `id` (TRACE_CHUNK_EXISTS).
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn chunk_exists(&mut self, id: u64) -> bool {
        let chunk = ChunkId(id);
        match self.request(Command::TraceChunkExists(TraceChunkExists { chunk })) {
            Reply::ChunkExists(reply) => reply.exists != 0,
            refused => panic!("the relay refused: {refused:?}"),
        }
    }

    /// Rotates streams to chunk `target`, or to none. Each position is a stream and the sequence
    /// number of its first packet in the new chunk.
    pub fn rotate_streams(&mut self, target: Option<u64>, positions: &[(StreamId, u64)]) -> Reply {
        let position = |&(stream, at)| RotationPosition {
            stream,
            at: PacketSeqNum(at),
        };
        let positions = positions.iter().map(position).collect();
        self.request(Command::RotateStreams(RotateStreams {
            target: target.map(ChunkId),
            positions,
        }))
    }

    /// Sends metadata that is followed by `padding` announced bytes. The command has no reply.
    ///
    /// # Panics
    /// If the relay has closed the connection.
    pub fn send_metadata(&mut self, stream: StreamId, text: &[u8], padding: u32) {
        let mut bytes = Vec::new();
        self.state_machine
            .send_metadata(SendMetadata { stream, padding }, text, &mut bytes)
            .unwrap();
        bytes.extend_from_slice(text);
        self.control.write_all(&bytes).unwrap();
    }

    /// Sends the index of packet `number`, or a beacon, and returns the reply.
    pub fn send_index(&mut self, stream: StreamId, number: u64, packet: PacketIndex) -> Reply {
        self.request(send_index(stream, number, packet))
    }

    /// Sends packet `number` on the data connection, without its index.
    ///
    /// # Panics
    /// If the relay has closed the connection.
    pub fn send_data(&mut self, stream: StreamId, number: u64, bytes: usize) {
        self.data.write_all(&packet(stream, number, bytes)).unwrap();
    }

    /// Sends packet `number` and its index.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn send_packet(&mut self, stream: StreamId, number: u64, bytes: usize) {
        self.send_data(stream, number, bytes);
        let reply = self.send_index(stream, number, index(number, bytes as u64));
        assert_eq!(reply, OK);
    }

    /// Sends packet `number` and its index, and waits until the relay has processed both.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn record_packet(&mut self, stream: StreamId, number: u64, bytes: usize) {
        self.send_packet(stream, number, bytes);
        self.wait_while_pending(stream, number);
    }

    /// Sends packets `0..count` and then all of their indexes, without waiting for replies.
    ///
    /// # Panics
    /// If the relay has closed a connection.
    pub fn send_pipelined(&mut self, stream: StreamId, count: u64, bytes: usize) {
        let mut indexes = Vec::new();
        for number in 0..count {
            self.send_data(stream, number, bytes);
            let command = send_index(stream, number, index(number, bytes as u64));
            self.encode_command(&command, &mut indexes);
        }
        self.control.write_all(&indexes).unwrap();
    }

    /// Whether packets of a stream up to `last`, or their indexes, are still to be processed
    /// (DATA_PENDING).
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn is_pending(&mut self, stream: StreamId, last: u64) -> bool {
        let last = Some(SeqNum(last));
        match self.request(Command::DataPending(DataPending { stream, last })) {
            Reply::Pending(pending) => pending,
            refused => panic!("the relay refused: {refused:?}"),
        }
    }

    /// Waits until the packets of a stream up to `last` have been processed, with their indexes.
    pub fn wait_while_pending(&mut self, stream: StreamId, last: u64) {
        wait_until("data is pending no longer", || {
            !self.is_pending(stream, last)
        });
    }

    /// Closes a stream whose last packet is `last`; `None` if it had no packet.
    pub fn close_stream(&mut self, stream: StreamId, last: Option<u64>) -> Reply {
        self.request(Command::CloseStream(CloseStream {
            stream,
            last: last.map(SeqNum),
        }))
    }

    /// Sends a command and waits for the reply.
    ///
    /// # Panics
    /// If the relay closes the connection without a reply.
    pub fn request(&mut self, command: Command) -> Reply {
        self.try_request(command)
            .expect("the relay closed the connection")
    }

    /// Sends a command and waits for the reply, which is `None` if the relay closes the connection
    /// without one.
    ///
    /// # Panics
    /// If the reply breaks the protocol.
    pub fn try_request(&mut self, command: Command) -> Option<Reply> {
        let mut bytes = Vec::new();
        self.state_machine.send(&command, &mut bytes).unwrap();
        self.control.write_all(&bytes).ok()?;
        self.try_receive_reply()
    }

    /// Waits for the reply to the oldest command in flight.
    ///
    /// # Panics
    /// If the relay closes the connection without a reply.
    pub fn receive_reply(&mut self) -> Reply {
        self.try_receive_reply()
            .expect("the relay closed the connection")
    }

    /// Receives the next reply; `None` if the relay closes the connection without one.
    ///
    /// # Panics
    /// If the reply breaks the protocol.
    pub fn try_receive_reply(&mut self) -> Option<Reply> {
        loop {
            let mut input = &self.received[..];
            if let Some((_, reply)) = self.state_machine.receive(&mut input).unwrap() {
                self.received = input.to_vec();
                return Some(reply);
            }
            let mut buffer = [0; 4096];
            match self.control.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
            }
        }
    }

    /// Appends the bytes of a command to others that are sent together, pipelined.
    ///
    /// # Panics
    /// If the negotiated version does not have the command.
    pub fn encode_command(&mut self, command: &Command, to: &mut Vec<u8>) {
        self.state_machine.send(command, to).unwrap();
    }

    /// Whether the relay closes the control connection before it sends another byte. Blocks until
    /// either.
    pub fn is_disconnected(&mut self) -> bool {
        matches!(self.control.read(&mut [0; 4096]), Ok(0) | Err(_))
    }

    /// Returns the control connection, for bytes that no producer should send.
    #[must_use]
    pub fn control(&self) -> &TcpStream {
        &self.control
    }

    /// Closes a stream and then both connections, which ends the session.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn close_session(mut self, stream: StreamId, last: Option<u64>) {
        assert_eq!(self.close_stream(stream, last), OK);
        self.disconnect();
    }

    /// Closes both connections, data first. Returns when the relay has read everything and closed
    /// them too.
    ///
    /// # Panics
    /// If the relay does not close a connection.
    pub fn disconnect(mut self) {
        self.data.shutdown(Shutdown::Write).unwrap();
        assert!(is_closed(&mut self.data));
        self.control.shutdown(Shutdown::Write).unwrap();
        assert!(self.is_disconnected());
    }
}

/// Whether the peer closes or resets a connection before it sends another byte. Blocks until
/// either, or until reads time out: then it is not closed.
pub fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 4096]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// Reads what the peer sends until it closes the connection. A peer resets a connection that it has
/// not read to the end: then the error is the end.
pub fn read_to_close(mut socket: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    bytes
}
