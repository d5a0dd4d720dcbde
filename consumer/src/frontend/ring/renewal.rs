//! Tells a process that another drainer has begun: what an earlier one has taken is in another
//! trace. Libraries that write what later events need, such as the list of loaded objects, write it
//! again when the generation of the filter changes.

use std::io;

use thiserror::Error;
use trace_ring_core::format::{CONTROL_FILE, CONTROL_SIZE, Control, FormatError};
use trace_ring_core::replace_filter;

use super::directory::{Access, RefusedFile};
use super::meta_reader::read_at_most;
use super::producer::{Producer, ProducerRing};

/// A filter is not renewed.
#[derive(Debug, Error)]
pub(super) enum RenewalFault {
    /// The file is not what it must be.
    #[error(transparent)]
    File(#[from] RefusedFile),
    /// The file cannot be read, locked or written.
    #[error("cannot change the filter: {0}")]
    Change(#[from] io::Error),
    /// The file is malformed.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Renews the filter of a process from whose rings an earlier drainer has taken events. It stays
/// the same, but its generation changes.
pub(super) fn renew_filter_after_another_drainer(
    producer: &mut Producer,
) -> Result<(), RenewalFault> {
    let is_continued = |ring: &ProducerRing| matches!(ring, ProducerRing::Open(reader) if reader.point().position > 0);
    if !producer.rings().values().any(is_continued) {
        return Ok(());
    }
    let directory = producer.directory();
    let (file, _) = directory.open_file(CONTROL_FILE, Access::ReadWrite)?;
    // The program that has the lock changes the generation.
    if !file_lock::try_lock_exclusive(&file)? {
        return Ok(());
    }
    let mut bytes = [0; CONTROL_SIZE];
    let got = read_at_most(&file, &mut bytes, 0)?;
    let control = Control::decode(bytes.get(..got).unwrap_or_default())?;
    Ok(replace_filter(
        &file,
        control.generation,
        &control.directives,
    )?)
}
