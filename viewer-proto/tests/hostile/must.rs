//! Invariants for any bytes on a viewer's connections, in front of a relay in memory whose state
//! changes with every command. Used by the tests here and by the fuzz targets.
#![allow(unreachable_pub, reason = "the fuzz targets use it too")]

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::BytesMut;
use viewer_proto::beacon_interest::BeaconInterestReader;
use viewer_proto::client::{Client, Head, Part};
use viewer_proto::command::CommandHeader;
use viewer_proto::index::IndexStatus;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketStatus};
use viewer_proto::push::{Notification, PushClient, write_greeting};
use viewer_proto::server::{Connection, Progress};
use viewer_proto::session::{AttachSession, AttachStatus, Seek};
use viewer_proto::version::{Connect, ConnectionKind};
use viewer_proto::{Command, CommandCode, Minor};
use wire::{Bytes, Field, SessionId, StreamId, Timestamp, ViewerId};

use crate::fake::{Data, Fake, Letters, SESSION, World, world};

/// Most bytes that the server may leave until more arrive: a header and the longest command.
const MAX_INCOMPLETE: usize = 16 + 24;

/// Sends these bytes to a relay, at once and in pieces of `cut` bytes. Checks the protocol's
/// invariants, and that the replies do not depend on the pieces. Returns the number of commands
/// that were answered.
pub fn converse(cut: u8, bytes: &[u8]) -> usize {
    let mut whole = End::new();
    whole.receive(bytes);
    let mut pieces = End::new();
    for piece in bytes.chunks(usize::from(cut).max(1)) {
        pieces.receive(piece);
    }
    assert_eq!(
        whole.replies, pieces.replies,
        "replies depend on how the bytes are split"
    );
    assert_eq!(whole.failed, pieces.failed);
    let world = Rc::clone(&whole.state.world);
    let answered = whole.answered;
    drop(whole);
    assert_eq!(
        world.viewers.get(),
        0,
        "a closed connection is still attached"
    );
    answered
}

/// Sends these bytes to a relay on the push connection of an attached viewer, in pieces of `cut`
/// bytes, while the relay's state changes. Returns the number of notifications.
pub fn listen(cut: u8, bytes: &[u8]) -> usize {
    let mut end = End::new();
    end.receive(&attaching(15));
    end.connection.subscribe(&Fake(Rc::clone(&end.state.world)));
    let mut client = PushClient::default();
    let mut pushed = BytesMut::new();
    write_greeting(&mut pushed);
    let mut notifications = 0;
    let mut reader = BeaconInterestReader::default();
    let mut last = BTreeMap::new();
    for piece in bytes.chunks(usize::from(cut).max(1)) {
        let Ok(received) = reader.extend(piece) else {
            break;
        };
        if let Some(beacon_interest) = received {
            let relay = Fake(Rc::clone(&end.state.world));
            end.connection.set_beacon_interest(beacon_interest, &relay);
        }
        end.state.advance();
        for change in &*end.state.world.subscriptions.borrow() {
            end.connection.record_change(*change);
        }
        // A small limit, so that several calls are needed.
        end.connection.write_notifications(60, &mut pushed);
        for notification in client.extend(&pushed) {
            notifications += 1;
            if let Notification::Quiet(quiet) = notification.expect("the client decodes it") {
                let before = last.insert(quiet.stream, quiet.until);
                assert!(before.is_none_or(|before| before < quiet.until));
            }
        }
        pushed.clear();
    }
    notifications
}

/// The relay's state, which changes with every command, independently of the viewer.
struct RelayState {
    world: Rc<World>,
    metadata: Rc<Letters>,
    streams: Vec<Rc<Data>>,
    steps: u64,
}

impl RelayState {
    fn new() -> Self {
        let world = world();
        let metadata = world.metadata(b"/* CTF 1.8 */");
        let streams = vec![world.stream()];
        Self {
            world,
            metadata,
            streams,
            steps: 0,
        }
    }

