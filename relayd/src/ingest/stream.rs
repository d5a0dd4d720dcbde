//! One stream, for the connections on which its packets and indexes arrive. [`DataStream::lock`]
//! gives access to its [`StreamWriter`]; properties that need no lock are read directly.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use wire::StreamId;

use super::error::DiskFullPolicy;
use super::reorder::ReorderWindow;
use super::stream_writer::StreamWriter;
use crate::publish::published::Published;
use crate::publish::tally::Tally;
use crate::store::eviction::Evictable;
use crate::store::stream_files::StreamFiles;

/// One stream of packets, shared by its connections, its session and the pool.
#[derive(Debug)]
pub struct DataStream {
    id: StreamId,
    published: Arc<Published>,
    tally: Arc<Tally>,
    writer: Mutex<StreamWriter>,
}

/// The writer of a stream, locked.
pub type StreamGuard<'a> = MutexGuard<'a, StreamWriter>;

impl DataStream {
    /// A stream that writes to `files`. Without indexes, bytes alone make a packet.
    #[must_use]
    pub fn new(
        id: StreamId,
        files: StreamFiles,
        window: ReorderWindow,
        has_indexes: bool,
        when_full: DiskFullPolicy,
    ) -> Arc<Self> {
        let published = Arc::<Published>::default();
        let slot = Arc::clone(files.slot());
        let tally = Arc::<Tally>::default();
        let (viewed, counted) = (Arc::clone(&published), Arc::clone(&tally));
        let writer = StreamWriter::new(id, viewed, counted, files, window, has_indexes, when_full);
        let stream = Arc::new(Self {
            id,
            published,
            tally,
            writer: Mutex::new(writer),
        });
        // Weak, because the stream has the slot: otherwise each would keep the other.
        let weak: Weak<dyn Evictable> = Arc::<Self>::downgrade(&stream);
        slot.set_owner(weak);
        stream
    }

    /// Number of the stream, as the producer knows it.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The part that viewers may see.
    #[must_use]
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The counters of the stream.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Locks the stream for one packet, index or command, so that no other can interleave. The
    /// guard is held across system calls: never hold it across an await, or together with that of
    /// another stream.
    pub fn lock(&self) -> StreamGuard<'_> {
        self.writer.lock()
    }

    /// Locks the stream unless it is locked. For callers that serve several sessions: a disk that
    /// hangs in a write of this stream must not stop them.
    pub fn try_lock(&self) -> Option<StreamGuard<'_>> {
        self.writer.try_lock()
    }

    /// Whether the stream is paused until the disk has space. Its connections must then read no
    /// further.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.tally.is_paused()
    }

    /// Whether the stream is closed and accepts no packets.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.published.is_over()
    }
}

impl Evictable for DataStream {
    fn close_files(&self, _is_needed: bool) -> bool {
        // Only tried: the thread may have locked another stream, whose file needs the room.
        self.try_lock()
            .is_some_and(|mut writer| writer.close_files())
    }
}
