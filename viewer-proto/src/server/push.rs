//! What a relay has to say unasked: to the viewer's push connection, of what its command connection
//! is attached to and has not fetched.
//!
//! Nothing is queued but the numbers of the streams that have changed, each at most once. What is
//! said of them is found out when it can be sent.

use std::collections::VecDeque;

use bytes::BytesMut;
use wire::{SessionId, StreamId};

use super::{At, Connection, Cursor};
use crate::beacon_interest::BeaconInterest;
use crate::metadata::MetadataStatus;
use crate::push::{MetadataWaits, Notification, PacketsWait, Quiet};
use crate::relay::{Ahead, Relay, Session};

/// What may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Packets or beacons of a stream, or metadata, or its end.
    Stream(StreamId),
    /// The streams of a session, or its end.
    Session(SessionId),
    /// Which sessions there are.
    Sessions,
}

/// What is to be looked at for a viewer that listens.
#[derive(Debug, Default)]
pub(super) struct Push {
    sessions: bool,
    /// Streams that may have something new.
    streams: VecDeque<StreamId>,
    /// Streams of which nothing may be said before the viewer has been told of others.
    withheld: Vec<StreamId>,
    /// Streams with packets that may not be announced before something changes in their session.
    held: Vec<StreamId>,
    /// Something has changed in a session since they were looked at.
    has_session_changed: bool,
    /// Streams of sessions that are going over to another chunk.
    rotating: Vec<StreamId>,
    /// Some session was, when it was last looked at.
    is_rotating: bool,
    /// The viewer waits for no promise.
    ignores_beacons: bool,
}

/// What has been pushed of a stream.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// It is in one of the lists of [`Push`].
    is_listed: bool,
    /// The viewer knows of the packets before this one.
    through: u64,
    /// It knows that there is metadata.
    metadata: bool,
    /// It knows that the stream is over.
    pub(super) is_over: bool,
}

/// What has been pushed of a session.
#[derive(Debug, Default)]
pub(super) struct PushedSession {
    /// The viewer knows that there are new streams.
    pub(super) streams: bool,
    /// It knows that no more will come.
    is_over: bool,
}

impl Pushed {
    /// The viewer has been answered that there is no packet: those that there are, or will be when
    /// that may be given now, are announced whether or not they were before.
    pub(super) fn announce_packets_again(&mut self) {
        self.through = 0;
    }
}

impl<R: Relay> Connection<R> {
    /// A push connection has come: from now on the relay says what has [`changed`](Self::changed),
    /// beginning with everything there is.
    pub fn subscribe(&mut self, relay: &R) {
        relay.set_beacon_interest(true);
        relay.set_subscribed(true);
        let mut push = Push {
            sessions: true,
            ..Push::default()
        };
        for attachment in self.attached.values_mut() {
            attachment.session.set_subscribed(true);
            attachment.pushed = PushedSession::default();
        }
        for (id, cursor) in &mut self.cursors {
            cursor.at.set_subscribed(true);
            cursor.pushed = Pushed {
                is_listed: true,
                ..Pushed::default()
            };
            push.streams.push_back(*id);
        }
        self.push = Some(push);
    }

    /// The push connection is gone.
    pub fn unsubscribe(&mut self, relay: &R) {
        relay.set_subscribed(false);
        for attachment in self.attached.values_mut() {
            attachment.session.set_subscribed(false);
        }
        for cursor in self.cursors.values_mut() {
            cursor.at.set_subscribed(false);
        }
        self.push = None;
    }

    /// The viewer has said on the push connection whether it wants beacons.
    pub fn set_beacon_interest(&mut self, beacon_interest: BeaconInterest, relay: &R) {
        let Some(push) = &mut self.push else { return };
        let ignores_beacons = beacon_interest == BeaconInterest::Unsubscribed;
        if std::mem::replace(&mut push.ignores_beacons, ignores_beacons) == ignores_beacons {
            return;
        }
        relay.set_beacon_interest(!ignores_beacons);
        if ignores_beacons {
            return;
        }
        // What was not said of them meanwhile is said now.
        for (id, cursor) in &mut self.cursors {
            let may_be_quiet = matches!(cursor.at, At::Packets(_));
            if may_be_quiet && !std::mem::replace(&mut cursor.pushed.is_listed, true) {
                push.streams.push_back(*id);
            }
        }
    }

    /// Something may have changed. To be called at least once after each change.
    pub fn changed(&mut self, change: Change) {
        match change {
            Change::Stream(stream) => self.look_at(stream),
            Change::Sessions => {
                if let Some(push) = &mut self.push {
                    push.sessions = true;
                }
            }
            // Sessions are few: all are looked at each time.
            Change::Session(_) => {
                if let Some(push) = &mut self.push {
                    push.has_session_changed = true;
                }
            }
        }
    }

    /// Whether something could not be said because a session is going over to another chunk. The
    /// end of that is not reported as a change: [`notify`](Self::notify) is to be called again soon.
    #[must_use]
    pub fn awaits_rotation(&self) -> bool {
        self.push.as_ref().is_some_and(|push| push.is_rotating)
    }

