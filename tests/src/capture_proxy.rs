//! Captures the conversation of a real producer with a real relay, and replays it to another relay:
//! the same bytes must get the same replies and leave the same files.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use relay_proto::{CommandCode, ControlHeader, DataDecoder, DataEvent, DataHeader};
use wire::Field;

use crate::producer::{connect, is_closed};
use crate::relay::Relay;
use crate::wait_until;

/// A proxy between a producer and a relay, which captures the bytes of both directions.
#[derive(Debug)]
pub struct CaptureProxy {
    control: SocketAddr,
    data: SocketAddr,
    events: Arc<Mutex<Vec<Event>>>,
}

/// Bytes on a connection, or its beginning or end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The connection, numbered from 0 in the order of opening.
    pub connection: usize,
    /// The kind of event, with its bytes.
    pub kind: EventKind,
}

/// A kind of event on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The producer connected to this port.
    Opened(Port),
    /// The producer sent these bytes.
    Sent(Vec<u8>),
    /// The relay sent these bytes.
    Answered(Vec<u8>),
    /// The producer closed the connection.
    Closed,
}

/// One of the two ports for producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The control port, for commands.
    Control,
    /// The data port, for packets.
    Data,
}

impl CaptureProxy {
    /// Starts a proxy in front of `relay`. With `minor`, the proxy lowers both VERSION messages to
    /// 2.`minor`, so that a new producer speaks an old protocol.
    ///
    /// # Panics
    /// If the proxy cannot listen.
    #[must_use]
    pub fn before(relay: &Relay, minor: Option<u8>) -> Self {
        let events = Arc::new(Mutex::new(Vec::new()));
        let listen = |port, relay| listen(port, relay, minor, &events);
        let (control, data) = (
            listen(Port::Control, relay.control),
            listen(Port::Data, relay.data),
        );
        Self {
            control,
            data,
            events,
        }
    }

    /// Returns the control and the data address of the proxy.
    #[must_use]
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.control, self.data)
    }

    /// Waits until every connection is closed and returns the capture.
    ///
    /// # Panics
    /// If a connection stays open.
    #[must_use]
    pub fn capture(self) -> Capture {
        let is_over = || {
            let events = self.events.lock().unwrap();
            let count =
                |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
            count(|kind| matches!(kind, EventKind::Opened(_)))
                == count(|kind| *kind == EventKind::Closed)
        };
        wait_until("the producer has closed all connections", is_over);
        Capture {
            events: self.events.lock().unwrap().clone(),
        }
    }
}

fn listen(
    port: Port,
    relay: SocketAddr,
    minor: Option<u8>,
    events: &Arc<Mutex<Vec<Event>>>,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let minor = minor.filter(|_| port == Port::Control);
    let events = Arc::clone(events);
    thread::spawn(move || {
        for producer in listener.incoming() {
            let Ok(producer) = producer else { return };
            let Ok(relay) = TcpStream::connect(relay) else {
                return;
            };
            let connection = {
                let mut events = events.lock().unwrap();
                let opened = |event: &&Event| matches!(event.kind, EventKind::Opened(_));
                let connection = events.iter().filter(opened).count();
                events.push(Event {
                    connection,
                    kind: EventKind::Opened(port),
                });
                connection
            };
            let two =
                |one: &TcpStream, other: &TcpStream| [one, other].map(|s| s.try_clone().unwrap());
            let (sent, answered) = (two(&producer, &relay), two(&relay, &producer));
            let listener = Forwarder {
                connection,
                minor,
                events: Arc::clone(&events),
            };
            let other = listener.clone();
            thread::spawn(move || listener.forward_sent(sent));
            thread::spawn(move || other.forward_answered(answered));
        }
    });
    address
}

