//! Reads blocks of an object: those that follow one another by one request.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::error::CatalogError;
use super::request;
use crate::object::{ObjectError, decode_block};
use crate::record::BlockPlace;
use crate::store::Store;

/// Blocks of one object that follow one another, and their bytes as they are stored.
#[derive(Debug)]
pub struct BlockRun {
    object: Arc<str>,
    begin: u64,
    bytes: Bytes,
}

/// The bytes that a run of blocks takes in its object: from the first block to the end of the last.
fn range(places: &[BlockPlace]) -> Option<Range<u64>> {
    // Relays store nothing that has become longer: what is decoded is limited, and so is this.
    if places.iter().any(|place| place.stored > place.raw) {
        return None;
    }
    let begin = places.iter().map(|place| place.offset.0).min()?;
    let ends = places.iter().map(|place| place.end());
    // Of ends that cannot be, none is the maximum.
    let end = ends.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    (begin < end).then_some(begin..end)
}

/// Reads blocks of one object by one request. The caller has chosen blocks that lie side by side:
/// what is between them is read, too.
///
/// # Errors
/// If the object cannot be read, or is shorter than that.
pub async fn read_run(
    store: &dyn Store,
    object: &Arc<str>,
    places: &[BlockPlace],
) -> Result<BlockRun, CatalogError> {
    let range = range(places).ok_or_else(|| CatalogError::Object {
        name: object.to_string(),
        source: ObjectError::BlockLength,
    })?;
    let begin = range.start;
    Ok(BlockRun {
        object: Arc::clone(object),
        begin,
        bytes: request::get_range(store, object, range).await?,
    })
}

impl BlockRun {
    /// Decodes a block of the run. Takes time: no async function should call it on a thread that
    /// serves others.
    ///
    /// # Errors
    /// If the bytes are others than were written.
    pub fn decode(&self, place: &BlockPlace) -> Result<Vec<u8>, CatalogError> {
        let stored = self.stored(place).ok_or(ObjectError::BlockLength);
        let decoded = stored.and_then(|stored| decode_block(place, stored.to_vec()));
        decoded.map_err(|source| self.error(source))
    }

    /// The bytes of a block as they are stored.
    ///
    /// # Errors
    /// If they are others than were written.
    pub fn checked(&self, place: &BlockPlace) -> Result<&[u8], CatalogError> {
        let stored = self.stored(place);
        let is_whole = |stored: &&[u8]| crc32fast::hash(stored) == place.checksum;
        let stored = stored.filter(is_whole);
        stored.ok_or_else(|| self.error(ObjectError::Checksum("a block")))
    }

    fn error(&self, source: ObjectError) -> CatalogError {
        CatalogError::Object {
            name: self.object.to_string(),
            source,
        }
    }

    fn stored(&self, place: &BlockPlace) -> Option<&[u8]> {
        let begin = usize::try_from(place.offset.0.checked_sub(self.begin)?).ok()?;
        let end = begin.checked_add(place.stored as usize)?;
        self.bytes.get(begin..end)
    }
}
