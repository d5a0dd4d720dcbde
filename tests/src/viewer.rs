//! A synthetic viewer on `viewer-proto`, for what Babeltrace does not do: single requests, invalid
//! requests, pauses.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use viewer_proto::client::{Client, Head, Part};
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::{GetPacket, PacketHead};
use viewer_proto::session::{AttachSession, AttachStatus, DetachStatus, ListedSession, Seek};
use viewer_proto::stream::{NewStreamsStatus, StreamRecord};
use viewer_proto::{Command, Minor};
use wire::{Bytes, SessionId, StreamId, ViewerId};

use crate::producer::connect;
use crate::push::PushConnection;
use crate::wait_for;

/// Returns the host name that sessions of this host's session daemon have.
///
/// # Panics
/// If the host name is not UTF-8.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_str()
        .unwrap()
        .to_owned()
}

/// A command connection to a relay's live port.
#[derive(Debug)]
pub struct Viewer {
    socket: TcpStream,
    client: Client,
    received: Vec<u8>,
    /// The id that the relay has given this viewer in its CONNECT reply.
    pub id: Option<ViewerId>,
}

/// A whole reply, whatever its command.
#[derive(Debug, Default)]
pub struct Reply {
    /// The fixed part of the reply.
    pub head: Option<Head>,
    /// The sessions of LIST_SESSIONS; otherwise empty.
    pub sessions: Vec<ListedSession>,
    /// The streams of ATTACH_SESSION and GET_NEW_STREAMS; otherwise empty.
    pub streams: Vec<StreamRecord>,
    /// The bytes of GET_PACKET and GET_METADATA; otherwise empty.
    pub bytes: Vec<u8>,
}

impl Viewer {
    /// Connects with the newest protocol version of `viewer-proto`.
    #[must_use]
    pub fn connect(live: SocketAddr) -> Self {
        Self::connect_as(live, Minor::OURS)
    }

    /// Connects with protocol 2.`minor` as the highest version.
    ///
    /// # Panics
    /// If the relay does not listen.
    #[must_use]
    pub fn connect_as(live: SocketAddr, minor: Minor) -> Self {
        let mut viewer = Self {
            socket: connect(live),
            client: Client::new(minor),
            received: Vec::new(),
            id: None,
        };
        let hello = viewer.client.connect_command();
        if let Some(Head::Connected { viewer: id, .. }) = viewer.request(&hello).head {
            viewer.id = id;
        }
        viewer
    }

