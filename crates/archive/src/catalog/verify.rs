//! Reads every object of an archive, and compares all checksums.

use std::sync::Arc;

use super::error::CatalogError;
use super::list::read_document;
use super::open::read_directory;
use super::{check_format, read_run, request};
use crate::document::{CreatedDocument, EndedDocument, OwnerDocument};
use crate::name::{DAYS, DayObject, SessionObject, parse_commit, parse_session_object};
use crate::object::PacketBlock;
use crate::record::{BlockPlace, PacketsRecord, Record};
use crate::store::{Listed, Store};

/// Largest number of objects of an archive that is verified.
const MAX_OBJECTS: usize = 10_000_000;

/// Bytes of stored blocks that are read by one request.
const RUN_BYTES: u64 = 4 << 20;

/// Largest number of faults that are kept. The others are counted.
const MAX_FAULTS: usize = 1000;

/// The objects that were read, and their faults.
#[derive(Debug, Default)]
pub struct Verified {
    /// Objects that were read.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Packets in them. Those that are in several objects count several times.
    pub packets: u64,
    /// Objects whose names no archive gives. They are not read.
    pub foreign: u64,
    /// Number of objects that are damaged.
    pub faults: u64,
    /// The first of them.
    pub first_faults: Vec<CatalogError>,
}

/// A block, and the record of its packets. None: it has metadata.
type Block = (BlockPlace, Option<PacketsRecord>);

/// Reads every object of an archive. `progress` is called after each, with what was verified so far
/// and the number of all objects.
///
/// # Errors
/// If there is no archive, or the store fails.
pub async fn verify(
    store: &dyn Store,
    mut progress: impl FnMut(&Verified, u64),
) -> Result<Verified, CatalogError> {
    check_format(store).await?;
    let mut objects = Vec::new();
    for prefix in ["log/", "sessions/", DAYS] {
        objects.extend(request::list(store, prefix, MAX_OBJECTS).await?);
    }
    let mut verified = Verified::default();
    for object in &objects {
        match verify_object(store, object, &mut verified).await {
            Ok(()) => verified.objects += 1,
            // A relay has written it again as part meanwhile.
            Err(error) if error.is_not_found() => {}
            Err(error) if error.is_of_store() => return Err(error),
            Err(error) => {
                verified.objects += 1;
                verified.faults += 1;
                if verified.first_faults.len() < MAX_FAULTS {
                    verified.first_faults.push(error);
                }
            }
        }
        progress(&verified, objects.len() as u64);
    }
    Ok(verified)
}

async fn verify_object(
    store: &dyn Store,
    object: &Listed,
    verified: &mut Verified,
) -> Result<(), CatalogError> {
    let name = &object.name;
    if let Ok(day) = name.parse::<DayObject>() {
        if day.is_end {
            read_document::<EndedDocument>(store, name).await?;
        } else {
            read_document::<CreatedDocument>(store, name).await?;
        }
    } else if let Ok((_, SessionObject::Owner(_))) = parse_session_object(name) {
        read_document::<OwnerDocument>(store, name).await?;
    } else if parse_commit(name).is_ok() || parse_session_object(name).is_ok() {
        verify_blocks(store, object, verified).await?;
    } else {
        verified.foreign += 1;
        return Ok(());
    }
    verified.bytes += object.bytes;
    Ok(())
}

/// Reads all blocks of a commit object or part.
async fn verify_blocks(
    store: &dyn Store,
    object: &Listed,
    verified: &mut Verified,
) -> Result<(), CatalogError> {
    let (directory, _) = read_directory(store, object).await?;
    let name: Arc<str> = object.name.as_str().into();
    let blocks = directory.records.into_iter();
    let mut blocks: Vec<Block> = blocks
        .filter_map(|record| match record {
            Record::Packets(packets) => Some((packets.block, Some(packets))),
            Record::Metadata(metadata) => Some((metadata.block, None)),
            _ => None,
        })
        .collect();
    blocks.sort_by_key(|(place, _)| place.offset);
    let mut rest = &blocks[..];
    while let Some((first, _)) = rest.first() {
        let end = first.offset.0.saturating_add(RUN_BYTES);
        let count = rest.partition_point(|(place, _)| place.end().is_some_and(|own| own <= end));
        let (run, later) = rest.split_at(count.max(1));
        rest = later;
        let places: Vec<_> = run.iter().map(|(place, _)| *place).collect();
        let bytes = read_run(store, &name, &places).await?;
        for (place, packets) in run {
            let block = bytes.decode(place)?;
            let Some(packets) = packets else { continue };
            let parsed = PacketBlock::parse(packets, block);
            let parsed = parsed.map_err(|source| CatalogError::Object {
                name: object.name.clone(),
                source,
            })?;
            verified.packets += parsed.len() as u64;
        }
    }
    Ok(())
}