    /// Appends what there is to say, but no more once there are `most` bytes.
    pub fn notify(&mut self, most: usize, to: &mut BytesMut) {
        let Some(push) = &mut self.push else { return };
        if std::mem::take(&mut push.sessions) {
            Notification::Sessions.encode(to);
        }
        let mut is_rotating = false;
        for (id, attachment) in &mut self.attached {
            if attachment.session.is_rotating() {
                is_rotating = true;
                continue;
            }
            let pushed = &mut attachment.pushed;
            // Asked before looking for streams: none is published after the end.
            let is_over = attachment.session.is_over();
            if attachment.session.has_new_streams() && !pushed.streams {
                pushed.streams = true;
                Notification::NewStreams(*id).encode(to);
            }
            if is_over && !pushed.is_over {
                pushed.is_over = true;
                Notification::SessionOver(*id).encode(to);
            }
        }
        push.is_rotating = is_rotating;
        if !is_rotating {
            push.streams.extend(push.rotating.drain(..));
        }
        if std::mem::take(&mut push.has_session_changed) {
            push.streams.extend(push.held.drain(..));
        }
        if !push.withheld.is_empty() && !self.has_new_streams() {
            let push = self.push.get_or_insert_default();
            push.streams.extend(push.withheld.drain(..));
        }
        while to.len() < most {
            let Some(id) = self.push.as_mut().and_then(|push| push.streams.pop_front()) else {
                return;
            };
            self.notify_of(id, to);
        }
    }

    fn notify_of(&mut self, id: StreamId, to: &mut BytesMut) {
        let Self {
            attached,
            cursors,
            push: Some(push),
            ..
        } = self
        else {
            return;
        };
        // It may have been detached from.
        let Some(cursor) = cursors.get_mut(&id) else {
            return;
        };
        let Some(own) = attached.get(&cursor.session) else {
            return;
        };
        if own.session.is_rotating() {
            push.rotating.push(id);
            push.is_rotating = true;
            return;
        }
        let has_new_streams = || {
            attached
                .values()
                .any(|other| other.session.has_new_streams())
        };
        cursor.pushed.is_listed = false;
        match cursor.news(id, push.ignores_beacons, has_new_streams) {
            News::None => {}
            News::Some(notification) => notification.encode(to),
            News::Withheld => {
                cursor.pushed.is_listed = true;
                push.withheld.push(id);
            }
            News::Held => {
                cursor.pushed.is_listed = true;
                push.held.push(id);
            }
        }
    }

    /// A stream may have something new.
    pub(super) fn look_at(&mut self, stream: StreamId) {
        let (Some(push), Some(cursor)) = (&mut self.push, self.cursors.get_mut(&stream)) else {
            return;
        };
        if !std::mem::replace(&mut cursor.pushed.is_listed, true) {
            push.streams.push_back(stream);
        }
    }

    fn has_new_streams(&self) -> bool {
        self.attached
            .values()
            .any(|attachment| attachment.session.has_new_streams())
    }
}

enum News {
    None,
    Some(Notification),
    /// Nothing before the viewer has been told of other streams.
    Withheld,
    /// Nothing before something changes in the session.
    Held,
}

impl<R: Relay> Cursor<R> {
    /// What the viewer does not know of this stream, without beacons if it `ignores_beacons`.
    /// `has_new_streams` is asked after the stream, which is published before the beacons that come
    /// after it.
    fn news(
        &mut self,
        id: StreamId,
        ignores_beacons: bool,
        has_new_streams: impl Fn() -> bool,
    ) -> News {
        let pushed = &mut self.pushed;
        let packets = match &mut self.at {
            At::Metadata(metadata) => {
                if !metadata.has_unread() || std::mem::replace(&mut pushed.metadata, true) {
                    return News::None;
                }
                let trace = self.trace;
                return News::Some(Notification::Metadata(MetadataWaits { stream: id, trace }));
            }
            At::Packets(packets) => packets,
        };
        match packets.ahead() {
            Ahead::Packets { position, end } if position >= pushed.through => {
                pushed.through = end;
                let unread = end.saturating_sub(position);
                News::Some(Notification::Packets(PacketsWait { stream: id, unread }))
            }
            Ahead::Packets { .. } => News::None,
            Ahead::Withheld => News::Held,
            Ahead::Over => {
                if std::mem::replace(&mut pushed.is_over, true) {
                    return News::None;
                }
                News::Some(Notification::StreamOver(id))
            }
            Ahead::Quiet { .. } if ignores_beacons => News::None,
            Ahead::Quiet { until } => match until {
                Some(until) if packets.is_beyond_promise(until) => {
                    if has_new_streams() {
                        return News::Withheld;
                    }
                    packets.promise(until);
                    News::Some(Notification::Quiet(Quiet { stream: id, until }))
                }
                _ => News::None,
            },
        }
    }

    /// Whether there may be packets that the viewer has not heard of.
    pub(super) fn has_more(&self) -> bool {
        matches!(self.at, At::Packets(_)) && !self.pushed.is_over
    }

    /// Appends the answer to `GET_METADATA`.
    pub(super) fn next_metadata(&mut self, replies: &mut BytesMut) {
        if let At::Metadata(metadata) = &mut self.at
            && metadata.next(replies) != MetadataStatus::Ok
        {
            // What comes after this answer is news again.
            self.pushed.metadata = false;
        }
    }
}

impl<R: Relay> At<R> {
    pub(super) fn set_subscribed(&mut self, on: bool) {
        match self {
            Self::Packets(packets) => packets.set_subscribed(on),
            Self::Metadata(metadata) => metadata.set_subscribed(on),
        }
    }
}
