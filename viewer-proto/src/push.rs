//! The push connection: a second connection of a viewer, on which the relay sends notifications, so
//! that the viewer need not poll.
//!
//! A push connection names the viewer's command connection in its `CONNECT`, and reports changes of
//! what that one is attached to. After both `CONNECT`s the relay sends [`Hello`] and then
//! [`Notification`]s; the viewer sends only whether it wants beacons
//! ([`BeaconInterest`](crate::beacon_interest::BeaconInterest)). Data is fetched on the command
//! connection: a notification names the command to send there. Each kind of change is pushed once,
//! and again only after the viewer has fetched it: a viewer that does not fetch or read is sent
//! nothing more.
//!
//! An LTTng relay accepts such a connection, but sends nothing after its `CONNECT`: see [`Hello`].

use bytes::BufMut;
use thiserror::Error;
use wire::{DecodeError, Field, SessionId, StreamId, Timestamp, TraceId, ViewerId};
use wire::{wire_enum, wire_struct};

use crate::Command;
use crate::version::{Connect, ConnectionKind, MAJOR, Minor};

/// Version of the push protocol that this crate implements.
pub const VERSION: u32 = 1;

/// Largest notification that a viewer accepts, without its header, in bytes.
const MAX_NOTIFICATION_BYTES: u32 = 4096;

wire_struct! {
    /// The header of every notification.
    #[derive(Copy)]
    pub NotificationHeader [8 bytes] {
        /// The notification's [`NotificationCode`], or an unknown code: the notification is to be
        /// skipped.
        code: u32,
        /// Bytes that follow. Unknown fields are at the end, and ignored.
        size: u32,
    }

    /// The relay supports push connections. Follows the relay's `CONNECT` immediately: if it does
    /// not arrive within a second of that, the relay does not support them.
    #[derive(Copy)]
    pub Hello [4 bytes] {
        /// Version of the push protocol: [`VERSION`].
        version: u32,
    }

    /// A stream has packets whose index the viewer has not requested.
    #[derive(Copy)]
    pub PacketsAvailable [16 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Number of those packets. The next such notification of this stream follows after the
        /// viewer has requested as many indexes.
        unread: u64,
    }

    /// A beacon: the viewer has requested the indexes of all packets of a stream, and no event
    /// before `until` will follow. Same meaning as
    /// [`Inactive`](crate::index::IndexStatus::Inactive). Not pushed to a viewer that is
    /// [`Unsubscribed`](crate::beacon_interest::BeaconInterest::Unsubscribed).
    #[derive(Copy)]
    pub Quiet [16 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Time of the beacon, in cycles. Later than that of the one before.
        until: Timestamp,
    }

    /// A trace has metadata that the viewer has not fetched. The next such notification follows
    /// after the viewer has been answered that there is no more.
    #[derive(Copy)]
    pub MetadataAvailable [16 bytes] {
        /// Id of the metadata stream.
        stream: StreamId,
        /// Id of the trace that the metadata describes.
        trace: TraceId,
    }
}

wire_enum! {
    /// The codes of all notifications.
    pub NotificationCode {
        /// The relay supports push connections.
        Hello = 1,
        /// A stream has packets.
        Packets = 2,
        /// A stream has no packets up to a time (beacon).
        Quiet = 3,
        /// A stream is over: no packets are left, and none will arrive.
        StreamOver = 4,
        /// A trace has metadata that the viewer has not fetched.
        Metadata = 5,
        /// A session has streams that have not been announced to the viewer.
        NewStreams = 6,
        /// A session is over: its producer has disconnected.
        SessionOver = 7,
        /// The list of sessions has changed.
        Sessions = 8,
    }
}

/// A message that the relay pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification {
    /// The first notification, sent once.
    Hello(Hello),
    /// `GET_NEXT_INDEX` would be answered with the index of a packet.
    Packets(PacketsAvailable),
    /// `GET_NEXT_INDEX` would be answered that the stream is inactive, and need not be sent.
    Quiet(Quiet),
    /// `GET_NEXT_INDEX` would be answered that the stream is over, and need not be sent.
    StreamOver(StreamId),
    /// `GET_METADATA` would be answered with some.
    Metadata(MetadataAvailable),
    /// `GET_NEW_STREAMS` would be answered with some.
    NewStreams(SessionId),
    /// No stream will be added to a session. What has not been read of it can still be read.
    SessionOver(SessionId),
    /// The list of sessions has changed: `LIST_SESSIONS` gives it. Also pushed once at the
    /// beginning.
    Sessions,
}

impl NotificationCode {
    /// Size of the notification without its header, in bytes.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::Hello => Hello::SIZE,
            Self::Packets => PacketsAvailable::SIZE,
            Self::Quiet => Quiet::SIZE,
            Self::StreamOver => StreamId::SIZE,
            Self::Metadata => MetadataAvailable::SIZE,
            Self::NewStreams | Self::SessionOver => SessionId::SIZE,
            Self::Sessions => 0,
        }
    }
}

impl Notification {
    /// Code of the notification.
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

