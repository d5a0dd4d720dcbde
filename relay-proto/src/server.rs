//! The relay's end of a control connection: a state machine that decodes commands, has a [`Relay`]
//! execute them, and encodes the replies.
//!
//! It enforces the rules of the protocol: the order of commands, their lengths, one session per
//! connection, and which refusals close the connection. It holds no state of streams and sessions.

use bytes::BufMut;
use wire::{Field, SessionId, split_up_to};

use crate::chunk::CloseTraceChunk;
use crate::command::{CommandCode, ControlHeader, GetConfiguration};
use crate::error::ControlError;
use crate::metadata::SendMetadata;
use crate::relay::{Refusal, Relay};
use crate::reply::{CLEAR_ALLOWED, ChunkExists, Configuration, RESUME, StreamAdded};
use crate::resume::{MakeResumable, OpenStream, ResumeSession, StreamOpened, StreamPosition};
use crate::session::CreateSession;
use crate::stream::AddStream;
use crate::{Command, Minor, Reply, ReturnCode, Version};

/// Longest command that a producer may announce, including metadata text, in bytes. `lttng-relayd`
/// has the same limit. No memory is allocated for an announced length.
pub const MAX_COMMAND_BYTES: u64 = 128 << 20;

/// Outcome of a call to [`Connection::advance`].
#[derive(Debug)]
pub enum Progress {
    /// A command, or part of one, has been handled. Call again with the rest of the input.
    Advanced,
    /// A command was refused, and the connection stays open. For the log.
    Refused(CommandCode, Refusal),
    /// More bytes are needed.
    NeedsMore,
}

/// One producer's control connection, from `VERSION` on.
#[derive(Debug, Default)]
pub struct Connection {
    /// The agreed minor version. None before VERSION.
    minor: Option<Minor>,
    has_session: bool,
    body: Body,
}

/// Meaning of the next bytes.
#[derive(Debug, Default)]
enum Body {
    /// The header of a command.
    #[default]
    Command,
    /// Metadata text, `left` bytes.
    Text { left: u64 },
    /// Unknown fields at the end of a command, `left` bytes.
    Ignored { left: u64 },
}

impl Connection {
    /// Whether the handshake is complete: the producer has sent VERSION.
    #[must_use]
    pub fn is_greeted(&self) -> bool {
        self.minor.is_some()
    }

    /// Whether a command is incomplete, given the rest of the input.
    #[must_use]
    pub fn in_command(&self, input: &[u8]) -> bool {
        !input.is_empty() || !matches!(self.body, Body::Command)
    }

    /// Takes one command, or a piece of metadata text, off the front of `input`, has `relay`
    /// execute it, and appends the reply to `replies`. The rest of `input` must be passed again,
    /// with the bytes that follow.
    ///
    /// # Errors
    /// If the connection cannot continue: it is to be closed after `replies` are sent.
    pub fn advance(
        &mut self,
        input: &mut &[u8],
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        match &mut self.body {
            Body::Command => self.read_command(input, relay, replies),
            Body::Ignored { left } => {
                if split_up_to(input, left).is_empty() {
                    return Ok(Progress::NeedsMore);
                }
                if *left == 0 {
                    self.body = Body::Command;
                }
                Ok(Progress::Advanced)
            }
            // Text is handled as it arrives: a command may announce 128 MiB, of which nothing is
            // buffered.
            Body::Text { left } => {
                let text = split_up_to(input, left);
                if text.is_empty() {
                    return Ok(Progress::NeedsMore);
                }
                let mut written = relay.metadata_text(text);
                if *left == 0 {
                    self.body = Body::Command;
                    written = written.and_then(|()| relay.end_metadata());
                }
                written.map_err(|refusal| {
                    let command = CommandCode::SendMetadata;
                    ControlError::Refused { command, refusal }
                })?;
                Ok(Progress::Advanced)
            }
        }
    }