    fn advance(&mut self) {
        self.steps += 1;
        let now = self.steps * 10;
        self.world.rotating.set(self.steps % 7 == 3);
        let Some(last) = self.streams.last() else {
            return;
        };
        last.arriving.set(!self.steps.is_multiple_of(3));
        match self.steps % 5 {
            0 => self.metadata.bytes.borrow_mut().extend_from_slice(b" more"),
            1 => last.push(now, now + 9),
            2 => last.beacon.set(Some(now + 10)),
            3 if self.streams.len() < 4 => {
                last.over.set(true);
                let next = self.world.stream();
                self.streams.push(next);
            }
            _ => {}
        }
        if self.steps == 90 {
            self.world.gone.set(true);
            self.streams.iter().for_each(|stream| stream.over.set(true));
            self.metadata.over.set(true);
        }
    }
}

/// The relay's end, the viewer that would have sent these commands, and what the viewer has
/// received.
struct End {
    state: RelayState,
    connection: Connection<Fake>,
    client: Client,
    kept: Vec<u8>,
    replies: Vec<u8>,
    answered: usize,
    failed: Option<String>,
    known: BTreeSet<StreamId>,
    time: BTreeMap<StreamId, Timestamp>,
    over: BTreeSet<StreamId>,
}

impl End {
    fn new() -> Self {
        Self {
            state: RelayState::new(),
            connection: Connection::default(),
            client: Client::new(Minor(15)),
            kept: Vec::new(),
            replies: Vec::new(),
            answered: 0,
            failed: None,
            known: BTreeSet::new(),
            time: BTreeMap::new(),
            over: BTreeSet::new(),
        }
    }

    fn receive(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(piece);
        let kept = std::mem::take(&mut self.kept);
        let mut input = &kept[..];
        while self.failed.is_none() && self.command(&mut input) {}
        self.kept = input.to_vec();
    }

    /// Handles one command, or ignored bytes after one. Returns whether there may be more.
    fn command(&mut self, input: &mut &[u8]) -> bool {
        let before = *input;
        let asked = if self.connection.in_command(&[]) {
            None
        } else {
            command(before)
        };
        let relay = Fake(Rc::clone(&self.state.world));
        let mut reply = BytesMut::new();
        let progress = self.connection.advance(input, &relay, &mut reply);
        match progress {
            Ok(Progress::Awaits(_)) => unreachable!("the relay has all"),
            Ok(Progress::NeedsMore) => {
                assert!(reply.is_empty() && input.len() == before.len());
                assert!(
                    input.len() < MAX_INCOMPLETE,
                    "{} bytes are kept",
                    input.len()
                );
                return false;
            }
            Err(error) => {
                self.failed = Some(error.to_string());
                let unknown = 11u32.to_be_bytes();
                assert!(reply.is_empty() || reply == unknown[..]);
                self.replies.extend_from_slice(&reply);
                return false;
            }
            Ok(Progress::PacketArriving) => {
                assert!(reply.is_empty() && input.len() == before.len());
                return true;
            }
            Ok(Progress::Push(_)) => {
                assert_eq!(
                    self.answered, 0,
                    "a command connection became a push connection"
                );
                self.failed = Some("a push connection".to_owned());
                return false;
            }
            Ok(Progress::Packet((_, len))) => reply.extend_from_slice(&body(len)),
            Ok(Progress::Advanced) => {}
        }
        assert!(input.len() < before.len(), "no byte was consumed");
        let Some(asked) = asked else {
            assert!(reply.is_empty(), "a reply in the middle of a command");
            return true;
        };
        // Each call writes one record of a list, and consumes no input.
        let fields = self.expected_parts(&asked, &reply);
        for _ in 0..fields {
            let left = input.len();
            let next = self.connection.advance(input, &relay, &mut reply);
            assert!(matches!(next, Ok(Progress::Advanced)) && input.len() == left);
        }
        self.check(&asked, &reply);
        self.replies.extend_from_slice(&reply);
        self.answered += 1;
        self.state.advance();
        true
    }

    /// Number of records that follow the head of a reply.
    fn expected_parts(&self, asked: &Command, reply: &[u8]) -> u32 {
        let word = |at: usize| {
            reply
                .get(at..)
                .map_or(0, |mut from| u32::read(&mut from).unwrap_or(0))
        };
        match asked.code() {
            CommandCode::ListSessions => word(0),
            CommandCode::AttachSession | CommandCode::GetNewStreams if word(0) == 1 => word(4),
            _ => 0,
        }
    }

