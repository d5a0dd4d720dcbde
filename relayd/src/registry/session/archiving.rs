//! What the archive needs of a session: its name there, its log for the next relay, and the lock
//! that keeps retention from removing its directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use archive::name::SessionKey;
use wire::ChunkId;

use super::Session;
use crate::store::archive_log::{ArchiveLog, ArchiveRecord, LoggedChunk};
use crate::store::chunk::{Chunk, ChunkPlace};

/// What is known of the session's way into the archive.
#[derive(Debug, Default)]
pub(super) struct Archiving {
    /// Whether some of it is not in the archive: retention must not remove the directory.
    is_awaited: AtomicBool,
    /// Whether other relays have archived some of it, so that this one has not all of it.
    is_partial: AtomicBool,
    /// Empty: the session is not archived, or has had no stream.
    identity: OnceLock<ArchivedAs>,
}

/// The identity of a session in the archive.
#[derive(Debug)]
pub struct ArchivedAs {
    /// The key of the session in the archive.
    pub key: SessionKey,
    /// Time of its creation, in nanoseconds since 1970.
    pub created: u64,
    /// Whether its producer can resume it.
    pub is_resumable: bool,
    /// Whether it has ended in an earlier run of this relay because its producer did not come back
    /// in time.
    pub has_expired: bool,
    /// Its log for the next relay. Empty: the session can be resumed, or the log could not be made.
    pub log: OnceLock<Arc<ArchiveLog>>,
    /// Whether other relays have archived the session before, so that this one has only the rest.
    /// Empty: that is not known yet.
    pub has_moved_here: OnceLock<bool>,
}

impl Session {
    /// Lets retention remove the directory if the producer is gone and no stream is open.
    pub(in crate::registry) fn unlock_directory_if_ended(&self) {
        if self.is_over() && self.is_empty() && !self.awaits_archive() {
            self.retained.lock().take();
        }
    }

    /// Keeps retention from removing the directory until all of it is in the archive. Returns the
    /// identity of the session there, which is made unless it is known.
    pub(in crate::registry) fn hold_for_archive(
        &self,
        identity: impl FnOnce() -> ArchivedAs,
    ) -> &ArchivedAs {
        self.archiving.is_awaited.store(true, Ordering::Release);
        self.identify_for_archive(identity)
    }

    /// Gives the session an identity in the archive, unless it has one.
    pub(in crate::registry) fn identify_for_archive(
        &self,
        identity: impl FnOnce() -> ArchivedAs,
    ) -> &ArchivedAs {
        self.archiving.identity.get_or_init(identity)
    }

    /// The identity of the session in the archive. None: it is not archived, or has had no stream.
    #[must_use]
    pub fn archived_as(&self) -> Option<&ArchivedAs> {
        self.archiving.identity.get()
    }

    /// Records that other relays have archived some of the session, and wakes the viewers, which
    /// are to look for all of it in the archive.
    pub fn set_partial(&self) {
        self.archiving.is_partial.store(true, Ordering::Release);
        self.subscriptions.lock().notify();
    }

    /// Whether other relays have archived some of the session, so that this one has not all of it.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.archiving.is_partial.load(Ordering::Acquire)
    }

    /// Whether some of it is not in the archive.
    pub(in crate::registry) fn awaits_archive(&self) -> bool {
        self.archiving.is_awaited.load(Ordering::Acquire)
    }

    /// Lets retention remove the directory of a session that has ended: all of it is in the
    /// archive.
    pub fn release_from_archive(&self) {
        if let Some(log) = self.archive_log() {
            log.remove();
        }
        self.archiving.is_awaited.store(false, Ordering::Release);
        self.unlock_directory_if_ended();
    }

    fn archive_log(&self) -> Option<&Arc<ArchiveLog>> {
        self.archived_as()?.log.get()
    }

    /// Has the next relay find a chunk in which the session may have files from now on.
    pub fn log_chunk_for_archive(&self, chunk: &Chunk) {
        let Some(log) = self.archive_log() else {
            return;
        };
        let id = chunk.id();
        if log.with_session(|session| session.chunks.contains_key(&id)) {
            return;
        }
        let name = match chunk.place() {
            ChunkPlace::Named(name) => Some(name),
            _ => None,
        };
        let logged = LoggedChunk {
            began: chunk.began().into(),
            name,
            is_deleted: false,
        };
        log.append(ArchiveRecord::Chunk(id, logged));
    }

    /// Lets the next relay know that the producer has a chunk deleted.
    pub fn log_deletion_for_archive(&self, chunk: Option<ChunkId>) {
        if let Some(log) = self.archive_log() {
            log.append(ArchiveRecord::ChunkDeleted(chunk));
        }
    }
}