    /// Decodes the bytes after the header. Further bytes are ignored.
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

/// Appends the relay's first bytes on a push connection: its `CONNECT`, and [`Hello`].
pub fn write_greeting(to: &mut impl BufMut) {
    Connect {
        // A push connection has no id of its own, as with LTTng's relay.
        viewer: Some(ViewerId(0)),
        major: MAJOR,
        minor: Minor::OURS.0,
        kind: 0,
    }
    .write(to);
    Notification::Hello(Hello { version: VERSION }).encode(to);
}

/// The viewer's end of a push connection: decodes notifications.
///
/// ```
/// use viewer_proto::push::{Notification, PushClient, write_greeting};
///
/// let mut to_relay = Vec::new();
/// PushClient::connect_command(wire::ViewerId(7)).encode(&mut to_relay);
/// # let mut from_relay = Vec::new();
/// # write_greeting(&mut from_relay);
/// let mut client = PushClient::default();
/// for notification in client.extend(&from_relay) {
///     println!("{:?}", notification?);
/// }
/// assert!(client.is_supported());
/// # Ok::<_, viewer_proto::push::PushError>(())
/// ```
#[derive(Debug, Default)]
pub struct PushClient {
    state: State,
    /// Received bytes that have not been decoded.
    received: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The relay has not answered `CONNECT`.
    #[default]
    Connecting,
    /// The relay has answered `CONNECT`, and may not support push connections.
    Connected,
    /// The relay has sent [`Hello`].
    Supported,
    /// Decoding has failed: nothing more is decoded.
    Failed,
}

/// An error of a push connection, which is to be closed. The command connection is not affected:
/// the viewer polls again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PushError {
    /// The relay has another major version.
    #[error("the relay speaks protocol {major}, not {MAJOR}")]
    Incompatible {
        /// Major version of the relay.
        major: u32,
    },
    /// The relay has another version of the push protocol.
    #[error("the relay speaks push protocol {version}, not {VERSION}")]
    Version {
        /// Version of the relay.
        version: u32,
    },
    /// A notification arrived before [`Hello`].
    #[error("notification {code} before HELLO")]
    BeforeHello {
        /// Code of the notification.
        code: u32,
    },
    /// A notification is too long.
    #[error("notification of {size} bytes: at most {MAX_NOTIFICATION_BYTES} are allowed")]
    TooLong {
        /// Announced size in bytes.
        size: u32,
    },
    /// A notification cannot be decoded.
    #[error("malformed notification: {0}")]
    Malformed(DecodeError),
}

impl PushClient {
    /// The first and only command of a push connection: it names the command connection by the id
    /// that the relay has assigned to `viewer`.
    #[must_use]
    pub fn connect_command(viewer: ViewerId) -> Command {
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
        matches!(self.state, State::Connected | State::Supported)
    }

    /// Whether the relay supports push connections: it has sent [`Hello`].
    #[must_use]
    pub fn is_supported(&self) -> bool {
        self.state == State::Supported
    }

    /// Adds received bytes, however they are split, and returns the notifications that are
    /// complete. Unknown ones are skipped. After an error there are no more.
    pub fn extend(&mut self, bytes: &[u8]) -> Notifications<'_> {
        self.received.extend_from_slice(bytes);
        Notifications {
            client: self,
            consumed: 0,
        }
    }

    /// Decodes the first notification of `from`. None if it is not complete.
    fn decode_next(&mut self, from: &mut &[u8]) -> Result<Option<Notification>, PushError> {
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
            // Before the notification is complete, because the viewer would keep its bytes until
            // then.
            if size > MAX_NOTIFICATION_BYTES {
                return Err(PushError::TooLong { size });
            }
            let known = NotificationCode::from_code(code);
            if self.state != State::Supported && known != Ok(NotificationCode::Hello) {
                return Err(PushError::BeforeHello { code });
            }
            let Some((body, rest)) = at.split_at_checked(size as usize) else {
                return Ok(None);
            };
            *from = rest;
            // A later relay may have notifications that this viewer does not know.
            let Ok(code) = known else { continue };
            let notification = Notification::decode(code, body).map_err(PushError::Malformed)?;
            if let Notification::Hello(Hello { version }) = notification {
                // Another version may give the codes another meaning.
                if version != VERSION {
                    return Err(PushError::Version { version });
                }
                self.state = State::Supported;
            }
            return Ok(Some(notification));
        }
    }
}

/// The notifications that are complete. Those that are not consumed are given again by the next
/// call of [`PushClient::extend`].
#[derive(Debug)]
pub struct Notifications<'a> {
    client: &'a mut PushClient,
    /// Bytes of the received ones that have been decoded.
    consumed: usize,
}

impl Iterator for Notifications<'_> {
    type Item = Result<Notification, PushError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.client.state == State::Failed {
            return None;
        }
        // Taken out, because decoding borrows all of the client.
        let received = std::mem::take(&mut self.client.received);
        let mut from = received.get(self.consumed..).unwrap_or_default();
        let next = self.client.decode_next(&mut from);
        self.consumed = received.len() - from.len();
        self.client.received = received;
        if next.is_err() {
            self.client.state = State::Failed;
        }
        next.transpose()
    }
}

impl Drop for Notifications<'_> {
    fn drop(&mut self) {
        self.client.received.drain(..self.consumed);
    }
}
