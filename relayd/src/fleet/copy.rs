//! One session of the archive, which is copied to this relay while viewers are attached to it: its
//! packets from all relays that have had it, first those that are there, then what comes. Each copy
//! has a thread of its own, on which file calls may block.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use archive::catalog::{CatalogError, MovedBlocks, SessionFollower, read_metadata, read_run};
use archive::document::CreatedDocument;
use archive::name::SessionKey;
use archive::object::PacketBlock;
use archive::session::{BlockUse, SessionUpdate};
use archive::store::Store;
use daemon::error_text::describe_error;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use rustix::fs::statvfs;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};
use viewer_proto::session::Seek;
use wire::{SessionId, Timestamp};

use super::Fleet;
use super::copy_writer::CopyWriter;
use crate::limits::{
    FLEET_BLOCKS_AHEAD, FLEET_COPY_GRACE_PERIOD, FLEET_FREE_BYTES, FLEET_FREE_PART,
    FLEET_POLL_INTERVAL, TICK,
};
use crate::registry::session::Session;
use crate::store::pool::Pool;

/// Largest decoded block: that of a packet of this size is not copied.
const MAX_BLOCK_BYTES: u32 = 256 << 20;

/// A session that is copied.
#[derive(Debug)]
pub(super) struct SessionCopy {
    id: SessionId,
    /// Whether it has all packets, or those that are archived after it was begun.
    begin: Seek,
    key: SessionKey,
    document: CreatedDocument,
    directory: PathBuf,
    pool: Arc<Pool>,
    /// Empty: nothing is known of it yet.
    session: OnceLock<Arc<Session>>,
    /// Whether viewers find what the archive had when the copy was begun, or never will.
    is_ready: watch::Sender<bool>,
    used: Mutex<Instant>,
    moved: MovedBlocks,
}

/// A session cannot be copied further.
#[derive(Debug, Error)]
enum CopyError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] CatalogError),
    /// The copy cannot be written.
    #[error("cannot write the copy: {0}")]
    Write(#[from] io::Error),
}

