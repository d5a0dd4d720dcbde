//! The push connection: a second connection of a viewer's, on which the relay says that there is
//! more, so that the viewer need not ask again and again.
//!
//! It belongs to the viewer's command connection, which it names in `CONNECT`, and it is about what
//! that one is attached to. After the two `CONNECT`s the relay says [`Hello`] at once, then
//! [`Notification`]s; the viewer, no more than whether it wants beacons
//! ([`BeaconInterest`](crate::beacon_interest::BeaconInterest)). Nothing is fetched here: a notification says what to ask for on the other
//! connection. Of each thing it is said once that there is more, and not again before the viewer
//! has fetched that: a viewer that does not fetch, or does not read, is sent nothing.
//!
//! An LTTng relay accepts such a connection and never speaks: see [`Hello`].

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field, SessionId, StreamId, Timestamp, TraceId, ViewerId};
use wire::{wire_enum, wire_struct};

use crate::Command;
use crate::version::{Connect, ConnectionKind, MAJOR, Minor};

/// The version of what is pushed that this crate speaks.
pub const VERSION: u32 = 1;

/// Most bytes behind the header of a notification that a viewer takes.
const MAX_BYTES: u32 = 4096;

wire_struct! {
    /// Stands before every notification.
    #[derive(Copy)]
    pub NotificationHeader [8 bytes] {
        /// The notification's [`NotificationCode`], or one that is not known here: to be skipped.
        code: u32,
        /// Bytes that follow. What is not known of them is at the end, and ignored.
        size: u32,
    }

    /// The relay does push. It comes right behind the relay's `CONNECT`: if it does not come within
    /// a second of that, this relay does not push.
    #[derive(Copy)]
    pub Hello [4 bytes] {
        /// What it speaks: [`VERSION`].
        version: u32,
    }

    /// Packets are there.
    #[derive(Copy)]
    pub PacketsWait [16 bytes] {
        /// The stream.
        stream: StreamId,
        /// Packets whose index the viewer has not asked for. The next notification of this stream
        /// comes after it has asked for so many.
        unread: u64,
    }

    /// There is no packet that the viewer has not had the index of, and none with anything from
    /// before `until` will come. As [`Inactive`](crate::index::IndexStatus::Inactive), unasked. Not
    /// said to a viewer [`AtEase`](crate::beacon_interest::BeaconInterest::Unsubscribed).
    #[derive(Copy)]
    pub Quiet [16 bytes] {
        /// The stream.
        stream: StreamId,
        /// Time of the beacon. Grows from one to the next.
        until: Timestamp,
    }

    /// Metadata is there. The next such notification comes after the viewer has been told that it
    /// has everything.
    #[derive(Copy)]
    pub MetadataWaits [16 bytes] {
        /// The metadata stream.
        stream: StreamId,
        /// The trace that it describes.
        trace: TraceId,
    }
}

wire_enum! {
    /// What can be pushed.
    pub NotificationCode {
        /// The relay does push.
        Hello = 1,
        /// A stream has packets.
        Packets = 2,
        /// A stream has none, up to a time.
        Quiet = 3,
        /// A stream has no packet left, and none will come.
        StreamOver = 4,
        /// A trace has metadata.
        Metadata = 5,
        /// A session has streams that the viewer has not been told of.
        NewStreams = 6,
        /// A session's producer is gone.
        SessionOver = 7,
        /// The list of sessions has changed.
        Sessions = 8,
    }
}

/// What the relay pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// It does push; comes first, and once.
    Hello(Hello),
    /// `GET_NEXT_INDEX` would be answered with a packet.
    Packets(PacketsWait),
    /// `GET_NEXT_INDEX` would be answered that there is nothing up to a time: there is no need to.
    Quiet(Quiet),
    /// `GET_NEXT_INDEX` would be answered that the stream is over: there is no need to.
    StreamOver(StreamId),
    /// `GET_METADATA` would be answered with some.
    Metadata(MetadataWaits),
    /// `GET_NEW_STREAMS` would be answered with some.
    NewStreams(SessionId),
    /// No stream will be added to a session. What has not been read of it can still be read.
    SessionOver(SessionId),
    /// Sessions have come or gone: `LIST_SESSIONS` tells which. Also comes once at the beginning.
    Sessions,
}