    fn check(&mut self, asked: &Command, reply: &[u8]) {
        if let Command::Connect(hello) = asked {
            self.client = Client::new(Minor(hello.minor));
        }
        let mut sent = Vec::new();
        self.client
            .send(asked, &mut sent)
            .expect("replies are complete");
        let mut input = reply;
        loop {
            let part = self
                .client
                .receive(&mut input)
                .expect("the client decodes it");
            match part.expect("the reply is complete") {
                Part::Done => break,
                Part::Head(head) => self.head(asked, &head),
                Part::Stream(stream) => {
                    assert!(self.known.insert(stream.stream), "announced twice");
                }
                Part::Session(_) | Part::Bytes(_) => {}
            }
        }
        assert!(input.is_empty(), "more than a reply");
        if let Command::DetachSession(_) = asked
            && self.connection.attached().next().is_none()
        {
            self.known.clear();
            self.time.clear();
            self.over.clear();
        }
    }

    fn head(&mut self, asked: &Command, head: &Head) {
        match (asked, head) {
            (Command::GetNextIndex(stream), Head::Index(index)) => {
                let fine = !matches!(index.status, IndexStatus::Failed);
                assert!(!fine || self.known.contains(stream), "not attached");
                let time = match index.status {
                    IndexStatus::Ready => index.packet.begin,
                    IndexStatus::Inactive => index.packet.end,
                    IndexStatus::HungUp => {
                        self.over.insert(*stream);
                        return;
                    }
                    _ => return,
                };
                assert!(!self.over.contains(stream), "an index after the end");
                let before = self.time.insert(*stream, time);
                assert!(before.is_none_or(|before| before <= time), "time decreases");
            }
            (Command::GetPacket(ask), Head::Packet(head)) => {
                let good = head.status == PacketStatus::Ok;
                assert!(!good || self.known.contains(&ask.stream), "not attached");
                assert_eq!(head.len, if good { ask.len } else { 0 });
                assert!(!good || head.len > 0, "viewers fail at an empty packet");
            }
            (Command::GetMetadata(stream), Head::Metadata(head)) => {
                let good = head.status == MetadataStatus::Ok;
                assert!(!good || self.known.contains(stream), "not attached");
                assert_eq!(good, head.len > 0, "viewers fail at empty metadata");
            }
            (Command::AttachSession(attach), Head::Attached(attached)) => {
                let good = attached.status == AttachStatus::Ok;
                assert!(!good || Seek::from_code(attach.seek).is_ok());
            }
            _ => {}
        }
    }
}

/// Bytes of a packet. Checks the number that the peer has requested before memory is allocated.
fn body(len: u32) -> Vec<u8> {
    assert!(u64::from(len) <= 4096 * 100, "more than the stream has");
    vec![0xaa; len as usize]
}

/// The command that these bytes begin with. None if it is incomplete or unknown.
fn command(mut bytes: &[u8]) -> Option<Command> {
    let header = CommandHeader::read(&mut bytes).ok()?;
    let code = CommandCode::from_code(header.code).ok()?;
    Command::decode(code, bytes.get(..code.size())?).ok()
}

fn attaching(minor: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in [
        Command::Connect(Connect {
            viewer: Some(ViewerId(0)),
            major: 2,
            minor,
            kind: ConnectionKind::Command.code(),
        }),
        Command::CreateViewerSession,
        Command::ListSessions,
        Command::AttachSession(AttachSession {
            session: SESSION,
            offset: 0,
            seek: Seek::Beginning.code(),
        }),
    ] {
        command.encode(&mut bytes);
    }
    bytes
}

/// The commands of a viewer that reads everything until the end, and also requests bytes that it
/// may not be given.
pub fn conversation(minor: u32) -> Vec<u8> {
    let mut bytes = attaching(minor);
    for round in 0..8 {
        Command::GetNewStreams(SESSION).encode(&mut bytes);
        Command::GetMetadata(StreamId(1)).encode(&mut bytes);
        for stream in [2, 3, 4, round].map(StreamId) {
            Command::GetNextIndex(stream).encode(&mut bytes);
            let (offset, len) = (Bytes(4096 * round), 4096);
            Command::GetPacket(GetPacket {
                stream,
                offset,
                len,
            })
            .encode(&mut bytes);
        }
    }
    Command::DetachSession(SESSION).encode(&mut bytes);
    Command::DetachSession(SessionId(9)).encode(&mut bytes);
    bytes
}