    /// Connects, waits for a session of this name and attaches to it. Returns the viewer, the
    /// session and its streams.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn attached(
        live: SocketAddr,
        session: &str,
        seek: Seek,
    ) -> (Self, SessionId, Vec<StreamRecord>) {
        let mut viewer = Self::connect(live);
        viewer.request(&Command::CreateViewerSession);
        let id = viewer.wait_for_session(session).session;
        let (status, streams) = viewer.attach(id, seek.code());
        assert_eq!(status, AttachStatus::Ok);
        (viewer, id, streams)
    }

    /// Sends a command and waits for its whole reply.
    ///
    /// # Panics
    /// If the reply breaks the protocol, or the relay closes the connection.
    pub fn request(&mut self, command: &Command) -> Reply {
        let mut replies = self.request_pipelined(std::slice::from_ref(command));
        replies.remove(0)
    }

    /// Sends all commands before it reads the replies, which it returns in the same order.
    ///
    /// # Panics
    /// If a reply breaks the protocol, or the relay closes the connection.
    pub fn request_pipelined(&mut self, commands: &[Command]) -> Vec<Reply> {
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
                && read_parts(&mut self.client, &mut input, &mut reply)
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
                "the relay closed the connection without a reply: {commands:?}"
            );
            self.received.extend_from_slice(&buffer[..read]);
        }
    }

    /// Returns the sessions that the relay lists.
    pub fn sessions(&mut self) -> Vec<ListedSession> {
        self.request(&Command::ListSessions).sessions
    }

    /// Waits until the relay lists a session of this name.
    pub fn wait_for_session(&mut self, name: &str) -> ListedSession {
        self.wait_for_listed(name, |_| true)
    }

    /// Waits until the relay lists a session of this name for which `condition` holds.
    pub fn wait_for_listed(
        &mut self,
        name: &str,
        condition: impl Fn(&ListedSession) -> bool,
    ) -> ListedSession {
        let is_it = |session: &ListedSession| {
            session.name.as_bytes() == name.as_bytes() && condition(session)
        };
        wait_for("a session is listed", || {
            self.sessions().into_iter().find(is_it)
        })
    }

    /// Attaches to a session. `seek` is the code of a [`Seek`], or an invalid one.
    pub fn attach(&mut self, session: SessionId, seek: u32) -> (AttachStatus, Vec<StreamRecord>) {
        let reply = self.request(&Command::AttachSession(AttachSession {
            session,
            offset: 0,
            seek,
        }));
        let Some(Head::Attached(attached)) = reply.head else {
            unreachable!()
        };
        (attached.status, reply.streams)
    }

    /// Returns the streams that the relay has not announced to this viewer.
    pub fn new_streams(&mut self, session: SessionId) -> (NewStreamsStatus, Vec<StreamRecord>) {
        let reply = self.request(&Command::GetNewStreams(session));
        let Some(Head::NewStreams(new)) = reply.head else {
            unreachable!()
        };
        (new.status, reply.streams)
    }

    /// Returns the next index of a stream (GET_NEXT_INDEX).
    pub fn next_index(&mut self, stream: StreamId) -> NextIndex {
        self.next_indexes(stream, 1)[0]
    }

    /// Waits until the next index of a stream is not RETRY, and returns it.
    pub fn wait_for_index(&mut self, stream: StreamId) -> NextIndex {
        wait_for("the next index is available", || {
            let index = self.next_index(stream);
            (index.status != IndexStatus::Retry).then_some(index)
        })
    }

    /// Returns the next `times` indexes of a stream, requested in one pipeline.
    pub fn next_indexes(&mut self, stream: StreamId, times: usize) -> Vec<NextIndex> {
        let replies = self.request_pipelined(&vec![Command::GetNextIndex(stream); times]);
        let index = |reply: Reply| match reply.head {
            Some(Head::Index(index)) => index,
            _ => unreachable!(),
        };
        replies.into_iter().map(index).collect()
    }

    /// Returns `len` bytes of a stream's packets from byte `offset` on (GET_PACKET).
    pub fn packet(&mut self, stream: StreamId, offset: u64, len: u32) -> (PacketHead, Vec<u8>) {
        self.packets(stream, &[(offset, len)]).remove(0)
    }

    /// Returns several pieces of a stream's packets, each by its offset and length, requested in
    /// one pipeline.
    pub fn packets(
        &mut self,
        stream: StreamId,
        ranges: &[(u64, u32)],
    ) -> Vec<(PacketHead, Vec<u8>)> {
        let request = |(offset, len): &(u64, u32)| {
            Command::GetPacket(GetPacket {
                stream,
                offset: Bytes(*offset),
                len: *len,
            })
        };
        let requests: Vec<_> = ranges.iter().map(request).collect();
        let packet = |reply: Reply| match reply.head {
            Some(Head::Packet(head)) => (head, reply.bytes),
            _ => unreachable!(),
        };
        self.request_pipelined(&requests)
            .into_iter()
            .map(packet)
            .collect()
    }

    /// Returns the metadata that the relay has not sent to this viewer (GET_METADATA).
    pub fn metadata(&mut self, stream: StreamId) -> (MetadataStatus, Vec<u8>) {
        let reply = self.request(&Command::GetMetadata(stream));
        let Some(Head::Metadata(head)) = reply.head else {
            unreachable!()
        };
        (head.status, reply.bytes)
    }

    /// Detaches from a session.
    pub fn detach(&mut self, session: SessionId) -> DetachStatus {
        let reply = self.request(&Command::DetachSession(session));
        let Some(Head::Detached(status)) = reply.head else {
            unreachable!()
        };
        status
    }

    /// Opens a push connection of this viewer and reads the notifications that it begins with.
    ///
    /// # Panics
    /// If the relay does not push.
    #[must_use]
    pub fn open_push(&self) -> PushConnection {
        PushConnection::open(self.socket.peer_addr().unwrap(), self.id.unwrap())
    }

    /// Returns the socket, for bytes that no viewer should send.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

/// Reads the parts of a reply that have arrived. Returns whether the reply is complete.
fn read_parts(client: &mut Client, input: &mut &[u8], reply: &mut Reply) -> bool {
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

/// Returns the ids of streams by the names of their channels; of equal names the last.
#[must_use]
pub fn by_channel(streams: &[StreamRecord]) -> BTreeMap<String, StreamId> {
    streams
        .iter()
        .map(|record| (record.channel.0.to_string(), record.stream))
        .collect()
}
