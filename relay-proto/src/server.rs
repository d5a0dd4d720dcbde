//! The relay's end of a control connection: takes bytes, asks a [`Relay`] to act, gives replies.
//!
//! Here stands what the protocol demands whatever the relay does: the order of commands, their
//! lengths, one session per connection, and which refusals end the connection. Nothing here
//! remembers a stream or a session.

use bytes::BufMut;
use wire::{Field, SessionId};

use crate::command::{CommandCode, ControlHeader};
use crate::error::ControlError;
use crate::metadata::SendMetadata;
use crate::relay::{Refusal, Relay};
use crate::reply::{CLEAR_ALLOWED, ChunkExists, Configuration, StreamAdded};
use crate::{Command, Minor, Reply, ReturnCode, Version};

/// Longest command, metadata text included, that a producer may announce. The reference has the
/// same limit; nothing here takes memory by it.
pub const MAX_COMMAND_BYTES: u64 = 128 << 20;

/// What a call to [`Connection::advance`] has come to.
#[derive(Debug)]
pub enum Progress {
    /// Something was done; there may be more to do in what is left of the input.
    Advanced,
    /// A command was refused and the connection goes on. For the log.
    Refused(CommandCode, Refusal),
    /// More bytes must come first.
    NeedsMore,
}

/// One producer's control connection, from `VERSION` on.
#[derive(Debug, Default)]
pub struct Connection {
    minor: Option<Minor>,
    in_session: bool,
    body: Body,
}

/// What the next bytes are.
#[derive(Debug, Default)]
enum Body {
    /// A header.
    #[default]
    Command,
    /// Metadata text.
    Text { left: u64 },
    /// What a command has at its end beyond what is known of it.
    Ignored { left: u64 },
}

