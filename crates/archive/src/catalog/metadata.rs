//! Reads the metadata of a trace: its pieces, by one request for those that lie side by side.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};

use super::blocks::read_run;
use super::error::CatalogError;
use crate::record::MetadataRecord;
use crate::session::Placed;
use crate::store::Store;

/// Largest metadata of a trace, in bytes: the limit of what is decoded.
const MAX_METADATA_BYTES: u64 = 64 << 20;
/// Pieces of the metadata of a trace that are read at the same time.
const MAX_METADATA_REQUESTS: usize = 4;

/// Reads the metadata of a trace, as its file would be.
///
/// # Errors
/// If an object cannot be read, or the metadata is longer than any.
pub async fn read_metadata(
    store: &dyn Store,
    objects: &[Arc<str>],
    pieces: &[Placed<MetadataRecord>],
) -> Result<Vec<u8>, CatalogError> {
    let len = pieces.last().map_or(0, |piece| piece.record.end());
    // Pieces that overlap count with all of their bytes.
    let raw: u64 = pieces
        .iter()
        .map(|piece| u64::from(piece.record.block.raw))
        .sum();
    if raw > MAX_METADATA_BYTES {
        return Err(CatalogError::Limit {
            what: "bytes of metadata".to_owned(),
            limit: MAX_METADATA_BYTES,
        });
    }
    let is_one_request = |one: &Placed<MetadataRecord>, next: &Placed<MetadataRecord>| {
        one.object == next.object && one.record.block.is_followed_by(&next.record.block)
    };
    let runs = pieces.chunk_by(is_one_request).map(|pieces| async move {
        let object = pieces.first().and_then(|piece| objects.get(piece.object));
        let object = object.cloned().unwrap_or_default();
        let places: Vec<_> = pieces.iter().map(|piece| piece.record.block).collect();
        let run = read_run(store, &object, &places).await?;
        let decoded = pieces
            .iter()
            .map(|piece| Ok((piece.record.offset.0, run.decode(&piece.record.block)?)));
        decoded.collect::<Result<Vec<_>, CatalogError>>()
    });
    let mut runs = stream::iter(runs).buffered(MAX_METADATA_REQUESTS);
    let mut bytes = Vec::new();
    while let Some(run) = runs.next().await {
        for (offset, piece) in run? {
            // A piece may begin in the one before.
            let known = (bytes.len() as u64).saturating_sub(offset);
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            bytes.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
    }
    debug_assert!(bytes.len() as u64 <= len, "pieces have no gap");
    Ok(bytes)
}
