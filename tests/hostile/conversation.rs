//! A conversation with either relay, and what came of it.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;

use relay_proto::reply::StreamAdded;
use relay_proto::{Command, CommandCode, Minor, Reply, Version};
use tests::producer::connect;
use tests::relay::Relay;
use wire::{SessionId, StreamId};

use super::raw;

/// What one relay made of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done.
    Done(String),
    /// It was refused, with this code, and the connection went on.
    Refused(u32),
    /// The connection is over, whatever was said before.
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

/// A conversation with one relay, which knows the numbers that this one gave.
pub(crate) struct Talk {
    socket: TcpStream,
    pub(crate) minor: Minor,
    pub(crate) session: SessionId,
    pub(crate) streams: Vec<StreamId>,
    pub(crate) metadata: Option<StreamId>,
}

impl Talk {
    pub(crate) fn with(relay: &Relay, minor: u32) -> Self {
        let socket = connect(relay.control);
        let mut talk = Self {
            socket,
            minor: Minor(minor),
            session: SessionId(0),
            streams: Vec::new(),
            metadata: None,
        };
        talk.request(
            5,
            CommandCode::Version,
            &payload(&Command::Version(Version { major: 2, minor }), talk.minor),
        );
        talk
    }

    /// The stream that a command of this name is about.
    pub(crate) fn stream(&self, name: &str) -> StreamId {
        let is_of = |whom: &str| name.ends_with(whom);
        let own = match () {
            () if is_of("of nobody") => None,
            () if is_of("of metadata") => self.metadata,
            () => self.streams.last().copied(),
        };
        own.unwrap_or(StreamId(1 << 62))
    }

    /// Sends a command and says what came of it. That the connection goes on is told by an answer to
    /// the next question, which is never refused.
    pub(crate) fn request(&mut self, number: u32, code: CommandCode, payload: &[u8]) -> Outcome {
        if self.socket.write_all(&raw(number, payload)).is_err() {
            return Outcome::Ended;
        }
        let Some(reply) = self.reply(code) else {
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
        if code != CommandCode::Version && !self.goes_on() {
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

    fn goes_on(&mut self) -> bool {
        // It needs no session, and asks for nothing.
        let is_sent = self
            .socket
            .write_all(&raw(CommandCode::StartData.code(), &[]));
        is_sent.is_ok() && self.reply(CommandCode::StartData).is_some()
    }

    fn reply(&mut self, to: CommandCode) -> Option<Reply> {
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

/// What follows the header of a command.
pub(crate) fn payload(command: &Command, minor: Minor) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode(minor, &mut bytes);
    bytes
}