impl Connection {
    /// Whether the peer has said which version it speaks.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.minor.is_some()
    }

    /// Whether a command has begun and not ended, given what is left of the input.
    #[must_use]
    pub fn in_command(&self, input: &[u8]) -> bool {
        !input.is_empty() || !matches!(self.body, Body::Command)
    }

    /// Takes one command, or a piece of metadata text, off the front of `input`, has `relay` do it
    /// and appends the reply to `replies`. What is left of `input` must be shown again with what
    /// follows.
    ///
    /// # Errors
    /// If the connection cannot go on: it is to be closed after what is in `replies` is sent.
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        match &mut self.body {
            Body::Command => self.command(input, relay, replies),
            Body::Ignored { left } => {
                if take(input, left).is_empty() {
                    return Ok(Progress::NeedsMore);
                }
                if *left == 0 {
                    self.body = Body::Command;
                }
                Ok(Progress::Advanced)
            }
            Body::Text { left } => {
                let text = take(input, left);
                if text.is_empty() {
                    return Ok(Progress::NeedsMore);
                }
                let mut done = relay.metadata_text(text);
                if *left == 0 {
                    self.body = Body::Command;
                    done = done.and_then(|()| relay.end_metadata());
                }
                done.map_err(|refusal| {
                    let command = CommandCode::SendMetadata;
                    ControlError::Refused { command, refusal }
                })?;
                Ok(Progress::Advanced)
            }
        }
    }

    fn command(
        &mut self,
        input: &mut &[u8],
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        let mut at = *input;
        let Ok(header) = ControlHeader::read(&mut at) else {
            return Ok(Progress::NeedsMore);
        };
        let command = self.admit(&header).inspect_err(|error| {
            if matches!(error, ControlError::UnknownCommand { .. }) {
                ReturnCode::UNKNOWN.write(replies);
            }
        })?;
        let announced = usize::try_from(header.data_size).unwrap_or(usize::MAX);
        let Some((payload, rest)) = at.split_at_checked(announced.min(command.most())) else {
            return Ok(Progress::NeedsMore);
        };
        *input = rest;
        let ignored = (announced - payload.len()) as u64;
        let minor = self.minor.unwrap_or(Minor(0));
        let decoded = Command::decode(command, minor, payload).map_err(|source| {
            match command {
                CommandCode::AddStream => {
                    refused_stream(ReturnCode::UNKNOWN).encode(minor, replies);
                }
                CommandCode::CreateSession => {
                    refused_session(ReturnCode::FATAL).encode(minor, replies);
                }
                _ => {}
            }
            ControlError::Malformed { command, source }
        })?;
        if let Command::SendMetadata(metadata) = decoded {
            return self.metadata(metadata, ignored, relay);
        }
        self.skip(ignored);
        self.answer(command, decoded, relay, replies)
    }

    /// Decides by its header alone whether a command may come now.
    fn admit(&self, header: &ControlHeader) -> Result<CommandCode, ControlError> {
        let unknown = ControlError::UnknownCommand { code: header.code };
        let Ok(command) = CommandCode::from_code(header.code) else {
            return Err(unknown);
        };
        let out_of_place = |why| Err(ControlError::OutOfPlace { command, why });
        match (self.minor, command) {
            (None, CommandCode::Version) => {}
            (None, _) => return out_of_place("VERSION must come first"),
            (Some(_), CommandCode::Version) => return out_of_place("it has come before"),
            (Some(minor), _) if minor < command.since() => return Err(unknown),
            (Some(_), CommandCode::CreateSession) if self.in_session => {
                return out_of_place("the connection has a session");
            }
            (
                Some(_),
                CommandCode::CreateSession | CommandCode::GetConfiguration | CommandCode::StartData,
            ) => {}
            (Some(_), _) if !self.in_session => {
                return out_of_place("the connection has no session");
            }
            (Some(_), _) => {}
        }
        // The one command whose length is part of its meaning.
        let most = match command {
            CommandCode::RotateStreams => command.most() as u64,
            _ => MAX_COMMAND_BYTES,
        };
        if header.data_size > most {
            return Err(ControlError::TooLong {
                command,
                announced: header.data_size,
                most,
            });
        }
        Ok(command)
    }

    fn metadata(
        &mut self,
        metadata: SendMetadata,
        length: u64,
        relay: &mut impl Relay,
    ) -> Result<Progress, ControlError> {
        let command = CommandCode::SendMetadata;
        if length == 0 {
            return Err(ControlError::OutOfPlace {
                command,
                why: "it has no text",
            });
        }
        relay
            .begin_metadata(metadata, length)
            .map_err(|refusal| ControlError::Refused { command, refusal })?;
        self.body = Body::Text { left: length };
        Ok(Progress::Advanced)
    }

    fn skip(&mut self, left: u64) {
        if left > 0 {
            self.body = Body::Ignored { left };
        }
    }

    fn answer(
        &mut self,
        code: CommandCode,
        command: Command,
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        let minor = self.minor.unwrap_or(Minor(0));
        // Either the reply, or how the refusal is answered and whether the connection goes on.
        let ended = |done: Result<(), Refusal>| match done {
            Ok(()) => Ok(Reply::Ended(ReturnCode::OK)),
            Err(refusal) => Err((Reply::Ended(refusal.code), refusal, GoesOn::No)),
        };
        let outcome = match command {
            Command::Version(theirs) => {
                Version::OURS.write(replies);
                self.minor = Some(
                    theirs
                        .common(Version::OURS)
                        .ok_or(ControlError::Incompatible { theirs })?,
                );
                return Ok(Progress::Advanced);
            }
            Command::StartData => Ok(Reply::Ended(ReturnCode::OK)),
            Command::GetConfiguration(ask) if ask.query != 0 => {
                let code = ReturnCode::INVALID_PROTOCOL;
                let refusal = Refusal::new(code, "no query is defined");
                Err((
                    Reply::Configuration(Configuration { code, flags: 0 }),
                    refusal,
                    GoesOn::Yes,
                ))
            }
            Command::GetConfiguration(_) => Ok(Reply::Configuration(Configuration {
                code: ReturnCode::OK,
                flags: if relay.clear_allowed() {
                    CLEAR_ALLOWED
                } else {
                    0
                },
            })),
            Command::CreateSession(session) => match relay.create_session(minor, session) {
                Ok(created) => {
                    self.in_session = true;
                    Ok(Reply::SessionCreated {
                        session: created.session,
                        code: ReturnCode::OK,
                        path: Some(created.path),
                    })
                }
                // LTTng up to 2.13 waits for a byte more before it reads that it was refused: if the
                // connection went on, for ever, and with it everybody who asks the session daemon.
                Err(refusal) => Err((refused_session(refusal.code), refusal, GoesOn::No)),
            },
            Command::AddStream(stream) => match relay.add_stream(stream) {
                Ok(stream) => Ok(Reply::StreamAdded(StreamAdded {
                    stream: Some(stream),
                    code: ReturnCode::OK,
                })),
                Err(refusal) => Err((refused_stream(refusal.code), refusal, GoesOn::Yes)),
            },
            Command::SendMetadata(_) => unreachable!("its text is still to come"),
            Command::StreamsSent => ended(relay.streams_sent()),
            Command::ResetMetadata(reset) => ended(relay.reset_metadata(reset)),
            Command::SendIndex(index) => ended(relay.index(index)),
            Command::CloseStream(close) => ended(relay.close_stream(close)),
            Command::BeginDataPending(_) => {
                relay.begin_data_pending();
                Ok(Reply::Ended(ReturnCode::OK))
            }
            Command::DataPending(ask) => match relay.data_pending(ask) {
                Some(pending) => Ok(Reply::Pending(pending)),
                None => {
                    let refusal = Refusal::new(ReturnCode(u32::MAX), "unknown stream");
                    Err((Reply::PendingUnknown, refusal, GoesOn::No))
                }
            },
            Command::QuiescentControl(ask) => {
                relay.quiescent(ask.stream);
                Ok(Reply::Ended(ReturnCode::OK))
            }
            Command::EndDataPending(_) => Ok(Reply::Pending(relay.end_data_pending())),
            Command::CreateTraceChunk(chunk) => ended(relay.create_chunk(chunk)),
            Command::RotateStreams(rotation) => ended(relay.rotate_streams(rotation)),
            Command::CloseTraceChunk(close) => match relay.close_chunk(close) {
                Ok(path) => Ok(Reply::ChunkClosed {
                    code: ReturnCode::OK,
                    path: Some(path),
                }),
                Err(refusal) => {
                    let reply = Reply::ChunkClosed {
                        code: refusal.code,
                        path: None,
                    };
                    Err((reply, refusal, GoesOn::No))
                }
            },
            Command::TraceChunkExists(ask) => Ok(Reply::ChunkExists(ChunkExists {
                code: ReturnCode::OK,
                exists: u8::from(relay.chunk_exists(ask)),
            })),
        };
        match outcome {
            Ok(reply) => {
                reply.encode(minor, replies);
                Ok(Progress::Advanced)
            }
            Err((reply, refusal, goes_on)) => {
                reply.encode(minor, replies);
                match goes_on {
                    GoesOn::Yes => Ok(Progress::Refused(code, refusal)),
                    GoesOn::No => Err(ControlError::Refused {
                        command: code,
                        refusal,
                    }),
                }
            }
        }
    }
}

/// Whether a refusal leaves the connection open.
enum GoesOn {
    Yes,
    No,
}

fn refused_session(code: ReturnCode) -> Reply {
    Reply::SessionCreated {
        session: SessionId(0),
        code,
        path: None,
    }
}

fn refused_stream(code: ReturnCode) -> Reply {
    Reply::StreamAdded(StreamAdded { stream: None, code })
}

/// Takes what is there of `left` bytes.
fn take<'a>(input: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let here = usize::try_from(*left)
        .unwrap_or(usize::MAX)
        .min(input.len());
    let (taken, rest) = input.split_at(here);
    *input = rest;
    *left -= taken.len() as u64;
    taken
}
