//! Notifications for a viewer's push connection, about what its command connection is attached to
//! and has not fetched.
//!
//! Only the ids of changed streams are queued, each at most once. The notification of a stream is
//! made from its state at the moment when it can be sent: a slow viewer costs no memory, and gets
//! no stale notifications.

use std::collections::VecDeque;

use bytes::BytesMut;
use wire::{Field, SessionId, StreamId};

use super::{At, Connection, Cursor, has_new_streams};
use crate::beacon_interest::BeaconInterest;
use crate::cursor::failed_metadata;
use crate::metadata::MetadataStatus;
use crate::push::{MetadataAvailable, Notification, PacketsAvailable, Quiet};
use crate::relay::{Ahead, Relay, Session};

/// A change that a viewer with a push connection may have to be notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Packets or beacons of a stream, or metadata, or its end.
    Stream(StreamId),
    /// The streams of a session, or its end.
    Session(SessionId),
    /// The list of sessions.
    Sessions,
}

/// The changes that a viewer with a push connection may have to be notified of. A stream is in at
/// most one of the lists.
#[derive(Debug, Default)]
pub(super) struct PushState {
    /// The list of sessions has changed.
    has_session_list_changed: bool,
    /// Streams that may have changed.
    queue: VecDeque<StreamId>,
    /// Streams with beacons that must not be pushed before new streams have been announced to the
    /// viewer.
    until_announced: Vec<StreamId>,
    /// Streams with packets that must not be pushed before their session changes.
    until_session_change: Vec<StreamId>,
    /// A session has changed since `until_session_change` was last queued.
    has_session_changed: bool,
    /// Streams of sessions whose rotation must end first.
    until_rotated: Vec<StreamId>,
    /// A session was rotating when it was last checked.
    is_rotating: bool,
    /// The viewer wants no beacons.
    ignores_beacons: bool,
}

/// The notifications that a viewer has got about one stream.
#[derive(Debug, Default)]
pub(super) struct StreamPushState {
    /// The stream is in one of the lists of [`PushState`].
    is_listed: bool,
    /// Number of the first packet that the viewer has not been notified of.
    packets_before: u64,
    /// The viewer has been notified of metadata, and has not fetched all of it.
    has_metadata: bool,
    /// The viewer has been notified that the stream is over.
    pub(super) is_over: bool,
}

/// The notifications that a viewer has got about one session.
#[derive(Debug, Default)]
pub(super) struct SessionPushState {
    /// The viewer has been notified of new streams, and has not fetched them.
    pub(super) has_new_streams: bool,
    /// The viewer has been notified that the session is over.
    is_over: bool,
}

impl StreamPushState {
    /// The viewer has been answered that there is no packet: packets that it may be given later are
    /// pushed, even if they were pushed before.
    pub(super) fn push_packets_again(&mut self) {
        self.packets_before = 0;
    }
}

impl<R: Relay> Connection<R> {
    /// Subscribes to changes for a new push connection. First everything that exists is pushed,
    /// then what has changed ([`record_change`](Self::record_change)).
    pub fn subscribe(&mut self, relay: &R) {
        // The push connection before may have turned them off.
        relay.set_beacon_interest(true);
        relay.set_subscribed(true);
        // As if nothing had been pushed: the viewer does not know what the connection before was
        // sent.
        let mut push = PushState {
            has_session_list_changed: true,
            ..PushState::default()
        };
        // Subscribed before anything is queued, so that no change is missed.
        for attachment in self.attached.values_mut() {
            attachment.session.set_subscribed(true);
            attachment.pushed = SessionPushState::default();
        }
        for (id, cursor) in &mut self.cursors {
            cursor.at.set_subscribed(true);
            cursor.pushed = StreamPushState {
                is_listed: true,
                ..StreamPushState::default()
            };
            push.queue.push_back(*id);
        }
        self.push = Some(push);
    }

    /// Unsubscribes after the push connection has ended.
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

    /// Sets whether beacons are pushed, as the viewer has asked for on its push connection.
    pub fn set_beacon_interest(&mut self, beacon_interest: BeaconInterest, relay: &R) {
        let Some(push) = &mut self.push else { return };
        let ignores_beacons = beacon_interest == BeaconInterest::Unsubscribed;
        if std::mem::replace(&mut push.ignores_beacons, ignores_beacons) == ignores_beacons {
            return;
        }
        // Before the streams are queued, so that no beacon is lost in between.
        relay.set_beacon_interest(!ignores_beacons);
        if ignores_beacons {
            return;
        }
        // Beacons that were not pushed meanwhile are pushed now.
        for (id, cursor) in &mut self.cursors {
            let may_be_quiet = matches!(cursor.at, At::Packets(_));
            if may_be_quiet && !std::mem::replace(&mut cursor.pushed.is_listed, true) {
                push.queue.push_back(*id);
            }
        }
    }

    /// Records a change that may have to be pushed. To be called at least once after each change.
    pub fn record_change(&mut self, change: Change) {
        match change {
            Change::Stream(stream) => self.queue_stream(stream),
            Change::Sessions => {
                if let Some(push) = &mut self.push {
                    push.has_session_list_changed = true;
                }
            }
            // Sessions are few: `write_notifications` checks all of them.
            Change::Session(_) => {
                if let Some(push) = &mut self.push {
                    push.has_session_changed = true;
                }
            }
        }
    }

    /// Whether notifications wait for the end of a rotation. That is not reported as a change:
    /// [`write_notifications`](Self::write_notifications) is to be called again soon.
    #[must_use]
    pub fn awaits_rotation(&self) -> bool {
        self.push.as_ref().is_some_and(|push| push.is_rotating)
    }