/// Forwards the bytes of one connection and captures them.
#[derive(Clone)]
struct Forwarder {
    connection: usize,
    minor: Option<u8>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Forwarder {
    fn record(&self, kind: EventKind) {
        self.events.lock().unwrap().push(Event {
            connection: self.connection,
            kind,
        });
    }

    /// Forwards from the producer to the relay.
    fn forward_sent(&self, [from, to]: [TcpStream; 2]) {
        let mut minor = self.minor;
        forward(from, to, |bytes| {
            if let Some(minor) = minor.take() {
                // VERSION: the header of 24 bytes, major, minor. A version below 256 is the last
                // byte.
                bytes[31] = bytes[31].min(minor);
            }
            self.record(EventKind::Sent(bytes.to_vec()));
        });
        self.record(EventKind::Closed);
    }

    /// Forwards from the relay to the producer.
    fn forward_answered(&self, [from, to]: [TcpStream; 2]) {
        let mut minor = self.minor;
        forward(from, to, |bytes| {
            self.record(EventKind::Answered(bytes.to_vec()));
            if let Some(minor) = minor.take() {
                // The reply to VERSION: major, minor.
                bytes[7] = bytes[7].min(minor);
            }
        });
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, mut inspect: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        inspect(&mut buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A captured conversation of a producer with a relay.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The events of all connections, in order.
    pub events: Vec<Event>,
}

/// A packet of a data connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// The data header, as the producer has sent it.
    pub header: DataHeader,
    /// The payload, as the producer has sent it.
    pub payload: Vec<u8>,
}

impl Capture {
    /// Loads a capture from disk: `timeline.csv` and, for each connection and direction, a file of
    /// raw bytes (`control.c2s`, `control.s2c`, `data.c2s`). Viewer connections are left out: their
    /// replies depend on timing.
    ///
    /// # Panics
    /// If a file cannot be read.
    #[must_use]
    pub fn load(directory: &Path) -> Self {
        let mut connections = Vec::new();
        let mut events = Vec::new();
        let timeline = std::fs::read_to_string(directory.join("timeline.csv")).unwrap();
        for line in timeline.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [_, name, event, offset, length] = fields[..] else {
                panic!("{line}")
            };
            if name.starts_with("live") {
                continue;
            }
            let bytes = |direction: &str| {
                let file = std::fs::read(directory.join(format!("{name}.{direction}"))).unwrap();
                let offset: usize = offset.parse().unwrap();
                file[offset..offset + length.parse::<usize>().unwrap()].to_vec()
            };
            let kind = match event {
                "open" => {
                    connections.push(name.to_owned());
                    EventKind::Opened(if name.starts_with("control") {
                        Port::Control
                    } else {
                        Port::Data
                    })
                }
                "c2s" => EventKind::Sent(bytes("c2s")),
                "s2c" => EventKind::Answered(bytes("s2c")),
                "c2s-fin" => EventKind::Closed,
                _ => continue,
            };
            let connection = connections.iter().position(|known| known == name).unwrap();
            events.push(Event { connection, kind });
        }
        Self { events }
    }

    /// Sends the captured bytes to another relay in the same order, and waits until it has
    /// processed them.
    ///
    /// # Panics
    /// If a reply differs.
    pub fn replay(&self, relay: &Relay) {
        let mut sockets = HashMap::new();
        let mut last_sent: &[u8] = &[];
        for Event { connection, kind } in &self.events {
            match kind {
                EventKind::Opened(port) => {
                    let address = match port {
                        Port::Control => relay.control,
                        Port::Data => relay.data,
                    };
                    sockets.insert(*connection, Socket::connect(address));
                }
                EventKind::Sent(bytes) => {
                    sockets[connection].send(bytes);
                    last_sent = bytes;
                }
                EventKind::Answered(want) => {
                    let socket = sockets.get_mut(connection).unwrap();
                    let mut got = socket.receive(want.len());
                    while is_still_pending(last_sent, want, &got) {
                        socket.send(last_sent);
                        got = socket.receive(want.len());
                    }
                    if socket.received == want.len() && got.starts_with(VERSION) {
                        got[..8].copy_from_slice(&want[..8]);
                    }
                    if is_any_of(last_sent, &[CommandCode::GetConfiguration]) {
                        // Relays of LTTng, which may have been recorded, do not offer the resume
                        // extension.
                        got[4] = (got[4] & 0x7f) | (want[4] & 0x80);
                    }
                    if !is_done_early(last_sent, want, &got) {
                        assert_eq!(&got, want, "reply to {last_sent:x?}");
                    }
                }
                EventKind::Closed => sockets[connection]
                    .stream
                    .shutdown(Shutdown::Write)
                    .unwrap(),
            }
        }
        // A producer may have kept connections open until it ended.
        for socket in sockets.values() {
            let _ = socket.stream.shutdown(Shutdown::Write);
        }
        assert!(
            sockets
                .values_mut()
                .all(|socket| is_closed(&mut socket.stream))
        );
    }

    /// Takes the packets of the first data connection out of the capture, in order. Other events
    /// stay.
    ///
    /// # Panics
    /// If there is no data connection.
    #[must_use]
    pub fn take_packets(&mut self) -> Vec<CapturedPacket> {
        let is_data = |event: &Event| event.kind == EventKind::Opened(Port::Data);
        let data = self
            .events
            .iter()
            .find(|event| is_data(event))
            .unwrap()
            .connection;
        let mut bytes = Vec::new();
        self.events.retain(|event| match &event.kind {
            EventKind::Sent(sent) if event.connection == data => {
                bytes.extend_from_slice(sent);
                false
            }
            _ => true,
        });
        packets(&bytes)
    }

    /// Inserts packets on the first data connection, all at once, in front of the first event for
    /// which `before` holds.
    ///
    /// # Panics
    /// If there is no such event, or no data connection.
    pub fn put_packets(&mut self, packets: &[CapturedPacket], before: impl Fn(&Event) -> bool) {
        let open = |event: &Event| event.kind == EventKind::Opened(Port::Data);
        let data = self
            .events
            .iter()
            .find(|event| open(event))
            .unwrap()
            .connection;
        let mut bytes = Vec::new();
        for packet in packets {
            packet.header.write(&mut bytes);
            bytes.extend_from_slice(&packet.payload);
        }
        let at = self.events.iter().position(before).unwrap();
        self.events.insert(
            at,
            Event {
                connection: data,
                kind: EventKind::Sent(bytes),
            },
        );
    }
}

/// A connection to the relay to which a capture is replayed.
struct Socket {
    stream: TcpStream,
    received: usize,
}

impl Socket {
    fn connect(address: SocketAddr) -> Self {
        Self {
            stream: connect(address),
            received: 0,
        }
    }

