//! The chunks of one session that the archive has data of, and what it says of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use archive::object::ObjectWriter;
use archive::record::{ChunkRecord, ChunkState, Record};
use wire::ChunkId;

use crate::store::chunk::Chunk;

/// The chunks of a session.
#[derive(Debug, Default)]
pub(super) struct Chunks(BTreeMap<Option<ChunkId>, TrackedChunk>);

#[derive(Debug)]
struct TrackedChunk {
    chunk: Arc<Chunk>,
    /// The state that commit objects have. None: none.
    committed: Option<ChunkState>,
    /// The state that parts have. None: none.
    parted: Option<ChunkState>,
}

fn state(chunk: &Chunk) -> ChunkState {
    if chunk.is_deleted() {
        ChunkState::Deleted
    } else if chunk.is_held() {
        ChunkState::Open
    } else {
        ChunkState::Ended
    }
}

impl Chunks {
    /// Adds a chunk, unless it is known. Returns its number.
    pub(super) fn add(&mut self, chunk: &Arc<Chunk>) -> Option<ChunkId> {
        let id = chunk.id();
        self.0.entry(id).or_insert_with(|| TrackedChunk {
            chunk: Arc::clone(chunk),
            committed: None,
            parted: None,
        });
        id
    }

    /// Adds the chunks of another table.
    pub(super) fn extend(&mut self, other: Self) {
        for tracked in other.0.values() {
            self.add(&tracked.chunk);
        }
    }

    /// The numbers of the chunks.
    pub(super) fn ids(&self) -> impl Iterator<Item = Option<ChunkId>> + '_ {
        self.0.keys().copied()
    }

    /// Whether some chunk has a state that no commit object has.
    pub(super) fn is_pending(&self) -> bool {
        let mut chunks = self.0.values();
        chunks.any(|tracked| tracked.committed != Some(state(&tracked.chunk)))
    }

    /// Adds the states that no commit object has.
    pub(super) fn commit(&mut self, object: &mut ObjectWriter) {
        for (chunk, tracked) in &mut self.0 {
            let now = state(&tracked.chunk);
            if tracked.committed != Some(now) {
                tracked.committed = Some(now);
                add(*chunk, now, object);
            }
        }
    }

    /// Adds the states of all chunks to a part.
    pub(super) fn part(&mut self, object: &mut ObjectWriter) {
        for (chunk, tracked) in &mut self.0 {
            let now = state(&tracked.chunk);
            tracked.parted = Some(now);
            add(*chunk, now, object);
        }
    }

    /// Whether a chunk is written to.
    pub(super) fn is_open(&self, chunk: Option<ChunkId>) -> bool {
        let tracked = self.0.get(&chunk);
        tracked.is_some_and(|tracked| tracked.parted == Some(ChunkState::Open))
    }

    /// Forgets the chunks that are not written to, whose state parts have.
    pub(super) fn forget_parted(&mut self) {
        self.0
            .retain(|_, tracked| matches!(tracked.parted, None | Some(ChunkState::Open)));
    }
}

fn add(chunk: Option<ChunkId>, state: ChunkState, object: &mut ObjectWriter) {
    object.add_record(&Record::Chunk(ChunkRecord { chunk, state }));
}