impl SessionCopy {
    pub(super) fn new(
        (id, begin): (SessionId, Seek),
        (key, document): (SessionKey, CreatedDocument),
        directory: PathBuf,
        pool: Arc<Pool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            begin,
            key,
            document,
            directory,
            pool,
            session: OnceLock::new(),
            is_ready: watch::Sender::new(false),
            used: Mutex::new(Instant::now()),
            moved: MovedBlocks::default(),
        })
    }

    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn begin(&self) -> Seek {
        self.begin
    }

    /// The session for viewers, if there is anything.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.session.get().cloned()
    }

    pub(super) fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    pub(super) async fn wait_until_ready(&self) {
        let mut is_ready = self.is_ready.subscribe();
        // The sender lives as long as this.
        let _ = is_ready.wait_for(|is_ready| *is_ready).await;
    }

    /// Keeps the copy for a viewer that attaches.
    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Removes the files of the copy.
    pub(super) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            let directory = self.directory.display();
            warn!(%directory, %error, "copy of a session of the archive not removed");
        }
    }

    fn is_used(&self) -> bool {
        let now = Instant::now();
        let viewers = self.session.get().map(|session| session.viewers());
        if viewers.is_some_and(|viewers| viewers.attached() > 0 || viewers.are_expected(now)) {
            self.touch();
        }
        now.duration_since(*self.used.lock()) < FLEET_COPY_GRACE_PERIOD
    }

    /// Copies the session until no viewer needs it.
    pub(super) async fn follow(self: &Arc<Self>, fleet: &Fleet) {
        let copied = self.copy(fleet).await;
        self.is_ready.send_replace(true);
        if let Err(error) = copied {
            let (host, name) = (&self.document.host, &self.document.name);
            let error = describe_error(&error);
            fleet.status().count_copy_failure();
            warn!(host, name, %error, "session of the archive not copied further: its viewers are disconnected");
            // Viewers that connect again get another copy.
            return;
        }
        while self.is_used() {
            tokio::time::sleep(TICK).await;
        }
    }

    async fn copy(&self, fleet: &Fleet) -> Result<(), CopyError> {
        let (directory, pool) = (self.directory.clone(), Arc::clone(&self.pool));
        let listed = (self.key, &self.document);
        let mut writer = CopyWriter::new((self.id, self.begin), listed, directory, pool)?;
        let copied = self.copy_to(&mut writer, fleet).await;
        match copied {
            Ok(()) => writer.end(),
            // Not its end, which viewers would take for that of the session.
            Err(_) => writer.session().set_partial(),
        }
        copied
    }

    async fn copy_to(&self, writer: &mut CopyWriter, fleet: &Fleet) -> Result<(), CopyError> {
        let mut follower = SessionFollower::new(self.key);
        let (mut is_first, mut was_quiet) = (true, false);
        while is_first || self.is_used() {
            // In this order: what is archived before the end is found after it.
            let has_ended = fleet.has_ended(self.id);
            let mut failures = 0;
            let update = follower.poll(&**fleet.store(), |error| {
                failures += 1;
                if failures == 1 {
                    let error = describe_error(&error);
                    warn!(session = %writer.session(), %error, "object of the archive not read");
                }
            });
            let mut update = match update.await {
                Ok(update) => update,
                // The store may be away for a while.
                Err(error) if error.is_unknown() && !is_first => {
                    tokio::time::sleep(FLEET_POLL_INTERVAL).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_quiet = update.packets() == 0;
            if is_first && self.begin == Seek::Last {
                update
                    .streams
                    .values_mut()
                    .for_each(|stream| stream.blocks.clear());
            }
            let objects = follower.objects();
            self.add_streams(writer, &update, objects, &**fleet.store())
                .await?;
            if is_first {
                let session = writer.session();
                let streams = update.streams.len();
                info!(%session, streams, "session of the archive copied for viewers");
                let _ = self.session.set(Arc::clone(session));
                self.is_ready.send_replace(true);
                is_first = false;
            }
            self.write_packets(writer, update, objects, fleet).await?;
            // Twice: packets after missing ones wait for one more look.
            if has_ended && is_quiet && was_quiet {
                return Ok(());
            }
            was_quiet = is_quiet && has_ended;
            if is_quiet {
                tokio::time::sleep(FLEET_POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    async fn add_streams(
        &self,
        writer: &mut CopyWriter,
        update: &SessionUpdate,
        objects: &[Arc<str>],
        store: &dyn Store,
    ) -> Result<(), CopyError> {
        writer.add_streams(&update.streams)?;
        for (path, pieces) in &update.metadata {
            let len = pieces.last().map_or(0, |piece| piece.record.end());
            if len > writer.metadata_len(path) {
                self.wait_for_space().await?;
                let text = read_metadata(store, objects, pieces).await?;
                writer.write_metadata(path, &text)?;
            }
        }
        Ok(())
    }

    async fn write_packets(
        &self,
        writer: &mut CopyWriter,
        update: SessionUpdate,
        objects: &[Arc<str>],
        fleet: &Fleet,
    ) -> Result<(), CopyError> {
        let store = &**fleet.store();
        let mut blocks: Vec<(Timestamp, BlockUse)> = Vec::new();
        let mut beacons = Vec::new();
        for (number, stream) in update.streams {
            // Of a block, only the last packets may be used: it begins before the one before it.
            let mut begin = Timestamp(0);
            blocks.extend(stream.blocks.into_iter().map(|used| {
                begin = begin.max(used.block.record.begin);
                (begin, used)
            }));
            beacons.extend(stream.beacon.map(|beacon| (number, beacon)));
        }
        // Viewers merge the streams by time. Stable: blocks of one stream keep their order.
        blocks.sort_by_key(|(begin, _)| *begin);
        let fetched = blocks.into_iter().map(|(_, used)| async move {
            let object = objects.get(used.block.object).cloned().unwrap_or_default();
            let packets = self.fetch(store, &object, &used).await;
            (used, packets)
        });
        let mut fetched = stream::iter(fetched).buffered(FLEET_BLOCKS_AHEAD);
        while let Some((used, packets)) = fetched.next().await {
            let packets = match packets {
                Ok(packets) => packets,
                Err(error) if error.is_of_store() => return Err(error.into()),
                Err(error) => {
                    let error = describe_error(&error);
                    let first = used.begin.0;
                    warn!(session = %writer.session(), first, %error, "packets of the archive not copied");
                    continue;
                }
            };
            self.wait_for_space().await?;
            let bytes = write_block(writer, used.block.record.stream, &packets)?;
            fleet.status().count_copied(bytes);
            self.publish(writer).await?;
        }
        for (number, beacon) in beacons {
            writer.write_beacon(number, beacon)?;
        }
        self.publish(writer).await
    }

    /// Publishes what was written, as soon as the disk has space for it.
    async fn publish(&self, writer: &mut CopyWriter) -> Result<(), CopyError> {
        while !writer.publish()? {
            self.wait_for_tick().await?;
        }
        Ok(())
    }

    /// Waits a moment for space on the disk.
    ///
    /// # Errors
    /// If no viewer needs the copy any more: it must not take space for ever.
    async fn wait_for_tick(&self) -> Result<(), CopyError> {
        if !self.is_used() {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        tokio::time::sleep(TICK).await;
        Ok(())
    }

    /// Fetches the packets of a block, also if its object has been replaced by a part meanwhile.
    async fn fetch(
        &self,
        store: &dyn Store,
        object: &Arc<str>,
        used: &BlockUse,
    ) -> Result<Vec<FetchedPackets>, CatalogError> {
        match fetch_block(store, object, used).await {
            Ok(packets) => return Ok(vec![packets]),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let mut fetched = Vec::new();
        for (object, found) in self.moved.find(store, self.key, object, used).await? {
            fetched.push(fetch_block(store, &object, &found).await?);
        }
        Ok(fetched)
    }

    /// Waits while the disk has little space: the relay's own producers need it.
    async fn wait_for_space(&self) -> Result<(), CopyError> {
        let has_space = || {
            let space = statvfs(&self.directory);
            space.is_ok_and(|space| {
                let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
                let free = (bytes(space.f_blocks) / FLEET_FREE_PART).min(FLEET_FREE_BYTES);
                bytes(space.f_bavail) >= free
            })
        };
        if has_space() {
            return Ok(());
        }
        warn!(
            "session of the archive not copied further for viewers: the disk has little free space"
        );
        while !has_space() {
            self.wait_for_tick().await?;
        }
        Ok(())
    }
}

/// Packets of a block that follow one another.
struct FetchedPackets {
    block: PacketBlock,
    first: usize,
    end: usize,
}

async fn fetch_block(
    store: &dyn Store,
    object: &Arc<str>,
    used: &BlockUse,
) -> Result<FetchedPackets, CatalogError> {
    let record = &used.block.record;
    if record.block.raw > MAX_BLOCK_BYTES {
        return Err(CatalogError::Limit {
            what: format!("bytes of a block of {object}"),
            limit: u64::from(MAX_BLOCK_BYTES),
        });
    }
    let run = read_run(store, object, &[record.block]).await?;
    let bytes = run.decode(&record.block)?;
    let block = PacketBlock::parse(record, bytes).map_err(|source| CatalogError::Object {
        name: object.to_string(),
        source,
    })?;
    let number = |seq: u64| usize::try_from(seq.saturating_sub(record.first.0)).unwrap_or(0);
    Ok(FetchedPackets {
        first: number(used.begin.0),
        end: number(used.end.0).min(block.len()),
        block,
    })
}

/// Writes the packets of a block. Returns their bytes.
fn write_block(
    writer: &mut CopyWriter,
    stream: u64,
    fetched: &[FetchedPackets],
) -> io::Result<u64> {
    let mut written = 0;
    for packets in fetched {
        let numbers = packets.first..packets.end;
        for (entry, bytes) in numbers.filter_map(|number| packets.block.packet(number)) {
            writer.write_packet(stream, entry.packet, bytes)?;
            written += bytes.len() as u64;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_that_no_viewer_needs_waits_for_no_space() {
        let key = SessionKey {
            producer: [7; 16],
            id: 1,
        };
        let document = CreatedDocument {
            session: key.to_string(),
            host: "vm".to_owned(),
            name: "app".to_owned(),
            created: 1,
            live_timer: 0,
            ctf_version: 1,
        };
        // Of which no free space is known.
        let directory = PathBuf::from("/nonexistent");
        let (id, pool) = ((SessionId(1), Seek::Beginning), Pool::new(1));
        let copy = SessionCopy::new(id, (key, document), directory, pool);
        *copy.used.lock() -= FLEET_COPY_GRACE_PERIOD;
        let waited = tokio::time::timeout(FLEET_COPY_GRACE_PERIOD, copy.wait_for_space());
        assert!(waited.await.unwrap().is_err());
    }
}