    fn send(&self, bytes: &[u8]) {
        (&self.stream).write_all(bytes).unwrap();
    }

    fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut got = vec![0; len];
        self.stream
            .read_exact(&mut got)
            .expect("the relay closed the connection");
        self.received += len;
        got
    }
}

/// The reply of `relayd` to VERSION: 2.15. `lttng-relayd` answers with its own version.
const VERSION: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 15];

/// Whether a reply says "still pending" where the captured one said "done", so that the command has
/// to be repeated. The last byte of these replies tells.
fn is_still_pending(question: &[u8], want: &[u8], got: &[u8]) -> bool {
    const ANY_OF: [CommandCode; 3] = [
        CommandCode::DataPending,
        CommandCode::EndDataPending,
        CommandCode::TraceChunkExists,
    ];
    is_any_of(question, &ANY_OF) && want.last() == Some(&0) && got.last() == Some(&1)
}

/// Whether a reply says "done" where the captured one said "still pending". The captured producer
/// repeated its command, and so does the replay.
fn is_done_early(question: &[u8], want: &[u8], got: &[u8]) -> bool {
    const ANY_OF: [CommandCode; 2] = [CommandCode::DataPending, CommandCode::EndDataPending];
    is_any_of(question, &ANY_OF) && want.last() == Some(&1) && got.last() == Some(&0)
}

fn is_any_of(question: &[u8], any_of: &[CommandCode]) -> bool {
    let code = ControlHeader::read(&mut { question }).map_or(0, |header| header.code);
    any_of.iter().any(|question| question.code() == code)
}

fn packets(mut bytes: &[u8]) -> Vec<CapturedPacket> {
    let mut decoder = DataDecoder::default();
    let mut packets: Vec<CapturedPacket> = Vec::new();
    while let Some(event) = decoder.next(&mut bytes) {
        match event {
            DataEvent::Begin(header) => packets.push(CapturedPacket {
                header,
                payload: Vec::new(),
            }),
            DataEvent::Payload { bytes, .. } => {
                packets.last_mut().unwrap().payload.extend_from_slice(bytes);
            }
        }
    }
    packets
}
