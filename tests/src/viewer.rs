//! A viewer on `viewer-proto`, for what Babeltrace does not do: look once, ask odd things, wait.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use viewer_proto::client::{Client, Head, Part};
use viewer_proto::index::NextIndex;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketHead};
use viewer_proto::session::{AttachSession, AttachStatus, DetachStatus, ListedSession, Seek};
use viewer_proto::stream::{NewStreamsStatus, StreamRecord};
use viewer_proto::{Command, Minor};
use wire::{Bytes, SessionId, StreamId, ViewerId};

use crate::push::Push;
use crate::{TEST_TIMEOUT, wait_for};

/// This host's name, as sessions of its session daemon have it.
///
/// # Panics
/// If it has none.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_str()
        .unwrap()
        .to_owned()
}

/// A connection to a relay's live port.
#[derive(Debug)]
pub struct Viewer {
    socket: TcpStream,
    client: Client,
    received: Vec<u8>,
    /// The number that the relay has given it.
    pub number: Option<ViewerId>,
}

/// A whole reply.
#[derive(Debug, Default)]
pub struct Reply {
    /// What it begins with.
    pub head: Option<Head>,
    /// Sessions that it lists.
    pub sessions: Vec<ListedSession>,
    /// Streams that it announces.
    pub streams: Vec<StreamRecord>,
    /// Bytes that it brings.
    pub bytes: Vec<u8>,
}

impl Viewer {
    /// A viewer that can read everything.
    #[must_use]
    pub fn connect(live: SocketAddr) -> Self {
        Self::connect_as(live, Minor::OURS)
    }

    /// A viewer that speaks versions up to `minor`.
    ///
    /// # Panics
    /// If it cannot connect.
    #[must_use]
    pub fn connect_as(live: SocketAddr, minor: Minor) -> Self {
        let socket = TcpStream::connect(live).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let mut viewer = Self {
            socket,
            client: Client::new(minor),
            received: Vec::new(),
            number: None,
        };
        let hello = viewer.client.connect_command();
        if let Some(Head::Connected { viewer: number, .. }) = viewer.ask(&hello).head {
            viewer.number = number;
        }
        viewer
    }

    /// A viewer that is attached to the session of this name, once there is one.
    ///
    /// # Panics
    /// If it may not attach.
    #[must_use]
    pub fn attached(
        live: SocketAddr,
        session: &str,
        seek: Seek,
    ) -> (Self, SessionId, Vec<StreamRecord>) {
        let mut viewer = Self::connect(live);
        viewer.ask(&Command::CreateViewerSession);
        let id = viewer.wait_for_session(session).session;
        let (status, streams) = viewer.attach(id, seek.code());
        assert_eq!(status, AttachStatus::Ok);
        (viewer, id, streams)
    }

    /// Asks, and gives the whole reply.
    ///
    /// # Panics
    /// If the relay does not keep to the protocol, or hangs up.
    pub fn ask(&mut self, command: &Command) -> Reply {
        let mut replies = self.ask_at_once(std::slice::from_ref(command));
        replies.remove(0)
    }

