//! Listens in on what a real producer and a real relay say to each other, and says it again to
//! another relay: the same bytes must bring the same answers and leave the same files.

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

/// Stands between a producer and a relay.
#[derive(Debug)]
pub struct Tap {
    control: SocketAddr,
    data: SocketAddr,
    heard: Arc<Mutex<Vec<Event>>>,
}

/// Something that was said, or a connection that began or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which connection: they are counted as they open.
    pub connection: usize,
    /// What happened on it.
    pub what: What,
}

/// What happened on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// It was opened to this port.
    Open(Port),
    /// The producer said this.
    Sent(Vec<u8>),
    /// The relay said this.
    Answered(Vec<u8>),
    /// The producer hung up.
    HungUp,
}

/// One of the two ports for producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Commands.
    Control,
    /// Packets.
    Data,
}

impl Tap {
    /// Listens, and passes on to `relay`. With `minor`, makes both believe that the other speaks no
    /// higher version: so do old producers talk.
    ///
    /// # Panics
    /// If it cannot listen.
    #[must_use]
    pub fn before(relay: &Relay, minor: Option<u8>) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listen = |port, relay| listen(port, relay, minor, &heard);
        let (control, data) = (
            listen(Port::Control, relay.control),
            listen(Port::Data, relay.data),
        );
        Self {
            control,
            data,
            heard,
        }
    }

    /// Where a producer finds it.
    #[must_use]
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.control, self.data)
    }

    /// What was said, once every connection has ended.
    ///
    /// # Panics
    /// If one does not.
    #[must_use]
    pub fn recording(self) -> Recording {
        let is_over = || {
            let heard = self.heard.lock().unwrap();
            let count =
                |is: fn(&What) -> bool| heard.iter().filter(|event| is(&event.what)).count();
            count(|what| matches!(what, What::Open(_))) == count(|what| *what == What::HungUp)
        };
        wait_until("the producer has hung up", is_over);
        Recording {
            events: self.heard.lock().unwrap().clone(),
        }
    }
}

fn listen(
    port: Port,
    relay: SocketAddr,
    minor: Option<u8>,
    heard: &Arc<Mutex<Vec<Event>>>,
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let minor = minor.filter(|_| port == Port::Control);
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        for producer in listener.incoming() {
            let Ok(producer) = producer else { return };
            let Ok(relay) = TcpStream::connect(relay) else {
                return;
            };
            let connection = {
                let mut heard = heard.lock().unwrap();
                let opened = |event: &&Event| matches!(event.what, What::Open(_));
                let connection = heard.iter().filter(opened).count();
                heard.push(Event {
                    connection,
                    what: What::Open(port),
                });
                connection
            };
            let two =
                |one: &TcpStream, other: &TcpStream| [one, other].map(|s| s.try_clone().unwrap());
            let (sent, answered) = (two(&producer, &relay), two(&relay, &producer));
            let listener = Listener {
                connection,
                minor,
                heard: Arc::clone(&heard),
            };
            let other = listener.clone();
            thread::spawn(move || listener.pass_on_sent(sent));
            thread::spawn(move || other.pass_on_answered(answered));
        }
    });
    address
}

/// Listens in on one connection.
#[derive(Clone)]
struct Listener {
    connection: usize,
    minor: Option<u8>,
    heard: Arc<Mutex<Vec<Event>>>,
}

impl Listener {
    fn note(&self, what: What) {
        self.heard.lock().unwrap().push(Event {
            connection: self.connection,
            what,
        });
    }

    /// Notes what the relay gets to hear.
    fn pass_on_sent(&self, [from, to]: [TcpStream; 2]) {
        let mut minor = self.minor;
        pass_on(from, to, |bytes| {
            if let Some(minor) = minor.take() {
                // VERSION: header, major, minor.
                bytes[31] = bytes[31].min(minor);
            }
            self.note(What::Sent(bytes.to_vec()));
        });
        self.note(What::HungUp);
    }

    /// Notes what the relay says.
    fn pass_on_answered(&self, [from, to]: [TcpStream; 2]) {
        let mut minor = self.minor;
        pass_on(from, to, |bytes| {
            self.note(What::Answered(bytes.to_vec()));
            if let Some(minor) = minor.take() {
                // Its answer: major, minor.
                bytes[7] = bytes[7].min(minor);
            }
        });
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut on_the_way: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        on_the_way(&mut buffer[..read]);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// What was said between a producer and a relay.
#[derive(Debug, Clone)]
pub struct Recording {
    /// In order.
    pub events: Vec<Event>,
}

/// A packet on a data connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its header.
    pub header: DataHeader,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Recording {
    /// Reads a recording that was made elsewhere: `timeline.csv` and, for each connection and
    /// direction, a file of raw bytes (`control.c2s`, `control.s2c`, `data.c2s`). What viewers said is left
    /// out: it depends on when they looked.
    ///
    /// # Panics
    /// If it cannot be read.
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
            let what = match event {
                "open" => {
                    connections.push(name.to_owned());
                    What::Open(if name.starts_with("control") {
                        Port::Control
                    } else {
                        Port::Data
                    })
                }
                "c2s" => What::Sent(bytes("c2s")),
                "s2c" => What::Answered(bytes("s2c")),
                "c2s-fin" => What::HungUp,
                _ => continue,
            };
            let connection = connections.iter().position(|known| known == name).unwrap();
            events.push(Event { connection, what });
        }
        Self { events }
    }

