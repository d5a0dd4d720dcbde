//! Blocks become packets: fetched by one request for those that lie side by side, and decoded on a
//! thread that may block.

use std::sync::Arc;

use archive::catalog::{BlockRun, CatalogError, MovedBlock, MovedBlocks, read_run};
use archive::name::{SessionKey, parse_commit};
use archive::object::PacketBlock;
use archive::record::BlockPlace;
use archive::session::BlockUse;
use archive::store::Store;
use wire::PacketIndex;

use super::ArchiveError;
use crate::attach::packet::{IncomingPacket, MAX_PACKET_BYTES};
use crate::attach::{MemoryBudget, Packet};

/// Stored bytes from which on no further block is fetched by the same request.
const MAX_RUN_STORED_BYTES: u64 = 1 << 20;
/// Decoded bytes from which on no further block is fetched by the same request, if the caller
/// allows as many.
pub(super) const MAX_RUN_BYTES: u64 = 4 << 20;

/// Blocks of one stream that one request fetches.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) session: SessionKey,
    pub(super) object: Arc<str>,
    pub(super) blocks: Vec<BlockUse>,
}

/// A packet, and its index entry without the offset.
pub(super) type FetchedPacket = (PacketIndex, Packet);

/// The packets of a block, or the reason why there are none.
pub(super) type FetchedBlock = (BlockUse, Result<Vec<FetchedPacket>, String>);

/// Whether a run of this many bytes takes a further block. `limit` is that of the decoded bytes.
pub(super) fn has_room(stored: u64, bytes: u64, next: &BlockPlace, limit: u64) -> bool {
    stored + u64::from(next.stored) <= MAX_RUN_STORED_BYTES && bytes + u64::from(next.raw) <= limit
}

impl Run {
    /// The memory that the blocks take when they are decoded.
    pub(super) fn bytes(&self) -> u64 {
        let places = self.blocks.iter().map(|used| used.block.record.block);
        places.map(|place| u64::from(place.raw)).sum()
    }

    /// Fetches and decodes the blocks. A block that is damaged does not keep the others from being
    /// read; a store that fails does.
    pub(super) async fn fetch(
        self,
        store: &dyn Store,
        memory: &MemoryBudget,
        moved: &MovedBlocks,
    ) -> Result<Vec<FetchedBlock>, ArchiveError> {
        let (session, object) = (self.session, Arc::clone(&self.object));
        match self.fetch_here(store, memory).await? {
            Ok(fetched) => Ok(fetched),
            Err((blocks, error)) if error.is_not_found() && parse_commit(&object).is_ok() => {
                let mut fetched = Vec::new();
                for used in blocks {
                    let found = moved.find(store, session, &object, &used).await?;
                    let error = crate::with_sources(&error);
                    fetched
                        .extend(fetch_moved((session, found), used, &error, store, memory).await?);
                }
                Ok(fetched)
            }
            Err((blocks, error)) => Ok(failed(blocks, &crate::with_sources(&error))),
        }
    }

    /// Fetches the blocks from the object. Returns them with the error if it cannot be read.
    async fn fetch_here(
        self,
        store: &dyn Store,
        memory: &MemoryBudget,
    ) -> Result<Result<Vec<FetchedBlock>, (Vec<BlockUse>, CatalogError)>, ArchiveError> {
        let places = self.blocks.iter().map(|used| used.block.record.block);
        let places: Vec<BlockPlace> = places.collect();
        let run = match read_run(store, &self.object, &places).await {
            Ok(run) => run,
            Err(error) if error.is_of_store() => return Err(error.into()),
            Err(error) => return Ok(Err((self.blocks, error))),
        };
        let memory = memory.clone();
        let decode = move || {
            let decoded = self.blocks.into_iter().map(|used| {
                let packets = decode(&run, &used, &memory);
                (used, packets)
            });
            decoded.collect()
        };
        let decoded = tokio::task::spawn_blocking(decode).await;
        decoded.map(Ok).map_err(|_| ArchiveError::Thread)
    }
}

fn failed(blocks: Vec<BlockUse>, reason: &str) -> Vec<FetchedBlock> {
    let blocks = blocks.into_iter();
    blocks.map(|used| (used, Err(reason.to_owned()))).collect()
}

/// Fetches the packets of `used` from where they are now. What is nowhere gets the reason `gone`.
async fn fetch_moved(
    (session, moved): (SessionKey, Vec<MovedBlock>),
    used: BlockUse,
    gone: &str,
    store: &dyn Store,
    memory: &MemoryBudget,
) -> Result<Vec<FetchedBlock>, ArchiveError> {
    let found: u64 = moved
        .iter()
        .map(|(_, used)| used.end.0 - used.begin.0)
        .sum();
    let mut fetched = Vec::new();
    for (object, used) in moved {
        let run = Run {
            session,
            object,
            blocks: vec![used],
        };
        match run.fetch_here(store, memory).await? {
            Ok(blocks) => fetched.extend(blocks),
            Err((blocks, error)) => fetched.extend(failed(blocks, &crate::with_sources(&error))),
        }
    }
    if found < used.end.0 - used.begin.0 {
        fetched.extend(failed(vec![used], gone));
    }
    Ok(fetched)
}

/// Decodes a block, and copies its packets, of which a damaged one has no size that is believed.
fn decode(
    run: &BlockRun,
    used: &BlockUse,
    memory: &MemoryBudget,
) -> Result<Vec<FetchedPacket>, String> {
    let record = &used.block.record;
    // A packet may have as many bytes, and a block of several has far less.
    if u64::from(record.block.raw) > MAX_PACKET_BYTES {
        return Err(format!("a block of {} bytes is too long", record.block.raw));
    }
    let block = run.decode(&record.block);
    let block = block.map_err(|error| crate::with_sources(&error))?;
    let block = PacketBlock::parse(record, block).map_err(|error| error.to_string())?;
    let number = |at: u64| usize::try_from(at.saturating_sub(record.first.0)).unwrap_or(usize::MAX);
    let numbers = number(used.begin.0)..number(used.end.0).min(block.len());
    let mut packets = Vec::with_capacity(numbers.len());
    for number in numbers {
        let (entry, bytes) = block.packet(number).ok_or("a packet is missing")?;
        let len = bytes.len() as u64;
        let copied = IncomingPacket::new(len, memory).and_then(|mut packet| {
            packet.append(bytes, len)?;
            Ok(packet.finish())
        });
        let copied = copied.map_err(|error| format!("no space for a packet: {error}"))?;
        packets.push((entry.packet, copied));
    }
    Ok(packets)
}