impl NotificationCode {
    /// Bytes behind the header.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Hello => Hello::SIZE,
            Self::Packets => PacketsWait::SIZE,
            Self::Quiet => Quiet::SIZE,
            Self::StreamOver => StreamId::SIZE,
            Self::Metadata => MetadataWaits::SIZE,
            Self::NewStreams | Self::SessionOver => SessionId::SIZE,
            Self::Sessions => 0,
        }
    }
}

impl Notification {
    /// Its number in the table.
    #[must_use]
    pub fn code(&self) -> NotificationCode {
        match self {
            Self::Hello(_) => NotificationCode::Hello,
            Self::Packets(_) => NotificationCode::Packets,
            Self::Quiet(_) => NotificationCode::Quiet,
            Self::StreamOver(_) => NotificationCode::StreamOver,
            Self::Metadata(_) => NotificationCode::Metadata,
            Self::NewStreams(_) => NotificationCode::NewStreams,
            Self::SessionOver(_) => NotificationCode::SessionOver,
            Self::Sessions => NotificationCode::Sessions,
        }
    }

    /// Reads what follows the header.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn decode(code: NotificationCode, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        Ok(match code {
            NotificationCode::Hello => Self::Hello(Field::read(from)?),
            NotificationCode::Packets => Self::Packets(Field::read(from)?),
            NotificationCode::Quiet => Self::Quiet(Field::read(from)?),
            NotificationCode::StreamOver => Self::StreamOver(Field::read(from)?),
            NotificationCode::Metadata => Self::Metadata(Field::read(from)?),
            NotificationCode::NewStreams => Self::NewStreams(Field::read(from)?),
            NotificationCode::SessionOver => Self::SessionOver(Field::read(from)?),
            NotificationCode::Sessions => Self::Sessions,
        })
    }

    /// Appends the notification with its header.
    pub fn encode(&self, to: &mut impl BufMut) {
        let code = self.code();
        NotificationHeader {
            code: code.code(),
            size: u32::try_from(code.size()).unwrap_or(u32::MAX),
        }
        .write(to);
        match self {
            Self::Hello(hello) => hello.write(to),
            Self::Packets(packets) => packets.write(to),
            Self::Quiet(quiet) => quiet.write(to),
            Self::StreamOver(stream) => stream.write(to),
            Self::Metadata(metadata) => metadata.write(to),
            Self::NewStreams(session) | Self::SessionOver(session) => session.write(to),
            Self::Sessions => {}
        }
    }
}

/// Appends what the relay says first: its `CONNECT`, and that it does push.
pub fn welcome(to: &mut impl BufMut) {
    Connect {
        // Notifications have no number, with LTTng's relay neither.
        viewer: Some(ViewerId(0)),
        major: MAJOR,
        minor: Minor::OURS.0,
        kind: 0,
    }
    .write(to);
    Notification::Hello(Hello { version: VERSION }).encode(to);
}

/// The viewer's end of a push connection.
///
/// ```
/// use viewer_proto::push::{Listener, Notification, welcome};
///
/// let mut to_relay = Vec::new();
/// Listener::hello(wire::ViewerId(7)).encode(&mut to_relay);
/// # let mut from_relay = Vec::new();
/// # welcome(&mut from_relay);
/// let mut listener = Listener::default();
/// for notification in listener.extend(&from_relay) {
///     println!("{:?}", notification?);
/// }
/// assert!(listener.is_offered());
/// # Ok::<_, viewer_proto::push::PushError>(())
/// ```
#[derive(Debug, Default)]
pub struct Listener {
    state: State,
    /// What has been received of a notification that is not complete.
    received: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The relay has not introduced itself.
    #[default]
    Connecting,
    /// It has, and may not push.
    Connected,
    /// It does push.
    Offered,
    /// What it says cannot be read.
    Broken,
}

