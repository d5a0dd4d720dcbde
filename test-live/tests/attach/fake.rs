//! A relay in memory, on a real socket: it answers with what a test has put into it, and records
//! the commands.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::trace::Tracefile;
use viewer_proto::beacon_interest::{BeaconInterest, BeaconInterestReader};
use viewer_proto::command::CommandHeader;
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::{MetadataHead, MetadataStatus};
use viewer_proto::packet::{PacketHead, PacketStatus};
use viewer_proto::push::{Notification, write_greeting};
use viewer_proto::session::{
    AttachStatus, Attached, CreateStatus, DetachStatus, ListedSession, SessionList, TraceFormat,
};
use viewer_proto::stream::{NewStreams, NewStreamsStatus, StreamRecord};
use viewer_proto::version::Connect;
use viewer_proto::{Command, CommandCode, Minor};
use wire::{
    Bits, Bytes, Field, FixedText, Micros, SessionId, StreamId, Text, Timestamp, TraceId, ViewerId,
};

/// The state of the relay, and the commands that it has received.
pub(crate) struct World {
    pub(crate) minor: u32,
    pub(crate) sessions: Vec<Session>,
    pub(crate) metadata: HashMap<u64, Metadata>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) asked: Vec<Command>,
    /// Replies that replace the correct ones, by command code. An empty reply closes the
    /// connection.
    pub(crate) instead: HashMap<u32, VecDeque<Vec<u8>>>,
    /// The content of tracefiles whose packets are not those of [`is_packet`].
    pub(crate) files: HashMap<u64, Vec<u8>>,
    /// Tracefiles that are generated as they are read.
    pub(crate) tracefiles: HashMap<u64, Tracefile>,
    /// Largest number of bytes in a reply to `GET_PACKET`.
    pub(crate) most_bytes: u32,
    /// The notifications for the next push connection.
    pub(crate) pushes: Pushes,
    /// The beacon interest messages that were received on push connections.
    pub(crate) attentions: Vec<BeaconInterest>,
    /// The number of command connections so far.
    pub(crate) connections: u32,
    /// The number of times that it was restarted. Older connections are closed at their next
    /// command.
    pub(crate) restarts: u32,
    /// Replies of which only so many bytes are sent before the connection is closed, by command
    /// code.
    pub(crate) cuts: HashMap<u32, VecDeque<usize>>,
    /// Whether connections are closed as soon as they are accepted.
    pub(crate) refuses: bool,
}

/// The notifications that a push connection sends.
pub(crate) enum Pushes {
    No,
    When(Receiver<Notification>),
}

pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) name: &'static str,
    pub(crate) timer: u32,
    pub(crate) attach: AttachStatus,
    /// The streams, announced one batch at a time; the first batch when a viewer attaches.
    pub(crate) batches: VecDeque<Vec<StreamRecord>>,
    pub(crate) is_over: bool,
    pub(crate) is_listed: bool,
}

#[derive(Default)]
pub(crate) struct Metadata {
    pub(crate) replies: VecDeque<Vec<u8>>,
    pub(crate) is_over: bool,
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) indexes: VecDeque<NextIndex>,
    /// Whether the stream ends after the last index.
    pub(crate) is_over: bool,
}

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    world: Arc<Mutex<World>>,
}

pub(crate) fn record(id: u64, trace: u64, path: &str, channel: &str) -> StreamRecord {
    StreamRecord {
        stream: StreamId(id),
        trace: TraceId(trace),
        is_metadata: u32::from(channel == "metadata"),
        path: FixedText(Text::from(path)),
        channel: FixedText(Text::from(channel)),
    }
}

/// A trace `first` of two streams: its metadata, and the channel `c`.
pub(crate) fn trace_records(first: u64, path: &str) -> Vec<StreamRecord> {
    vec![
        record(first, first, path, "metadata"),
        record(first + 1, first, path, "c"),
    ]
}

/// Packet `number`: 16 bytes at 16 times its number, for ten cycles from ten times that.
pub(crate) fn ready(number: u64, flags: u32) -> NextIndex {
    let mut index = NextIndex::without_packet(IndexStatus::Ready, flags);
    index.offset = Bytes(16 * number);
    index.packet.packet_size = Bits(128);
    index.packet.content_size = Bits(100);
    index.packet.begin = Timestamp(10 * number);
    index.packet.end = Timestamp(10 * number + 10);
    index
}

pub(crate) fn inactive(until: u64, flags: u32) -> NextIndex {
    NextIndex::inactive(Timestamp(until), wire::ClassId(0), flags)
}

pub(crate) fn retry(flags: u32) -> NextIndex {
    NextIndex::without_packet(IndexStatus::Retry, flags)
}

/// The byte of a tracefile at `offset`: packets begin with their stream and number.
fn byte(stream: u64, offset: u64) -> u8 {
    let number = offset / 16;
    let byte = match offset % 16 {
        0 => stream,
        1 => number,
        other => other,
    };
    u8::try_from(byte).unwrap()
}