    fn read_command(
        &mut self,
        input: &mut &[u8],
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        let mut at = *input;
        let Ok(header) = ControlHeader::read(&mut at) else {
            return Ok(Progress::NeedsMore);
        };
        let command = self.check_header(&header, relay).inspect_err(|error| {
            if matches!(error, ControlError::UnknownCommand { .. }) {
                ReturnCode::UNKNOWN.write(replies);
            }
        })?;
        // Only the known fields are awaited. Bytes after them are metadata text, or fields of a
        // newer producer.
        let announced = usize::try_from(header.data_size).unwrap_or(usize::MAX);
        let Some((payload, rest)) = at.split_at_checked(announced.min(command.max_size())) else {
            return Ok(Progress::NeedsMore);
        };
        *input = rest;
        let ignored = (announced - payload.len()) as u64;
        let minor = self.minor.unwrap_or(Minor(0));
        // Three commands have replies longer than a code. Producers read as many bytes before they
        // look at it.
        let decoded = Command::decode(command, minor, payload).map_err(|source| {
            match command {
                CommandCode::AddStream => {
                    refused_stream(ReturnCode::UNKNOWN).encode(minor, replies);
                }
                CommandCode::CreateSession => {
                    refused_session(ReturnCode::FATAL).encode(minor, replies);
                }
                CommandCode::OpenStream => {
                    refused_open(ReturnCode::UNKNOWN).encode(minor, replies);
                }
                _ => {}
            }
            ControlError::Malformed { command, source }
        })?;
        if let Command::SendMetadata(metadata) = decoded {
            return self.begin_metadata(metadata, ignored, relay);
        }
        if ignored > 0 {
            self.body = Body::Ignored { left: ignored };
        }
        self.handle_command(command, decoded, relay, replies)
    }

    /// Checks by its header whether a command is allowed in the state of the connection.
    fn check_header(
        &self,
        header: &ControlHeader,
        relay: &impl Relay,
    ) -> Result<CommandCode, ControlError> {
        let unknown = ControlError::UnknownCommand { code: header.code };
        let Ok(command) = CommandCode::from_code(header.code) else {
            return Err(unknown);
        };
        let out_of_place = |why| Err(ControlError::OutOfPlace { command, why });
        match (self.minor, command) {
            (None, CommandCode::Version) => {}
            (None, _) => return out_of_place("VERSION must come first"),
            (Some(_), CommandCode::Version) => return out_of_place("VERSION has been sent before"),
            // Unknown, as it is to the relays of that version.
            (Some(minor), _) if minor < command.since() => return Err(unknown),
            _ if command.is_extension() && !relay.has_resume() => return Err(unknown),
            (_, CommandCode::CreateSession | CommandCode::ResumeSession) if self.has_session => {
                return out_of_place("the connection has a session");
            }
            (_, CommandCode::CreateSession | CommandCode::ResumeSession) => {}
            (_, CommandCode::GetConfiguration | CommandCode::GetClock | CommandCode::StartData) => {
            }
            _ if !self.has_session => return out_of_place("the connection has no session"),
            _ => {}
        }
        // The only command whose length is part of its meaning: it depends on the sender's ABI.
        let max = match command {
            CommandCode::RotateStreams => command.max_size() as u64,
            _ => MAX_COMMAND_BYTES,
        };
        if header.data_size > max {
            return Err(ControlError::TooLong {
                command,
                announced: header.data_size,
                max,
            });
        }
        Ok(command)
    }

    fn begin_metadata(
        &mut self,
        metadata: SendMetadata,
        length: u64,
        relay: &mut impl Relay,
    ) -> Result<Progress, ControlError> {
        let command = CommandCode::SendMetadata;
        if length == 0 {
            let why = "metadata without text";
            return Err(ControlError::OutOfPlace { command, why });
        }
        relay
            .begin_metadata(metadata, length)
            .map_err(|refusal| ControlError::Refused { command, refusal })?;
        self.body = Body::Text { left: length };
        Ok(Progress::Advanced)
    }

    fn handle_command(
        &mut self,
        code: CommandCode,
        command: Command,
        relay: &mut impl Relay,
        replies: &mut impl BufMut,
    ) -> Result<Progress, ControlError> {
        if let Command::Version(theirs) = command {
            // Not the agreed version: each end computes that from both.
            Version::OURS.write(replies);
            // After the reply, from which the producer learns that the versions do not match.
            let minor = theirs.common(Version::OURS);
            self.minor = Some(minor.ok_or(ControlError::Incompatible { theirs })?);
            return Ok(Progress::Advanced);
        }
        let minor = self.minor.unwrap_or(Minor(0));
        let rejection = match self.execute(minor, command, relay) {
            Ok(reply) => {
                reply.encode(minor, replies);
                return Ok(Progress::Advanced);
            }
            Err(rejection) => rejection,
        };
        rejection.reply.encode(minor, replies);
        let (command, refusal) = (code, rejection.refusal);
        match rejection.consequence {
            Consequence::KeepOpen => Ok(Progress::Refused(command, refusal)),
            Consequence::Close => Err(ControlError::Refused { command, refusal }),
        }
    }