    /// Asks all of this before it takes any reply, and gives the whole replies.
    ///
    /// # Panics
    /// If the relay does not keep to the protocol, or hangs up.
    pub fn ask_at_once(&mut self, commands: &[Command]) -> Vec<Reply> {
        let mut bytes = Vec::new();
        for command in commands {
            self.client.send(command, &mut bytes).unwrap();
        }
        self.socket.write_all(&bytes).unwrap();
        let (mut replies, mut reply) = (Vec::new(), Reply::default());
        let mut buffer = [0; 65_536];
        loop {
            let mut input = &self.received[..];
            while replies.len() < commands.len()
                && take_parts(&mut self.client, &mut input, &mut reply)
            {
                replies.push(std::mem::take(&mut reply));
            }
            let left = input.len();
            self.received.drain(..self.received.len() - left);
            if replies.len() == commands.len() {
                return replies;
            }
            let read = self.socket.read(&mut buffer).unwrap();
            assert!(
                read > 0,
                "the relay hung up instead of answering {commands:?}"
            );
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// The sessions that there are.
    pub fn sessions(&mut self) -> Vec<ListedSession> {
        self.ask(&Command::ListSessions).sessions
    }

    /// The session of this name, once there is one.
    pub fn wait_for_session(&mut self, name: &str) -> ListedSession {
        self.wait_for_listed(name, |_| true)
    }

    /// The session of this name, once there is one like that.
    pub fn wait_for_listed(
        &mut self,
        name: &str,
        like: impl Fn(&ListedSession) -> bool,
    ) -> ListedSession {
        let is_it =
            |session: &ListedSession| session.name.as_bytes() == name.as_bytes() && like(session);
        wait_for("a session is listed", || {
            self.sessions().into_iter().find(is_it)
        })
    }

    /// Attaches.
    pub fn attach(&mut self, session: SessionId, seek: u32) -> (AttachStatus, Vec<StreamRecord>) {
        let reply = self.ask(&Command::AttachSession(AttachSession {
            session,
            offset: 0,
            seek,
        }));
        let Some(Head::Attached(attached)) = reply.head else {
            unreachable!()
        };
        (attached.status, reply.streams)
    }

    /// Streams that it has not been told of.
    pub fn new_streams(&mut self, session: SessionId) -> (NewStreamsStatus, Vec<StreamRecord>) {
        let reply = self.ask(&Command::GetNewStreams(session));
        let Some(Head::NewStreams(new)) = reply.head else {
            unreachable!()
        };
        (new.status, reply.streams)
    }

    /// Where the next packet of a stream lies.
    pub fn next_index(&mut self, stream: StreamId) -> NextIndex {
        self.next_indexes(stream, 1)[0]
    }

    /// The answers to so many such questions that are asked at once.
    pub fn next_indexes(&mut self, stream: StreamId, times: usize) -> Vec<NextIndex> {
        let replies = self.ask_at_once(&vec![Command::GetNextIndex(stream); times]);
        let index = |reply: Reply| match reply.head {
            Some(Head::Index(index)) => index,
            _ => unreachable!(),
        };
        replies.into_iter().map(index).collect()
    }

    /// Bytes of a packet.
    pub fn packet(&mut self, stream: StreamId, offset: u64, len: u32) -> (PacketHead, Vec<u8>) {
        self.packets(stream, &[(offset, len)]).remove(0)
    }

    /// Bytes of several, asked for at once.
    pub fn packets(
        &mut self,
        stream: StreamId,
        places: &[(u64, u32)],
    ) -> Vec<(PacketHead, Vec<u8>)> {
        let ask = |(offset, len): &(u64, u32)| {
            Command::GetPacket(GetPacket {
                stream,
                offset: Bytes(*offset),
                len: *len,
            })
        };
        let asks: Vec<_> = places.iter().map(ask).collect();
        let packet = |reply: Reply| match reply.head {
            Some(Head::Packet(head)) => (head, reply.bytes),
            _ => unreachable!(),
        };
        self.ask_at_once(&asks).into_iter().map(packet).collect()
    }

    /// Metadata that it has not seen.
    pub fn metadata(&mut self, stream: StreamId) -> (MetadataStatus, Vec<u8>) {
        let reply = self.ask(&Command::GetMetadata(stream));
        let Some(Head::Metadata(head)) = reply.head else {
            unreachable!()
        };
        (head.status, reply.bytes)
    }

    /// Leaves a session.
    pub fn detach(&mut self, session: SessionId) -> DetachStatus {
        let reply = self.ask(&Command::DetachSession(session));
        let Some(Head::Detached(status)) = reply.head else {
            unreachable!()
        };
        status
    }

    /// Its push connection, past the greeting.
    ///
    /// # Panics
    /// If the relay does not push.
    #[must_use]
    pub fn push(&self) -> Push {
        Push::open(self.socket.peer_addr().unwrap(), self.number.unwrap())
    }

    /// The socket, to do to it what no viewer should.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

/// Takes the parts of a reply that are there. Gives whether it is complete.
fn take_parts(client: &mut Client, input: &mut &[u8], reply: &mut Reply) -> bool {
    while let Some(part) = client.receive(input).unwrap() {
        match part {
            Part::Done => return true,
            Part::Session(session) => reply.sessions.push(session),
            Part::Stream(stream) => reply.streams.push(*stream),
            Part::Bytes(bytes) => reply.bytes.extend_from_slice(bytes),
            Part::Head(head) => reply.head = Some(head),
        }
    }
    false
}

/// Streams by the name of their channel.
#[must_use]
pub fn by_channel(streams: &[StreamRecord]) -> BTreeMap<String, StreamId> {
    streams
        .iter()
        .map(|record| (record.channel.0.to_string(), record.stream))
        .collect()
}