    /// Appends notifications, until there are none or `to` has at least `max` bytes.
    pub fn write_notifications(&mut self, max: usize, to: &mut BytesMut) {
        let Some(push) = &mut self.push else { return };
        // These are few: they are written even if they pass `max`.
        if std::mem::take(&mut push.has_session_list_changed) {
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
            if attachment.session.has_new_streams() && !pushed.has_new_streams {
                pushed.has_new_streams = true;
                Notification::NewStreams(*id).encode(to);
            }
            if is_over && !pushed.is_over {
                pushed.is_over = true;
                Notification::SessionOver(*id).encode(to);
            }
        }
        push.is_rotating = is_rotating;
        // Nobody reports the end of a rotation: it is looked for here.
        if !is_rotating {
            push.queue.extend(push.until_rotated.drain(..));
        }
        if std::mem::take(&mut push.has_session_changed) {
            push.queue.extend(push.until_session_change.drain(..));
        }
        // Not while there are new streams: the beacon may be later than their beginning.
        if !push.until_announced.is_empty() && !has_new_streams(&self.attached) {
            push.queue.extend(push.until_announced.drain(..));
        }
        // The rest stays in the queue until the connection takes more.
        while to.len() < max {
            let Some(id) = self.push.as_mut().and_then(|push| push.queue.pop_front()) else {
                return;
            };
            self.write_stream_notification(id, to);
        }
    }

    fn write_stream_notification(&mut self, id: StreamId, to: &mut BytesMut) {
        let Self {
            attached,
            cursors,
            push: Some(push),
            ..
        } = self
        else {
            return;
        };
        // The viewer may have detached meanwhile.
        let Some(cursor) = cursors.get_mut(&id) else {
            return;
        };
        let Some(own) = attached.get(&cursor.session) else {
            return;
        };
        if own.session.is_rotating() {
            push.until_rotated.push(id);
            push.is_rotating = true;
            return;
        }
        // Before the stream is asked: a change after that queues it again.
        cursor.pushed.is_listed = false;
        match cursor.pending_notification(id, push.ignores_beacons, || has_new_streams(attached)) {
            PendingNotification::None => {}
            PendingNotification::Ready(notification) => notification.encode(to),
            PendingNotification::UntilAnnounced => {
                cursor.pushed.is_listed = true;
                push.until_announced.push(id);
            }
            PendingNotification::UntilSessionChange => {
                cursor.pushed.is_listed = true;
                push.until_session_change.push(id);
            }
        }
    }

    /// Queues a stream that may have changed, unless it is listed already.
    pub(super) fn queue_stream(&mut self, stream: StreamId) {
        let (Some(push), Some(cursor)) = (&mut self.push, self.cursors.get_mut(&stream)) else {
            return;
        };
        // A busy stream is in the queue once, so that a slow viewer costs no memory.
        if !std::mem::replace(&mut cursor.pushed.is_listed, true) {
            push.queue.push_back(stream);
        }
    }
}

/// The notification that a viewer needs about a stream.
enum PendingNotification {
    None,
    Ready(Notification),
    /// The notification must wait until new streams have been announced to the viewer.
    UntilAnnounced,
    /// The notification must wait until the session changes.
    UntilSessionChange,
}

impl<R: Relay> Cursor<R> {
    /// The notification of what the viewer does not know about this stream, without beacons if it
    /// `ignores_beacons`. `has_new_streams` is called after the stream has been asked: a stream is
    /// published before the beacons that follow it.
    fn pending_notification(
        &mut self,
        id: StreamId,
        ignores_beacons: bool,
        has_new_streams: impl Fn() -> bool,
    ) -> PendingNotification {
        let pushed = &mut self.pushed;
        let packets = match &mut self.at {
            At::Metadata(metadata) => {
                // Once, until the viewer has been told that it has all.
                if !metadata.has_unread() || std::mem::replace(&mut pushed.has_metadata, true) {
                    return PendingNotification::None;
                }
                let trace = self.trace;
                return PendingNotification::Ready(Notification::Metadata(MetadataAvailable {
                    stream: id,
                    trace,
                }));
            }
            At::Packets(packets) => packets,
        };
        match packets.ahead() {
            Ahead::Packets { position, end } if position >= pushed.packets_before => {
                pushed.packets_before = end;
                let unread = end.saturating_sub(position);
                PendingNotification::Ready(Notification::Packets(PacketsAvailable {
                    stream: id,
                    unread,
                }))
            }
            Ahead::Packets { .. } => PendingNotification::None,
            Ahead::Withheld => PendingNotification::UntilSessionChange,
            Ahead::Over => {
                if std::mem::replace(&mut pushed.is_over, true) {
                    return PendingNotification::None;
                }
                PendingNotification::Ready(Notification::StreamOver(id))
            }
            Ahead::Quiet { .. } if ignores_beacons => PendingNotification::None,
            Ahead::Quiet { until } => match until {
                Some(until) if packets.is_past_watermark(until) => {
                    if has_new_streams() {
                        return PendingNotification::UntilAnnounced;
                    }
                    packets.advance_watermark(until);
                    PendingNotification::Ready(Notification::Quiet(Quiet { stream: id, until }))
                }
                _ => PendingNotification::None,
            },
        }
    }

    /// Whether there may be packets that the viewer does not know of.
    pub(super) fn has_more(&self) -> bool {
        matches!(self.at, At::Packets(_)) && !self.pushed.is_over
    }

    /// Appends the reply to `GET_METADATA`.
    pub(super) fn write_metadata(&mut self, replies: &mut BytesMut) {
        let At::Metadata(metadata) = &mut self.at else {
            return failed_metadata().write(replies);
        };
        if metadata.write_next(replies) != MetadataStatus::Ok {
            // Metadata that arrives after this reply is pushed again.
            self.pushed.has_metadata = false;
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
