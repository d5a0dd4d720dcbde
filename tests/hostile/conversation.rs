//! A conversation with one relay, whichever it is: single commands and their outcomes, in a form
//! that can be compared with that of another relay.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::reply::StreamAdded;
use relay_proto::{Command, CommandCode, Minor, Reply, Version};
use tests::producer::connect;
use tests::relay::Relay;
use wire::{SessionId, StreamId};

use super::command_bytes;

/// The outcome of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command was executed; with the reply, where the reply holds no id.
    Done(String),
    /// The command was refused with this return code, and the connection stays open.
    Refused(u32),
    /// The relay closed the connection, with or without a reply.
    Ended,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(what) => write!(f, "done {what}"),
            Self::Refused(code) => write!(f, "refused {code}"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// A control connection to one relay, and the ids that this relay has given.
pub(crate) struct Conversation {
    socket: TcpStream,
    pub(crate) minor: Minor,
    pub(crate) session: SessionId,
    pub(crate) streams: Vec<StreamId>,
    pub(crate) metadata: Option<StreamId>,
}

impl Conversation {
    pub(crate) fn connect(relay: &Relay, minor: u32) -> Self {
        let socket = connect(relay.control);
        let mut conversation = Self {
            socket,
            minor: Minor(minor),
            session: SessionId(0),
            streams: Vec::new(),
            metadata: None,
        };
        conversation.request(
            5,
            CommandCode::Version,
            &payload(
                &Command::Version(Version { major: 2, minor }),
                conversation.minor,
            ),
        );
        conversation
    }

    /// Returns the stream that a command of this name refers to: the last one added, the metadata
    /// stream, or an unknown one.
    pub(crate) fn stream(&self, name: &str) -> StreamId {
        let is_of = |which: &str| name.ends_with(which);
        let own = match () {
            () if is_of("of unknown stream") => None,
            () if is_of("of metadata") => self.metadata,
            () => self.streams.last().copied(),
        };
        own.unwrap_or(StreamId(1 << 62))
    }

    /// Sends a command and returns its outcome. Whether the connection stays open is known only
    /// from the reply to another command, START_DATA.
    pub(crate) fn request(&mut self, number: u32, code: CommandCode, payload: &[u8]) -> Outcome {
        if self
            .socket
            .write_all(&command_bytes(number, payload))
            .is_err()
        {
            return Outcome::Ended;
        }
        let Some(reply) = self.receive_reply(code) else {
            return Outcome::Ended;
        };
        let what = match &reply {
            Reply::SessionCreated { session, .. } if reply.is_ok() => {
                self.session = *session;
                String::new()
            }
            Reply::StreamAdded(StreamAdded {
                stream: Some(stream),
                ..
            }) if reply.is_ok() => {
                self.streams.push(*stream);
                String::new()
            }
            Reply::Pending(_) | Reply::ChunkExists(_) | Reply::ChunkClosed { .. }
                if reply.is_ok() =>
            {
                format!("{reply:?}")
            }
            _ => String::new(),
        };
        if code != CommandCode::Version && !self.is_open() {
            return Outcome::Ended;
        }
        if reply.is_ok() {
            return Outcome::Done(what);
        }
        Outcome::Refused(match reply {
            Reply::Ended(code)
            | Reply::SessionCreated { code, .. }
            | Reply::StreamAdded(StreamAdded { code, .. })
            | Reply::ChunkClosed { code, .. } => code.0,
            Reply::Configuration(configuration) => configuration.code.0,
            Reply::ChunkExists(exists) => exists.code.0,
            _ => u32::MAX,
        })
    }

    fn is_open(&mut self) -> bool {
        // START_DATA needs no session, changes nothing and is never refused.
        let is_sent = self
            .socket
            .write_all(&command_bytes(CommandCode::StartData.code(), &[]));
        is_sent.is_ok() && self.receive_reply(CommandCode::StartData).is_some()
    }

    fn receive_reply(&mut self, to: CommandCode) -> Option<Reply> {
        let mut received = Vec::new();
        loop {
            if let Ok(Some(reply)) = Reply::decode(to, self.minor, &mut &received[..]) {
                return Some(reply);
            }
            let mut byte = [0];
            match self.socket.read(&mut byte) {
                Ok(1) => received.push(byte[0]),
                _ => return None,
            }
        }
    }
}

/// Returns the bytes of a command without its header.
pub(crate) fn payload(command: &Command, minor: Minor) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(minor, &mut bytes);
    bytes
}
