//! The control connection that a session belongs to, and the change to another one.

use std::net::IpAddr;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tracing::warn;
use wire::StreamId;

use super::Session;
use crate::registry::recording::RecordingKey;
use crate::registry::resumable::{Attachment, DetachOutcome, Resumable};
use crate::registry::stream::SessionStream;

impl Session {
    /// Token whose cancellation ends the connections of the session.
    #[must_use]
    pub fn connections(&self) -> CancellationToken {
        self.owner.lock().connections.clone()
    }

    /// Number of the control connection that the session belongs to, among those that it has had.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.owner.lock().generation
    }

    /// Address of the peer of the control connection that the session belongs to, or belonged to
    /// last.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.owner.lock().address
    }

    /// Length of the session's log in bytes. 0: the session is not resumable.
    pub(in crate::registry) fn log_bytes(&self) -> u64 {
        let kept = self.resumable.get();
        kept.map_or(0, |resumable| resumable.log.bytes())
    }

    /// Whether the session belongs to the control connection with this number.
    #[must_use]
    pub fn is_owned_by(&self, generation: u64) -> bool {
        self.owner.lock().generation == generation
    }

    /// Ends the connections of the session because of an error on one of them, unless the session
    /// has others by now.
    pub fn cancel_connections(&self, generation: u64) {
        let owner = self.owner.lock();
        if owner.generation == generation {
            owner.connections.cancel();
        }
    }

    /// Makes the session resumable. Returns whether it was not before.
    pub(in crate::registry) fn make_resumable(&self, resumable: Resumable) -> bool {
        self.resumable.set(resumable).is_ok()
    }

    /// The part that makes the session resumable. None: the session ends with its control
    /// connection.
    #[must_use]
    pub fn resumable(&self) -> Option<&Resumable> {
        let resumable = self.resumable.get()?;
        let has_ended = self.owner.lock().attachment == Attachment::Ended;
        (!has_ended).then_some(resumable)
    }

    /// The part that made the session resumable, even if the session has ended.
    pub(in crate::registry) fn kept(&self) -> Option<&Resumable> {
        self.resumable.get()
    }

    /// Whether the session is kept when its connections are lost.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        self.resumable().is_some()
    }

    /// Whether the session has no control connection, and is kept.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        matches!(self.owner.lock().attachment, Attachment::Detached { .. })
    }

    /// The ids by which a producer resumes the session. None: it cannot be resumed.
    pub fn resume_key(&self) -> Option<RecordingKey> {
        let log = &self.resumable.get()?.log;
        log.with_session(|session| {
            let recording = session.created.recording.as_ref()?;
            Some((recording.daemon, recording.id))
        })
    }

    /// Gives the session to another control connection, ends those that it had, and rewinds the
    /// streams. Returns the number of the connection. None: the session has ended.
    pub(in crate::registry) fn attach(
        &self,
        connections: CancellationToken,
        address: IpAddr,
    ) -> Option<u64> {
        // A command of the earlier connection that changes files is completed first.
        let _directory = self.directory.lock();
        let mut owner = self.owner.lock();
        if owner.attachment == Attachment::Ended || self.is_over() {
            return None;
        }
        owner.connections.cancel();
        owner.generation += 1;
        owner.connections = connections;
        owner.address = address;
        owner.attachment = Attachment::Attached;
        let generation = owner.generation;
        drop(owner);
        // The producer may come from another address than before.
        self.forget_data_address();
        self.rewind_streams();
        Some(generation)
    }

    /// Takes the session from a control connection that has ended. A resumable session that belongs
    /// to it loses its data connections, and its streams are rewound.
    pub(in crate::registry) fn detach(&self, generation: u64, until: Instant) -> DetachOutcome {
        // The next connection waits: what it sends must not be rewound.
        let _directory = self.directory.lock();
        let mut owner = self.owner.lock();
        // Decided with the lock held: another connection may be resuming the session.
        if owner.generation != generation || self.is_over() {
            return DetachOutcome::NotOwner;
        }
        if self.resumable.get().is_none() || owner.attachment == Attachment::Ended {
            return DetachOutcome::Ends;
        }
        owner.connections.cancel();
        owner.attachment = Attachment::Detached { until };
        drop(owner);
        self.rewind_streams();
        DetachOutcome::Detached
    }

    /// Ends a session that has been detached for too long, or if `now` is None, that is detached.
    /// Returns whether it is.
    pub(in crate::registry) fn expire(&self, now: Option<Instant>) -> bool {
        let mut owner = self.owner.lock();
        let is_due = match owner.attachment {
            Attachment::Detached { until } => now.is_none_or(|now| until <= now),
            Attachment::Attached | Attachment::Ended => false,
        };
        if is_due {
            owner.attachment = Attachment::Ended;
        }
        is_due
    }

    /// Makes it impossible to resume the session. Returns whether it was possible.
    pub(in crate::registry) fn end_resuming(&self) -> bool {
        let mut owner = self.owner.lock();
        let before = std::mem::replace(&mut owner.attachment, Attachment::Ended);
        self.resumable.get().is_some() && before != Attachment::Ended
    }

    /// Whether a resumable session is complete: its chunk and all its streams are closed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let Some(resumable) = self.resumable.get() else {
            return false;
        };
        let is_closed = resumable
            .log
            .with_session(|session| session.is_chunk_closed);
        is_closed && self.streams.lock().streams().all(SessionStream::is_closed)
    }

    /// Removes what the relay has of packets and metadata that will be sent again, because a
    /// connection was lost. The caller has locked the directory.
    fn rewind_streams(&self) {
        for stream in self.streams() {
            if stream.is_closed() {
                continue;
            }
            let rewound = match &stream {
                SessionStream::Data(stream) => stream.lock().rewind().map(|_| ()),
                SessionStream::Metadata(stream) => match stream.rewind() {
                    Ok(_) => Ok(()),
                    Err(error) => {
                        warn!(session = %self, %error, "incomplete metadata not removed yet");
                        continue;
                    }
                },
            };
            if let Err(error) = rewound {
                warn!(session = %self, %error, "incomplete packets not removed yet");
            }
        }
    }

    /// Has the producer name a stream by another number from now on.
    pub(in crate::registry) fn renumber(&self, id: StreamId, wire_id: StreamId) {
        self.streams.lock().renumber(id, wire_id);
    }

    /// Closes the files of a resumable session for a relay that ends, so that the next one can
    /// continue it. Returns whether the session is resumable.
    pub(in crate::registry) fn suspend(&self) -> bool {
        let Some(resumable) = self.resumable() else {
            return false;
        };
        self.connections().cancel();
        let _directory = self.directory.lock();
        for stream in self.streams() {
            match stream {
                SessionStream::Data(stream) => stream.lock().suspend(),
                SessionStream::Metadata(stream) => stream.suspend(),
            }
        }
        // After the streams, which log how far they got.
        resumable.log.keep();
        true
    }
}