    /// Has the relay execute a command, and returns the reply.
    fn execute(
        &mut self,
        minor: Minor,
        command: Command,
        relay: &mut impl Relay,
    ) -> Result<Reply, Rejection> {
        match command {
            Command::Version(_) => unreachable!("it is handled before"),
            Command::SendMetadata(_) => unreachable!("its text is still to come"),
            Command::StartData => Ok(Reply::Ended(ReturnCode::OK)),
            Command::GetConfiguration(request) => configuration(request, relay),
            Command::CreateSession(session) => {
                let created = create_session(minor, session, relay)?;
                self.has_session = true;
                Ok(created)
            }
            Command::AddStream(stream) => add_stream(stream, relay),
            Command::StreamsSent => status_only(relay.streams_sent()),
            Command::ResetMetadata(reset) => status_only(relay.reset_metadata(reset)),
            Command::SendIndex(index) => status_only(relay.add_index(index)),
            Command::CloseStream(close) => status_only(relay.close_stream(close)),
            Command::BeginDataPending(_) => {
                relay.begin_data_pending();
                Ok(Reply::Ended(ReturnCode::OK))
            }
            Command::DataPending(request) => {
                let pending = relay.data_pending(request);
                pending.map(Reply::Pending).ok_or_else(|| {
                    let refusal = Refusal::new(ReturnCode(u32::MAX), "unknown stream");
                    Rejection::close(Reply::PendingUnknown, refusal)
                })
            }
            Command::QuiescentControl(request) => {
                relay.quiescent_control(request.stream);
                Ok(Reply::Ended(ReturnCode::OK))
            }
            Command::EndDataPending(_) => Ok(Reply::Pending(relay.end_data_pending())),
            Command::CreateTraceChunk(chunk) => status_only(relay.create_chunk(chunk)),
            Command::RotateStreams(rotation) => status_only(relay.rotate_streams(rotation)),
            Command::CloseTraceChunk(close) => close_chunk(close, relay),
            Command::TraceChunkExists(request) => Ok(Reply::ChunkExists(ChunkExists {
                code: ReturnCode::OK,
                exists: u8::from(relay.chunk_exists(request)),
            })),
            Command::MakeResumable(request) => make_resumable(request, relay),
            Command::ResumeSession(request) => {
                // Only if it succeeds: else the producer creates a session on this connection.
                let resumed = resume_session(minor, request, relay)?;
                self.has_session = true;
                Ok(resumed)
            }
            Command::OpenStream(request) => open_stream(request, relay),
            Command::GetPosition(request) => {
                let reply = |code, (written, durable)| {
                    Reply::Position(StreamPosition {
                        code,
                        written,
                        durable,
                    })
                };
                let position = relay.position(request.stream);
                position
                    .map(|position| reply(ReturnCode::OK, position))
                    .ok_or_else(|| {
                        let refusal = Refusal::new(ReturnCode::UNKNOWN, "unknown stream");
                        Rejection::close(reply(refusal.code, (0, 0)), refusal)
                    })
            }
            Command::SkipPackets(request) => status_only(relay.skip_packets(request)),
            Command::GetClock => Ok(Reply::Clock(relay.clock())),
        }
    }
}

/// A command that the relay has refused.
struct Rejection {
    reply: Reply,
    refusal: Refusal,
    consequence: Consequence,
}

/// The consequence of a refusal.
enum Consequence {
    /// The connection stays open.
    KeepOpen,
    /// The connection is closed after the reply.
    Close,
}

impl Rejection {
    fn keep_open(reply: Reply, refusal: Refusal) -> Self {
        Self {
            reply,
            refusal,
            consequence: Consequence::KeepOpen,
        }
    }

    fn close(reply: Reply, refusal: Refusal) -> Self {
        Self {
            reply,
            refusal,
            consequence: Consequence::Close,
        }
    }
}

