//! Answers the commands of viewers: implements `viewer-proto`'s traits from the registry. Each
//! viewer has a position of its own in each stream.
//!
//! Read in this order: [`View`] and [`Attachment`] here, `packets` and `metadata` (positions in
//! streams), `subscribed` (notifications), `file_calls` (reads that may block).

mod file_calls;
#[cfg(test)]
mod fleet_tests;
mod metadata;
mod packets;
mod subscribed;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

use archive::name::SessionKey;
use parking_lot::Mutex;
use relay_proto::session::TraceFormat as ProducerFormat;
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::info;
use viewer_proto::relay::{Awaited, NewStream, Position, Relay, Session as _, SessionFacts};
use viewer_proto::server::Change;
use viewer_proto::session::{ListedSession, Seek, TraceFormat};
use wire::{Bytes, SessionId, ViewerId};

use crate::fleet::{Fleet, FleetViewer};
use crate::publish::announced::AnnouncedContent;
use crate::publish::subscription::{ChangeQueue, Subscription};
use crate::publish::viewer_lag::ViewerPositions;
use crate::registry::Registry;
use crate::registry::session::Session;
use file_calls::FileCalls;
pub use file_calls::{FileCallLimits, FileCallPermits};
pub use metadata::MetadataReader;
pub use packets::{Packet, PacketReader};
use subscribed::Subscribed;

/// Largest number of sessions that are remembered after they have ended. With one more, those that
/// the archive does not list are forgotten.
const MAX_REMEMBERED: usize = 4096;

/// The sessions to which a viewer has attached.
#[derive(Debug, Default)]
struct AttachedSessions {
    /// Those that are there, each once.
    sessions: Vec<Weak<Session>>,
    /// Those of this relay, as the archive calls them. When they have ended the archive still lists
    /// them, and the viewer has them already.
    keys: BTreeSet<SessionKey>,
}

impl AttachedSessions {
    /// Remembers what the archive calls the sessions of this relay, which is known when they have a
    /// stream.
    fn learn_keys(&mut self, fleet: &Fleet) {
        let sessions = self.sessions.iter().filter_map(Weak::upgrade);
        // Of the others the viewer is to find all when it connects again.
        let whole = sessions.filter(|session| !is_elsewhere(fleet, session));
        let own = whole.filter_map(|session| Some(session.archived_as()?.key));
        self.keys.extend(own);
        if self.keys.len() > MAX_REMEMBERED {
            self.keys.retain(|key| fleet.created(*key).is_some());
        }
    }
}

/// The relay, as one viewer sees it.
#[derive(Debug)]
pub struct View {
    registry: Arc<Registry>,
    /// The sessions of the archive, for a viewer that is connected. None: there is no archive.
    fleet: Option<(Arc<Fleet>, FleetViewer)>,
    /// The sessions to which the viewer has attached. Empty without an archive.
    attached: Mutex<AttachedSessions>,
    /// Address of the viewer, for the log.
    peer: SocketAddr,
    /// Changes that the viewer is to be notified of. Empty without a push connection.
    changes: Arc<ChangeQueue>,
    /// Subscription to sessions that are added and removed.
    subscription: Arc<Subscription>,
    file_call_limits: FileCallLimits,
}

impl View {
    /// The view of a viewer at `peer`, without a push connection.
    #[must_use]
    pub fn new(registry: Arc<Registry>, fleet: Option<Arc<Fleet>>, peer: SocketAddr) -> Self {
        let changes = Arc::default();
        let subscription = Subscription::new(&changes, Change::Sessions);
        let fleet = fleet.map(|fleet| {
            let viewer = fleet.add_viewer();
            (fleet, viewer)
        });
        Self {
            registry,
            fleet,
            attached: Mutex::default(),
            peer,
            changes,
            subscription,
            file_call_limits: FileCallLimits::default(),
        }
    }

    /// Looks up what the next command of the viewer needs.
    pub async fn prepare(&self, awaited: Awaited) {
        if let Some((fleet, _)) = &self.fleet {
            fleet.prepare(awaited).await;
        }
    }

    /// Whether a session to which the viewer has attached cannot be shown further from here. The
    /// viewer finds all of it when it connects again.
    #[must_use]
    pub fn has_partial_session(&self) -> bool {
        let attached = self.attached.lock();
        let mut sessions = attached.sessions.iter().filter_map(Weak::upgrade);
        sessions.any(|session| session.is_partial())
    }

    fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref().map(|(fleet, _)| fleet)
    }

    /// The relay's own sessions to which viewers may attach. One of which other relays have a part
    /// is left out: the fleet has all of it.
    fn own_sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.registry.sessions_for_viewers(Instant::now());
        if let Some(fleet) = self.fleet() {
            sessions.retain(|session| !is_elsewhere(fleet, session));
        }
        sessions
    }

    /// The session with this id, if viewers may attach to it, and where they begin.
    fn session(&self, id: SessionId, seek: Seek) -> Option<(Arc<Session>, Seek)> {
        match self.registry.session_for_viewers(id, Instant::now()) {
            Some(own) => Some((own, seek)),
            None => self.fleet()?.session(id, seek),
        }
    }

    /// Limits of the viewer's file calls.
    #[must_use]
    pub fn file_call_limits(&self) -> &FileCallLimits {
        &self.file_call_limits
    }

    /// The changes that the viewer is to be notified of on its push connection.
    #[must_use]
    pub fn changes(&self) -> &ChangeQueue {
        &self.changes
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.registry.unsubscribe(&self.subscription);
        if let Some(fleet) = self.fleet() {
            fleet.unsubscribe(&self.subscription);
        }
    }
}

/// Whether other relays have archived a part of a session of this relay.
fn is_elsewhere(fleet: &Fleet, session: &Session) -> bool {
    if session.is_partial() {
        return true;
    }
    // Until the archiver has found that out: whether the archive lists an earlier one.
    let listed = |key, own| fleet.created(key).is_some_and(|listed| listed < own);
    match (session.archived_as(), session.identity().recording) {
        (Some(archived), _) => {
            archived.has_moved_here.get().is_none() && listed(archived.key, archived.created)
        }
        // Before its first stream. If it can be resumed, it will have this key.
        (None, Some((daemon, id))) => {
            let producer = daemon.0;
            listed(SessionKey { producer, id }, u64::MAX)
        }
        (None, None) => false,
    }
}

/// A viewer attached to a session.
#[derive(Debug)]
pub struct Attachment {
    session: Subscribed<Session>,
    /// Address of the viewer, for the log.
    peer: SocketAddr,
    changes: Arc<ChangeQueue>,
    positions: Arc<ViewerPositions>,
    file_calls: Arc<FileCalls>,
    /// Number of the first stream of the session that has not been found for the viewer.
    next_stream: u64,
    /// Streams that have been found, and have not been announced to the viewer.
    found: Vec<NewStream<PacketReader, MetadataReader>>,
    /// The viewer has detached or has read everything. Otherwise it has lost its connection when
    /// this is dropped.
    has_left: bool,
}

impl Relay for View {
    type Session = Attachment;

    fn must_await(&self, awaited: Awaited) -> bool {
        let fleet = self.fleet();
        fleet.is_some_and(|fleet| fleet.must_await(awaited))
    }

    fn sessions(&self) -> Vec<ListedSession> {
        let sessions = self.own_sessions();
        let mut all: Vec<_> = sessions.iter().map(|session| listed(session)).collect();
        if let Some(fleet) = self.fleet() {
            let keys = sessions.iter().filter_map(|session| session.archived_as());
            let mut shown: BTreeSet<_> = keys.map(|archived| archived.key).collect();
            let mut attached = self.attached.lock();
            attached.learn_keys(fleet);
            shown.extend(&attached.keys);
            drop(attached);
            all.extend(fleet.sessions(&shown));
        }
        all
    }

    fn find(&self, id: SessionId) -> Option<SessionFacts> {
        let Some(session) = self.registry.session_for_viewers(id, Instant::now()) else {
            let listed = self.fleet()?.find(id)?;
            return Some(SessionFacts {
                is_live: true,
                trace_format: listed.trace_format,
            });
        };
        Some(SessionFacts {
            is_live: session.identity().live_timer.period().is_some(),
            trace_format: trace_format(&session),
        })
    }

    fn attach(&self, session: SessionId, seek: Seek) -> Option<Attachment> {
        let (session, seek) = self.session(session, seek)?;
        let peer = self.peer;
        info!(%session, %peer, ?seek, "viewer attached");
        let seek_last_before = match seek {
            Seek::Beginning => 0,
            Seek::Last => session.announced_next(),
        };
        if self.fleet.is_some() {
            let attaching = Arc::downgrade(&session);
            let mut attached = self.attached.lock();
            let is_other =
                |session: &Weak<Session>| !session.ptr_eq(&attaching) && session.strong_count() > 0;
            attached.sessions.retain(is_other);
            attached.sessions.push(attaching);
        }
        let about = Change::Session(session.id());
        let positions = session.viewer_lag().add_viewer();
        let of_session = session.viewer_lag().file_calls();
        let file_calls = FileCalls::new(of_session, self.registry.viewer_file_calls());
        self.file_call_limits.add_session(&file_calls);
        let mut attachment = Attachment {
            session: Subscribed::new(session, about, &self.changes),
            peer,
            changes: Arc::clone(&self.changes),
            positions,
            file_calls,
            next_stream: 0,
            found: Vec::new(),
            has_left: false,
        };
        attachment.find_streams(seek_last_before);
        // Only now: a viewer that is counted reads what arrives from then on, also with
        // `Seek::Last`.
        attachment.session.viewers().attach();
        Some(attachment)
    }

