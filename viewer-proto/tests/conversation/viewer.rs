//! A viewer for tests: sends commands to the relay's end of its connection and decodes the replies.

use std::rc::Rc;

use bytes::BytesMut;
use viewer_proto::client::{Client, Head, Part};
use viewer_proto::command::CommandHeader;
use viewer_proto::error::ViewerError;
use viewer_proto::index::NextIndex;
use viewer_proto::metadata::MetadataStatus;
use viewer_proto::packet::PacketStatus;
use viewer_proto::server::{Connection, Progress};
use viewer_proto::session::{
    AttachSession, AttachStatus, CreateStatus, DetachStatus, ListedSession, Seek,
};
use viewer_proto::stream::NewStreamsStatus;
use viewer_proto::{Command, Minor};
use wire::{Field, StreamId};

use crate::fake::{Data, Fake, Letters, SESSION, World};

/// A viewer and the relay's end of its connection, joined in memory.
pub(crate) struct Viewer {
    pub(crate) world: Rc<World>,
    pub(crate) client: Client,
    pub(crate) connection: Connection<Fake>,
    /// Number of replies that have waited for a packet.
    pub(crate) waits: u32,
}

/// The reply to a command, with its records or metadata.
#[derive(Debug, PartialEq)]
pub(crate) enum Response {
    Index(NextIndex),
    /// The length and the flags of a reply.
    Packet(PacketStatus, u32, u32),
    Metadata(MetadataStatus, Vec<u8>),
    Streams(NewStreamsStatus, Vec<u64>),
    Attached(AttachStatus, Vec<u64>),
    Sessions(Vec<ListedSession>),
    Created(CreateStatus),
    Detached(DetachStatus),
}

impl Viewer {
    /// A viewer that has completed its handshake with version 2.`minor`.
    pub(crate) fn connected(minor: u32, world: &Rc<World>) -> Self {
        let client = Client::new(Minor(minor));
        let mut viewer = Self {
            world: Rc::clone(world),
            client,
            connection: Connection::default(),
            waits: 0,
        };
        let mut bytes = Vec::new();
        viewer
            .client
            .send(&viewer.client.connect_command(), &mut bytes)
            .unwrap();
        let replies = viewer.send(&bytes).unwrap();
        let mut input = &replies[..];
        while viewer.client.receive(&mut input).unwrap().is_some() {}
        assert!(input.is_empty());
        viewer
    }

    /// A viewer that has attached to the session with the commands of babeltrace2.
    pub(crate) fn attached(seek: Seek, world: &Rc<World>) -> Self {
        let mut viewer = Self::connected(4, world);
        viewer.request(&Command::CreateViewerSession);
        viewer.request(&Command::ListSessions);
        let Response::Attached(AttachStatus::Ok, _) = viewer.attach(seek.code()) else {
            panic!("not attached");
        };
        viewer
    }

    /// A viewer that has attached to the session with the commands of babeltrace 1.
    pub(crate) fn attached_after_list(world: &Rc<World>) -> Self {
        let mut viewer = Self::connected(4, world);
        viewer.request(&Command::ListSessions);
        viewer.request(&Command::CreateViewerSession);
        viewer.attach(Seek::Beginning.code());
        viewer
    }

    pub(crate) fn attach(&mut self, seek: u32) -> Response {
        self.request(&Command::AttachSession(AttachSession {
            session: SESSION,
            offset: 0,
            seek,
        }))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<BytesMut, ViewerError> {
        let relay = Fake(Rc::clone(&self.world));
        let mut replies = BytesMut::new();
        let mut input = bytes;
        loop {
            match self.connection.advance(&mut input, &relay, &mut replies)? {
                Progress::Advanced => {}
                Progress::Packet((_, len)) => replies.extend_from_slice(&vec![0xaa; len as usize]),
                Progress::Push(_) => panic!("not a command connection"),
                // The packet does not come in time.
                Progress::PacketArriving => self.waits += 1,
                Progress::Awaits(what) => panic!("{what:?} is there"),
                Progress::NeedsMore => return Ok(replies),
            }
        }
    }

    pub(crate) fn request(&mut self, command: &Command) -> Response {
        let mut bytes = Vec::new();
        self.client.send(command, &mut bytes).unwrap();
        let replies = self.send(&bytes).unwrap();
        let mut input = &replies[..];
        let mut response = None;
        loop {
            match self.client.receive(&mut input).unwrap().unwrap() {
                Part::Head(Head::Connected { .. }) => panic!("not asked"),
                Part::Head(Head::Created(status)) => response = Some(Response::Created(status)),
                Part::Head(Head::Detached(status)) => response = Some(Response::Detached(status)),
                Part::Head(Head::Index(index)) => response = Some(Response::Index(index)),
                Part::Head(Head::Packet(head)) => {
                    response = Some(Response::Packet(head.status, head.len, head.flags))
                }
                Part::Head(Head::Metadata(head)) => {
                    response = Some(Response::Metadata(head.status, Vec::new()))
                }
                Part::Head(Head::Sessions(_)) => response = Some(Response::Sessions(Vec::new())),
                Part::Head(Head::Attached(head)) => {
                    response = Some(Response::Attached(head.status, Vec::new()))
                }
                Part::Head(Head::NewStreams(head)) => {
                    response = Some(Response::Streams(head.status, Vec::new()))
                }
                Part::Session(session) => {
                    let Some(Response::Sessions(sessions)) = &mut response else {
                        panic!("not a list")
                    };
                    sessions.push(session);
                }
                Part::Stream(record) => {
                    let Some(Response::Attached(_, streams) | Response::Streams(_, streams)) =
                        &mut response
                    else {
                        panic!("not a list")
                    };
                    streams.push(record.stream.0);
                }
                Part::Bytes(bytes) => {
                    if let Some(Response::Metadata(_, text)) = &mut response {
                        text.extend_from_slice(bytes);
                    }
                }
                Part::Done => break,
            }
        }
        assert!(input.is_empty());
        response.unwrap()
    }

    pub(crate) fn next_index(&mut self, stream: &Data) -> NextIndex {
        let Response::Index(index) = self.request(&Command::GetNextIndex(StreamId(stream.id)))
        else {
            panic!("not an index")
        };
        index
    }

    pub(crate) fn new_streams(&mut self) -> (NewStreamsStatus, Vec<u64>) {
        let Response::Streams(status, streams) = self.request(&Command::GetNewStreams(SESSION))
        else {
            panic!("no streams")
        };
        (status, streams)
    }

    /// Fetches all metadata that exists now. Returns it with the status of the last reply.
    pub(crate) fn metadata(&mut self, stream: &Letters) -> (Vec<u8>, MetadataStatus) {
        let mut all = Vec::new();
        loop {
            match self.request(&Command::GetMetadata(StreamId(stream.id))) {
                Response::Metadata(MetadataStatus::Ok, text) => {
                    assert!(!text.is_empty(), "viewers fail at an empty reply");
                    all.extend_from_slice(&text);
                }
                Response::Metadata(status, _) => return (all, status),
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(crate) fn raw_command(code: u32, data_size: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    CommandHeader {
        data_size,
        code,
        code_version: 0,
    }
    .write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}