/// The stream and number of a packet, if it is whole.
pub(crate) fn is_packet(bytes: &[u8]) -> Option<(u8, u8)> {
    let (&stream, &number) = (bytes.first()?, bytes.get(1)?);
    let begin = 16 * u64::from(number);
    let whole = (begin..begin + 16).map(|offset| byte(u64::from(stream), offset));
    bytes.iter().copied().eq(whole).then_some((stream, number))
}

impl Session {
    pub(crate) fn new(id: u64, name: &'static str, batches: Vec<Vec<StreamRecord>>) -> Self {
        Self {
            id,
            name,
            timer: 1000,
            attach: AttachStatus::Ok,
            batches: batches.into(),
            is_over: false,
            is_listed: true,
        }
    }

    fn listed(&self) -> ListedSession {
        ListedSession {
            session: SessionId(self.id),
            live_timer: Micros(self.timer),
            viewers: 0,
            streams: 0,
            host: Text::from("vm"),
            name: Text::from(self.name),
            trace_format: TraceFormat::Ctf1,
        }
    }
}

impl Fake {
    pub(crate) fn start(sessions: Vec<Session>) -> Self {
        let world = Arc::new(Mutex::new(World {
            minor: 10,
            sessions,
            metadata: HashMap::new(),
            streams: HashMap::new(),
            asked: Vec::new(),
            instead: HashMap::new(),
            files: HashMap::new(),
            tracefiles: HashMap::new(),
            most_bytes: u32::MAX,
            pushes: Pushes::No,
            attentions: Vec::new(),
            connections: 0,
            restarts: 0,
            cuts: HashMap::new(),
            refuses: false,
        }));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&world);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let world = Arc::clone(&shared);
                if world.lock().unwrap().refuses {
                    continue;
                }
                std::thread::spawn(move || serve(socket.unwrap(), &world));
            }
        });
        Self { address, world }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn put_metadata(&self, stream: u64, replies: &[&str]) {
        self.world().put_metadata(stream, replies);
    }

    pub(crate) fn put(&self, stream: u64, indexes: impl IntoIterator<Item = NextIndex>) {
        self.world().put(stream, indexes);
    }

    /// Ends all streams and sessions, once what they have has been read.
    pub(crate) fn end(&self) {
        self.world().end();
    }

    /// Answers the next command of this code with `reply`; if that is empty, the connection is
    /// closed.
    pub(crate) fn answer_instead(&self, command: CommandCode, reply: &[u8]) {
        let mut world = self.world();
        let instead = world.instead.entry(command.code()).or_default();
        instead.push_back(reply.to_vec());
    }

    /// Closes the connection after `bytes` of the next reply to this command.
    pub(crate) fn cut_reply(&self, command: CommandCode, bytes: usize) {
        let mut world = self.world();
        let cuts = world.cuts.entry(command.code()).or_default();
        cuts.push_back(bytes);
    }

    /// Restarts the relay with other sessions: all connections are closed, and what it had is
    /// forgotten.
    pub(crate) fn restart(&self, sessions: Vec<Session>, fill: impl FnOnce(&mut World)) {
        let mut world = self.world();
        world.restarts += 1;
        world.sessions = sessions;
        world.metadata.clear();
        world.streams.clear();
        fill(&mut world);
    }

    /// A sender of notifications that the relay pushes, until it is dropped.
    pub(crate) fn pusher(&self) -> Sender<Notification> {
        let (sender, receiver) = channel();
        self.world().pushes = Pushes::When(receiver);
        sender
    }

    pub(crate) fn count(&self, is_it: impl Fn(&Command) -> bool) -> usize {
        self.world()
            .asked
            .iter()
            .filter(|asked| is_it(asked))
            .count()
    }
}

fn serve(mut socket: TcpStream, world: &Arc<Mutex<World>>) {
    let restarts = world.lock().unwrap().restarts;
    loop {
        let mut header = [0; 16];
        if socket.read_exact(&mut header).is_err() {
            return;
        }
        let header = CommandHeader::read(&mut &header[..]).unwrap();
        let code = CommandCode::from_code(header.code).unwrap();
        let mut body = vec![0; code.size()];
        socket.read_exact(&mut body).unwrap();
        let command = Command::decode(code, &body).unwrap();
        let shared = world;
        let mut world = shared.lock().unwrap();
        if world.restarts != restarts {
            return;
        }
        if let Command::Connect(connect) = &command {
            if connect.kind != 1 {
                let pushes = std::mem::replace(&mut world.pushes, Pushes::No);
                drop(world);
                return push(socket, pushes, Arc::clone(shared));
            }
            world.connections += 1;
        }
        world.asked.push(command.clone());
        let instead = world.instead.get_mut(&code.code());
        let reply = match instead.and_then(VecDeque::pop_front) {
            Some(reply) if reply.is_empty() => return,
            Some(reply) => reply,
            None => world.answer(&command),
        };
        let cuts = world.cuts.get_mut(&code.code());
        let cut = cuts.and_then(VecDeque::pop_front);
        drop(world);
        let sent = reply.get(..cut.unwrap_or(reply.len())).unwrap_or(&reply);
        if socket.write_all(sent).is_err() || cut.is_some() {
            return;
        }
    }
}

