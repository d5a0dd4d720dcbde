//! The chunks that the sessions of one recording share. Kernel and user-space tracing are separate
//! sessions on the relay, but write to the same chunks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use jiff::tz::TimeZone;
use parking_lot::Mutex;
use relay_proto::session::DaemonId;
use wire::{ChunkId, EpochSeconds};

use super::claims::Claims;
use crate::store::chunk::{Chunk, Holding};

/// The key of a recording: its session daemon, and its number there.
pub type RecordingKey = (DaemonId, u64);

/// The recordings that have sessions.
#[derive(Debug, Default)]
pub struct Recordings(Mutex<RecordingTable>);

#[derive(Debug, Default)]
struct RecordingTable {
    recordings: HashMap<RecordingKey, Weak<Recording>>,
    /// Number of recordings at which those without sessions are removed.
    prune_at: usize,
}

/// The chunks of one recording.
#[derive(Debug, Default)]
pub struct Recording {
    chunks: Mutex<Chunks>,
    /// The directories that the recording writes to.
    pub(super) claims: Mutex<Claims>,
}

#[derive(Debug, Default)]
struct Chunks {
    /// The chunks that a session may still write to.
    alive: BTreeMap<ChunkId, Weak<Chunk>>,
    /// The chunks that have a successor and are still written to: the recording is rotating.
    succeeded: Vec<Arc<Chunk>>,
    /// Whether a chunk is about to be created.
    is_next_expected: bool,
}

impl Recordings {
    /// The recording of a session. Without a key, a recording of its own.
    #[must_use]
    pub fn of(&self, key: Option<RecordingKey>) -> Arc<Recording> {
        let Some(key) = key else {
            return Arc::default();
        };
        let mut table = self.0.lock();
        let RecordingTable {
            recordings,
            prune_at,
        } = &mut *table;
        if recordings.len() >= *prune_at {
            recordings.retain(|_, recording| recording.strong_count() > 0);
            // Doubled, so that the cost of a walk is shared by as many new recordings as there
            // were.
            *prune_at = (2 * recordings.len()).max(16);
        }
        if let Some(recording) = recordings.get(&key).and_then(Weak::upgrade) {
            return recording;
        }
        let recording = Arc::default();
        recordings.insert(key, Arc::downgrade(&recording));
        recording
    }
}

impl Chunks {
    fn are_written(&self) -> bool {
        let mut alive = self.alive.values().filter_map(Weak::upgrade);
        alive.any(|chunk| chunk.is_held())
    }
}

impl Recording {
    /// The chunk with this number, if it is still written to.
    #[must_use]
    pub fn chunk(&self, id: ChunkId) -> Option<Holding> {
        let chunk = self.chunks.lock().alive.get(&id).and_then(Weak::upgrade)?;
        // With the table unlocked: a chunk's state is locked across file calls.
        Holding::of(chunk)
    }

    /// Whether a chunk is still written to, or still being deleted.
    #[must_use]
    pub fn has_chunk(&self, id: ChunkId) -> bool {
        let chunk = self.chunks.lock().alive.get(&id).and_then(Weak::upgrade);
        chunk.is_some_and(|chunk| chunk.is_present())
    }

    /// Adds a chunk that is written to from now on.
    pub fn add_chunk(&self, id: ChunkId, chunk: &Holding) {
        let mut chunks = self.chunks.lock();
        chunks.alive.retain(|_, chunk| chunk.strong_count() > 0);
        chunks.alive.insert(id, Arc::downgrade(chunk.chunk()));
        chunks.is_next_expected = false;
    }

    /// Archives the chunks that have not been ended, though some may still be held: their producer
    /// is dead. So a later recording can use the directory, and overwrites nothing.
    pub(super) fn archive_chunks(&self, ended: EpochSeconds, time_zone: &TimeZone) {
        let alive: Vec<_> = {
            let chunks = self.chunks.lock();
            chunks.alive.values().filter_map(Weak::upgrade).collect()
        };
        for chunk in alive {
            // With the table unlocked: this moves directories.
            chunk.archive_now(ended, time_zone);
        }
    }

    /// Announces a chunk that is about to be created, unless the recording has one.
    pub fn expect_chunk(&self) {
        let mut chunks = self.chunks.lock();
        chunks.is_next_expected = !chunks.are_written();
    }

    /// Whether some chunk is written to, or is about to be. If not, the recording has ended or is
    /// stopped, and nothing in its directory will move.
    #[must_use]
    pub fn is_written(&self) -> bool {
        let chunks = self.chunks.lock();
        chunks.is_next_expected || chunks.are_written()
    }

    /// Marks a chunk that has a successor. As long as the chunk is written to, the recording is
    /// rotating.
    pub fn succeed(&self, chunk: &Holding) {
        let mut chunks = self.chunks.lock();
        if !chunks
            .succeeded
            .iter()
            .any(|known| Arc::ptr_eq(known, chunk.chunk()))
        {
            chunks.succeeded.push(Arc::clone(chunk.chunk()));
        }
    }

    /// Whether some chunk that has a successor is still written to.
    #[must_use]
    pub fn is_rotating(&self) -> bool {
        let mut chunks = self.chunks.lock();
        chunks.succeeded.retain(|chunk| chunk.is_held());
        !chunks.succeeded.is_empty()
    }
}