/// The reply to a command that has no other result than its return code.
fn status_only(result: Result<(), Refusal>) -> Result<Reply, Rejection> {
    match result {
        Ok(()) => Ok(Reply::Ended(ReturnCode::OK)),
        Err(refusal) => Err(Rejection::close(Reply::Ended(refusal.code), refusal)),
    }
}

fn configuration(request: GetConfiguration, relay: &impl Relay) -> Result<Reply, Rejection> {
    let reply = |code, flags| Reply::Configuration(Configuration { code, flags });
    if request.query != 0 {
        let code = ReturnCode::INVALID_PROTOCOL;
        let refusal = Refusal::new(code, "unknown query");
        return Err(Rejection::keep_open(reply(code, 0), refusal));
    }
    let is_allowed = u64::from(relay.clear_allowed()) * CLEAR_ALLOWED;
    let has_resume = u64::from(relay.has_resume()) * RESUME;
    Ok(reply(ReturnCode::OK, is_allowed | has_resume))
}

fn make_resumable(request: MakeResumable, relay: &mut impl Relay) -> Result<Reply, Rejection> {
    match relay.make_resumable(request) {
        // The producer closes the connection, and creates the session at another time.
        Err(refusal) if refusal.code == ReturnCode::EXISTS => {
            Err(Rejection::keep_open(Reply::Ended(refusal.code), refusal))
        }
        made => status_only(made),
    }
}

fn resume_session(
    minor: Minor,
    request: ResumeSession,
    relay: &mut impl Relay,
) -> Result<Reply, Rejection> {
    match relay.resume_session(minor, request) {
        Ok(created) => Ok(Reply::SessionCreated {
            session: created.session,
            code: ReturnCode::OK,
            path: Some(created.path),
        }),
        // The producer then creates a session.
        Err(refusal) => Err(Rejection::keep_open(refused_session(refusal.code), refusal)),
    }
}

fn open_stream(request: OpenStream, relay: &mut impl Relay) -> Result<Reply, Rejection> {
    match relay.open_stream(request) {
        Ok((stream, next)) => Ok(Reply::StreamOpened(StreamOpened {
            stream,
            code: ReturnCode::OK,
            next,
        })),
        Err(refusal) => Err(Rejection::keep_open(refused_open(refusal.code), refusal)),
    }
}

fn create_session(
    minor: Minor,
    session: CreateSession,
    relay: &mut impl Relay,
) -> Result<Reply, Rejection> {
    match relay.create_session(minor, session) {
        Ok(created) => Ok(Reply::SessionCreated {
            session: created.session,
            code: ReturnCode::OK,
            path: Some(created.path),
        }),
        // The connection is closed because LTTng up to 2.13 waits for one more byte before it reads
        // that the session was refused. On an open connection it would wait without end, and so
        // would every client of the session daemon.
        Err(refusal) => Err(Rejection::close(refused_session(refusal.code), refusal)),
    }
}

fn add_stream(stream: AddStream, relay: &mut impl Relay) -> Result<Reply, Rejection> {
    match relay.add_stream(stream) {
        Ok(stream) => Ok(Reply::StreamAdded(StreamAdded {
            stream: Some(stream),
            code: ReturnCode::OK,
        })),
        // lttng-relayd keeps the connection open here, too. After most other refusals it closes the
        // connection.
        Err(refusal) => Err(Rejection::keep_open(refused_stream(refusal.code), refusal)),
    }
}

fn close_chunk(close: CloseTraceChunk, relay: &mut impl Relay) -> Result<Reply, Rejection> {
    let reply = |code, path| Reply::ChunkClosed { code, path };
    match relay.close_chunk(close) {
        Ok(path) => Ok(reply(ReturnCode::OK, Some(path))),
        Err(refusal) => Err(Rejection::close(reply(refusal.code, None), refusal)),
    }
}

fn refused_session(code: ReturnCode) -> Reply {
    Reply::SessionCreated {
        session: SessionId(0),
        code,
        path: None,
    }
}

fn refused_open(code: ReturnCode) -> Reply {
    Reply::StreamOpened(StreamOpened {
        stream: None,
        code,
        next: 0,
    })
}

fn refused_stream(code: ReturnCode) -> Reply {
    Reply::StreamAdded(StreamAdded { stream: None, code })
}