/// Why a push connection is of no use. The command connection is none the worse for it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PushError {
    /// The relay speaks another major version.
    #[error("the relay speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// What it speaks.
        major: u32,
    },
    /// The relay pushes something else.
    #[error("the relay pushes version {version}, not {VERSION}")]
    Version {
        /// What it speaks.
        version: u32,
    },
    /// Something came before [`Hello`].
    #[error("the relay pushed {code} before it said that it does")]
    Early {
        /// What came.
        code: u32,
    },
    /// A notification that is too long.
    #[error("the relay pushed {size} bytes, at most {MAX_BYTES} are allowed")]
    TooLong {
        /// What was announced.
        size: u32,
    },
    /// Something that cannot be read.
    #[error("malformed notification: {0}")]
    Malformed(DecodeError),
}

impl Listener {
    /// The command that a push connection begins with, and the only one: it names the command
    /// connection by the number that the relay has given that.
    #[must_use]
    pub fn hello(viewer: ViewerId) -> Command {
        Command::Connect(Connect {
            viewer: Some(viewer),
            major: MAJOR,
            minor: Minor::OURS.0,
            kind: ConnectionKind::Notification.code(),
        })
    }

    /// Whether the relay has answered `CONNECT`.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected | State::Offered)
    }

    /// Whether the relay has said that it does push.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.state == State::Offered
    }

    /// Takes bytes as they come, however they are cut, and gives the notifications that are
    /// complete. Those that are not known here are left out. After an error there are no more.
    pub fn extend(&mut self, bytes: &[u8]) -> Notifications<'_> {
        self.received.extend_from_slice(bytes);
        Notifications {
            listener: self,
            taken: 0,
        }
    }

    /// The first notification in `from`, if it is complete.
    fn take(&mut self, from: &mut &[u8]) -> Result<Option<Notification>, PushError> {
        if self.state == State::Connecting {
            let Ok(theirs) = Connect::read(from) else {
                return Ok(None);
            };
            if theirs.major != MAJOR {
                let major = theirs.major;
                return Err(PushError::Incompatible { major });
            }
            self.state = State::Connected;
        }
        loop {
            let mut at = *from;
            let Ok(NotificationHeader { code, size }) = NotificationHeader::read(&mut at) else {
                return Ok(None);
            };
            if size > MAX_BYTES {
                return Err(PushError::TooLong { size });
            }
            let known = NotificationCode::from_code(code);
            if self.state != State::Offered && known != Ok(NotificationCode::Hello) {
                return Err(PushError::Early { code });
            }
            let Some((body, rest)) = at.split_at_checked(size as usize) else {
                return Ok(None);
            };
            *from = rest;
            let Ok(code) = known else { continue };
            let notification = Notification::decode(code, body).map_err(PushError::Malformed)?;
            if let Notification::Hello(Hello { version }) = notification {
                if version != VERSION {
                    return Err(PushError::Version { version });
                }
                self.state = State::Offered;
            }
            return Ok(Some(notification));
        }
    }
}

/// The notifications that are complete. Those that are not taken come with the next.
#[derive(Debug)]
pub struct Notifications<'a> {
    listener: &'a mut Listener,
    taken: usize,
}

impl Iterator for Notifications<'_> {
    type Item = Result<Notification, PushError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.listener.state == State::Broken {
            return None;
        }
        let received = std::mem::take(&mut self.listener.received);
        let mut from = received.get(self.taken..).unwrap_or_default();
        let next = self.listener.take(&mut from);
        self.taken = received.len() - from.len();
        self.listener.received = received;
        if next.is_err() {
            self.listener.state = State::Broken;
        }
        next.transpose()
    }
}

impl Drop for Notifications<'_> {
    fn drop(&mut self) {
        self.listener.received.drain(..self.taken);
    }
}
