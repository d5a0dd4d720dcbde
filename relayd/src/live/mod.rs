//! What a viewer may see: answers `viewer-proto`'s questions from the registry. Every viewer has
//! its own position in every stream; readers share the page cache.

mod metadata;
mod packets;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use relay_proto::session::TraceFormat as ProducerFormat;
use tracing::info;
use viewer_proto::relay::{NewStream, Position, Relay, Session as _, SessionFacts};
use viewer_proto::session::{ListedSession, Seek, TraceFormat};
use wire::{SessionId, ViewerId};

use crate::registry::Registry;
use crate::registry::announced::Content;
use crate::registry::session::Session;
pub use metadata::MetadataReader;
pub use packets::{Packet, PacketReader};

/// The relay, as viewers see it.
#[derive(Debug, Clone)]
pub struct View(pub Arc<Registry>);

/// A viewer attached to a session.
#[derive(Debug)]
pub struct Attachment {
    session: Arc<Session>,
    /// Number of the next stream that it is to be told of.
    next: u64,
    /// Streams before this are read from where they were when it attached.
    seek_last: u64,
}

impl Relay for View {
    type Session = Attachment;

    fn sessions(&self) -> Vec<ListedSession> {
        self.0
            .sessions()
            .iter()
            .map(|session| listed(session))
            .collect()
    }

    fn find(&self, session: SessionId) -> Option<SessionFacts> {
        let session = self.0.session(session)?;
        Some(SessionFacts {
            is_live: session.identity().live_timer.period().is_some(),
            trace_format: trace_format(&session),
        })
    }

    fn attach(&self, session: SessionId, seek: Seek) -> Option<Attachment> {
        let session = self.0.session(session)?;
        session.viewers().fetch_add(1, Ordering::Relaxed);
        info!(%session, ?seek, "viewer attached");
        let seek_last = match seek {
            Seek::Beginning => 0,
            Seek::Last => session.announced_next(),
        };
        Some(Attachment {
            session,
            next: 0,
            seek_last,
        })
    }

    fn next_viewer(&self) -> ViewerId {
        self.0.next_viewer()
    }
}

fn listed(session: &Session) -> ListedSession {
    let identity = session.identity();
    ListedSession {
        session: identity.id,
        live_timer: identity.live_timer,
        viewers: session.viewers().load(Ordering::Relaxed),
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

impl viewer_proto::relay::Session for Attachment {
    type Stream = PacketReader;
    type Metadata = MetadataReader;

    fn has_new_streams(&self) -> bool {
        self.next < self.session.announced_next()
    }

    fn new_streams(&mut self) -> Vec<NewStream<PacketReader, MetadataReader>> {
        let mut new = Vec::new();
        for (number, listed) in self.session.announced_from(self.next) {
            self.next = number + 1;
            let was_there = number < self.seek_last;
            let position = match &listed.content {
                // It has nothing to come.
                Content::Packets(published) if was_there && published.is_over() => continue,
                Content::Packets(published) => {
                    let next = if was_there {
                        published.next_packet()
                    } else {
                        0
                    };
                    Position::Packets(PacketReader::new(Arc::clone(published), next))
                }
                Content::Metadata(published) => {
                    Position::Metadata(MetadataReader::new(Arc::clone(published)))
                }
            };
            new.push(NewStream {
                record: listed.record.clone(),
                position,
            });
        }
        new
    }

    fn is_rotating(&self) -> bool {
        self.session.recording().is_rotating()
    }

    fn is_over(&self) -> bool {
        self.session.is_over()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.session.viewers().fetch_sub(1, Ordering::Relaxed);
        info!(session = %self.session, unread_streams = self.has_new_streams(), "viewer detached");
    }
}