    fn next_viewer(&self) -> ViewerId {
        let mut bytes = [0; 8];
        // Random, because a push connection that names this id sees what the viewer follows: others
        // must not guess it. The system's random source does not fail once it is initialized; a
        // viewer with id 0 can have no push connection.
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        let number = u64::from_be_bytes(bytes) >> 1;
        ViewerId(if filled == Ok(bytes.len()) { number } else { 0 })
    }

    fn set_subscribed(&self, on: bool) {
        // First, so that a subscription replaces the one before.
        self.registry.unsubscribe(&self.subscription);
        if let Some(fleet) = self.fleet() {
            fleet.unsubscribe(&self.subscription);
        }
        if on {
            self.registry.subscribe(&self.subscription);
            if let Some(fleet) = self.fleet() {
                fleet.subscribe(&self.subscription);
            }
        }
    }

    fn set_beacon_interest(&self, on: bool) {
        self.changes.set_beacon_interest(on);
    }
}

fn listed(session: &Session) -> ListedSession {
    let identity = session.identity();
    ListedSession {
        session: identity.id,
        live_timer: identity.live_timer,
        viewers: session.viewers().attached(),
        streams: u32::try_from(session.published_streams()).unwrap_or(u32::MAX),
        host: identity.host.clone(),
        name: identity.name.clone(),
        trace_format: trace_format(session),
    }
}

fn trace_format(session: &Session) -> TraceFormat {
    match session.identity().trace_format {
        ProducerFormat::Ctf1 => TraceFormat::Ctf1,
        ProducerFormat::Ctf2 => TraceFormat::Ctf2,
    }
}

impl Attachment {
    /// Finds the streams that are new since the last call, and where the viewer begins to read
    /// each: those with a number below `seek_last_before` at their present end.
    fn find_streams(&mut self, seek_last_before: u64) {
        for (number, listed) in self.session.announced_from(self.next_stream) {
            self.next_stream = number + 1;
            let seeks_last = number < seek_last_before;
            let about = Change::Stream(listed.record.stream);
            let position = match &listed.content {
                // The stream has ended before, and will have no more packets.
                AnnouncedContent::Packets(published) if seeks_last && published.is_over() => {
                    continue;
                }
                AnnouncedContent::Packets(published) => {
                    let (next, end) = if seeks_last {
                        published.next_packet()
                    } else {
                        (0, Bytes(0))
                    };
                    let read_position = self.positions.add_stream(published, next, end);
                    let published = Subscribed::new(Arc::clone(published), about, &self.changes);
                    Position::Packets(PacketReader::new(
                        published,
                        Arc::clone(self.session.watermark()),
                        number,
                        next,
                        read_position,
                        Arc::clone(&self.file_calls),
                    ))
                }
                AnnouncedContent::Metadata(published) => {
                    let published = Subscribed::new(Arc::clone(published), about, &self.changes);
                    let calls = Arc::clone(&self.file_calls);
                    Position::Metadata(MetadataReader::new(published, calls))
                }
            };
            self.found.push(NewStream {
                record: listed.record.clone(),
                position,
            });
        }
    }
}

impl viewer_proto::relay::Session for Attachment {
    type Stream = PacketReader;
    type Metadata = MetadataReader;

    fn has_new_streams(&self) -> bool {
        !self.found.is_empty() || self.next_stream < self.session.announced_next()
    }

    fn new_streams(&mut self) -> Vec<NewStream<PacketReader, MetadataReader>> {
        // From their beginning: these streams were announced after the viewer attached.
        self.find_streams(0);
        std::mem::take(&mut self.found)
    }

    fn is_rotating(&self) -> bool {
        self.session.recording().is_rotating()
    }

    fn is_over(&self) -> bool {
        self.session.is_over()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.session.set_subscribed(on);
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.has_left, true) {
            self.session.viewers().detach();
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let has_left = self.has_left;
        if !has_left {
            self.session.viewers().lose(Instant::now());
        }
        let peer = self.peer;
        info!(session = %**self.session, %peer, unread_streams = self.has_new_streams(), has_left, "viewer detached");
    }
}