    /// Says the same to another relay, in the same order, and waits until it has taken it in.
    ///
    /// # Panics
    /// If it answers anything else.
    pub fn replay(&self, relay: &Relay) {
        let mut sockets = HashMap::new();
        let mut last_sent: &[u8] = &[];
        for Event { connection, what } in &self.events {
            match what {
                What::Open(port) => {
                    let address = match port {
                        Port::Control => relay.control,
                        Port::Data => relay.data,
                    };
                    sockets.insert(*connection, Socket::connect(address));
                }
                What::Sent(bytes) => {
                    sockets[connection].say(bytes);
                    last_sent = bytes;
                }
                What::Answered(want) => {
                    let socket = sockets.get_mut(connection).unwrap();
                    let mut got = socket.hear(want.len());
                    while is_pending_yet(last_sent, want, &got) {
                        socket.say(last_sent);
                        got = socket.hear(want.len());
                    }
                    if socket.heard == want.len() && got.starts_with(VERSION) {
                        got[..8].copy_from_slice(&want[..8]);
                    }
                    if !is_done_already(last_sent, want, &got) {
                        assert_eq!(&got, want, "in answer to {last_sent:x?}");
                    }
                }
                What::HungUp => sockets[connection]
                    .stream
                    .shutdown(Shutdown::Write)
                    .unwrap(),
            }
        }
        assert!(
            sockets
                .values_mut()
                .all(|socket| is_closed(&mut socket.stream))
        );
    }

    /// The packets of all data connections, in order, taken out of it; the events around them stay.
    ///
    /// # Panics
    /// If there is no data connection.
    #[must_use]
    pub fn take_packets(&mut self) -> Vec<Packet> {
        let is_data = |event: &Event| event.what == What::Open(Port::Data);
        let data = self
            .events
            .iter()
            .find(|event| is_data(event))
            .unwrap()
            .connection;
        let mut bytes = Vec::new();
        self.events.retain(|event| match &event.what {
            What::Sent(sent) if event.connection == data => {
                bytes.extend_from_slice(sent);
                false
            }
            _ => true,
        });
        packets(&bytes)
    }

    /// Puts packets back, all at once, before the first event after the streams were added that
    /// `before` picks.
    ///
    /// # Panics
    /// If there is no such event, or no data connection.
    pub fn put_packets(&mut self, packets: &[Packet], before: impl Fn(&Event) -> bool) {
        let open = |event: &Event| event.what == What::Open(Port::Data);
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
                what: What::Sent(bytes),
            },
        );
    }
}

/// A connection to the relay that hears the recording again.
struct Socket {
    stream: TcpStream,
    heard: usize,
}

impl Socket {
    fn connect(address: SocketAddr) -> Self {
        Self {
            stream: connect(address),
            heard: 0,
        }
    }

    fn say(&self, bytes: &[u8]) {
        (&self.stream).write_all(bytes).unwrap();
    }

    fn hear(&mut self, len: usize) -> Vec<u8> {
        let mut got = vec![0; len];
        self.stream.read_exact(&mut got).expect("the relay hung up");
        self.heard += len;
        got
    }
}

/// What every relay of ours answers first: its version.
const VERSION: &[u8] = &[0, 0, 0, 2, 0, 0, 0, 15];

/// Whether the answer is that something is still under way, as it then may be, so that the question
/// has to be asked again. Those questions end in one byte that says so.
fn is_pending_yet(question: &[u8], want: &[u8], got: &[u8]) -> bool {
    const ANY_OF: [CommandCode; 3] = [
        CommandCode::DataPending,
        CommandCode::EndDataPending,
        CommandCode::TraceChunkExists,
    ];
    asks(question, &ANY_OF) && want.last() == Some(&0) && got.last() == Some(&1)
}

/// Whether the answer is that no data is under way any more, where the recorded relay was slower: its
/// producer asked again, and so does the recording.
fn is_done_already(question: &[u8], want: &[u8], got: &[u8]) -> bool {
    const ANY_OF: [CommandCode; 2] = [CommandCode::DataPending, CommandCode::EndDataPending];
    asks(question, &ANY_OF) && want.last() == Some(&1) && got.last() == Some(&0)
}

fn asks(question: &[u8], any_of: &[CommandCode]) -> bool {
    let code = ControlHeader::read(&mut { question }).map_or(0, |header| header.code);
    any_of.iter().any(|question| question.code() == code)
}

fn packets(mut bytes: &[u8]) -> Vec<Packet> {
    let mut decoder = DataDecoder::default();
    let mut packets: Vec<Packet> = Vec::new();
    while let Some(event) = decoder.next(&mut bytes) {
        match event {
            DataEvent::Begin(header) => packets.push(Packet {
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