fn push(mut socket: TcpStream, pushes: Pushes, world: Arc<Mutex<World>>) {
    let Pushes::When(notifications) = pushes else {
        return;
    };
    let mut bytes = Vec::new();
    write_greeting(&mut bytes);
    socket.write_all(&bytes).unwrap();
    let mut received = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        let (mut reader, mut bytes) = (BeaconInterestReader::default(), [0; 8]);
        while received.read_exact(&mut bytes).is_ok() {
            let beacon_interest = reader.extend(&bytes).unwrap();
            world.lock().unwrap().attentions.extend(beacon_interest);
        }
    });
    for notification in notifications {
        let mut bytes = Vec::new();
        notification.encode(&mut bytes);
        if socket.write_all(&bytes).is_err() {
            return;
        }
    }
}

impl World {
    pub(crate) fn put_metadata(&mut self, stream: u64, replies: &[&str]) {
        let replies = replies.iter().map(|reply| reply.as_bytes().to_vec());
        let metadata = self.metadata.entry(stream).or_default();
        metadata.replies.extend(replies);
    }

    pub(crate) fn put(&mut self, stream: u64, indexes: impl IntoIterator<Item = NextIndex>) {
        let stream = self.streams.entry(stream).or_default();
        stream.indexes.extend(indexes);
    }

    /// Ends all streams and sessions, once what they have has been read.
    pub(crate) fn end(&mut self) {
        self.streams.values_mut().for_each(|s| s.is_over = true);
        self.metadata.values_mut().for_each(|m| m.is_over = true);
        for session in &mut self.sessions {
            session.is_over = true;
            session.is_listed = false;
        }
    }

    fn answer(&mut self, command: &Command) -> Vec<u8> {
        let mut to = Vec::new();
        match command {
            Command::Connect(_) => Connect {
                viewer: Some(ViewerId(23)),
                major: 2,
                minor: self.minor,
                kind: 2,
            }
            .write(&mut to),
            Command::ListSessions => self.list(&mut to),
            Command::CreateViewerSession => CreateStatus::Ok.write(&mut to),
            Command::AttachSession(attach) => {
                let session = self.session(attach.session);
                let status = session.attach;
                let batch = (status == AttachStatus::Ok).then(|| session.batches.pop_front());
                let streams = batch.flatten().unwrap_or_default();
                let count = u32::try_from(streams.len()).unwrap();
                Attached { status, count }.write(&mut to);
                streams.iter().for_each(|stream| stream.write(&mut to));
            }
            Command::GetNewStreams(session) => {
                let session = self.session(*session);
                let streams = session.batches.pop_front().unwrap_or_default();
                let count = u32::try_from(streams.len()).unwrap();
                let status = if count == 0 && session.is_over {
                    NewStreamsStatus::HungUp
                } else {
                    NewStreamsStatus::Ok
                };
                NewStreams { status, count }.write(&mut to);
                streams.iter().for_each(|stream| stream.write(&mut to));
            }
            Command::GetMetadata(stream) => {
                let metadata = self.metadata.entry(stream.0).or_default();
                let (status, bytes) = match metadata.replies.pop_front() {
                    Some(bytes) => (MetadataStatus::Ok, bytes),
                    None if metadata.is_over => (MetadataStatus::Failed, Vec::new()),
                    None => (MetadataStatus::NoNew, Vec::new()),
                };
                let len = bytes.len() as u64;
                MetadataHead { len, status }.write(&mut to);
                to.extend_from_slice(&bytes);
            }
            Command::GetNextIndex(stream) => {
                let stream = self.streams.entry(stream.0).or_default();
                let index = match stream.indexes.pop_front() {
                    Some(index) => index,
                    None if stream.is_over => NextIndex::without_packet(IndexStatus::HungUp, 0),
                    None => retry(0),
                };
                index.write(&mut to);
            }
            Command::GetPacket(ask) => {
                let len = ask.len.min(self.most_bytes);
                let status = PacketStatus::Ok;
                let flags = 0;
                PacketHead { status, len, flags }.write(&mut to);
                let begin = ask.offset.0;
                if let Some(tracefile) = self.tracefiles.get(&ask.stream.0) {
                    to.extend(tracefile.read(begin, u64::from(len)));
                    return to;
                }
                match self.files.get(&ask.stream.0) {
                    Some(file) => {
                        let begin = usize::try_from(begin).unwrap();
                        to.extend(file.iter().skip(begin).take(len as usize));
                    }
                    None => to.extend((0..u64::from(len)).map(|at| byte(ask.stream.0, begin + at))),
                }
            }
            Command::DetachSession(_) => DetachStatus::Ok.write(&mut to),
        }
        to
    }

    fn list(&self, to: &mut Vec<u8>) {
        let listed = || self.sessions.iter().filter(|session| session.is_listed);
        let count = u32::try_from(listed().count()).unwrap();
        SessionList { count }.write(to);
        listed().for_each(|session| session.listed().write(Minor(self.minor), to));
    }

    fn session(&mut self, id: SessionId) -> &mut Session {
        let mut sessions = self.sessions.iter_mut();
        sessions.find(|session| session.id == id.0).unwrap()
    }
}
