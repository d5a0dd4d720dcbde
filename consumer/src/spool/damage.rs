//! Damaged files: whether a crash has cut off the end, or the disk has changed bytes; and what is
//! done about it.

use std::io;

use record_log::{Damage, HEADER_BYTES, RECORD_HEAD_BYTES, Records};
use tracing::warn;
use wire::Field;

use super::disk::Disk;
use super::record::RecordKind;
use super::session::{QUARANTINE, StoredSession};
use crate::limits::MAX_SEGMENT_BYTES;

/// What was done about damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repair {
    /// An incomplete record at the end was cut off.
    Truncated,
    /// The segment was set aside.
    Quarantined,
}

/// Finds out what the bytes from an offset of a file to its end are, if they do not begin with a
/// record.
///
/// A crash leaves at most one incomplete record at the end. So bytes with a whole record after them
/// were changed later, and also a record of full length with another checksum, unless its end was
/// never written.
pub(super) fn classify(
    disk: &mut impl Disk,
    path: &str,
    offset: u64,
    length: u64,
    found: Damage,
) -> io::Result<Damage> {
    // One record can be longer than that. A whole record after the first bytes of it is no part of
    // it.
    let tail = (length - offset).min(2 * MAX_SEGMENT_BYTES);
    let mut bytes = vec![0; usize::try_from(tail).map_err(io::Error::other)?];
    disk.read_at(path, offset, &mut bytes)?;
    // File systems may make a file longer before they write its data. A power failure in between
    // leaves zeros.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Damage::Torn);
    }
    if has_record_behind(&bytes) {
        return Ok(Damage::Corrupt);
    }
    let has_zeros_at_end = bytes.last() == Some(&0);
    Ok(match found {
        Damage::Corrupt if has_zeros_at_end => Damage::Torn,
        found => found,
    })
}

/// Whether a whole record begins somewhere after the first byte.
fn has_record_behind(bytes: &[u8]) -> bool {
    (1..bytes.len()).any(|at| {
        let rest = bytes.get(at..).unwrap_or_default();
        let mut kind = rest.get(RECORD_HEAD_BYTES..).unwrap_or_default();
        // The kind first: few bytes look like one, and a checksum takes long.
        RecordKind::read(&mut kind).is_ok() && Records::of_part(rest).next().is_some()
    })
}

impl StoredSession {
    /// Cuts an incomplete record off the last segment of a recovered session; sets any other
    /// damaged segment aside.
    pub(super) fn repair_segment(
        &mut self,
        disk: &mut impl Disk,
        segment: u64,
        offset: u64,
        damage: Damage,
    ) -> io::Result<Repair> {
        let path = self.segment_path(segment);
        let is_last = self.segments.keys().next_back() == Some(&segment);
        let length = self.segments.get(&segment).map_or(0, |of| of.length);
        // Only a crash leaves an incomplete record, and only where the process was writing. In a
        // file of this process, every record within the length was written as a whole.
        if is_last
            && self.identity.is_recovered
            && classify(disk, &path, offset, length, damage)? == Damage::Torn
        {
            // Without its first record a segment says neither which session it belongs to nor which
            // packets come before it.
            if offset <= HEADER_BYTES as u64 {
                self.remove_segment(disk, segment)?;
                return Ok(Repair::Truncated);
            }
            disk.truncate(&path, offset)?;
            if let Some(segment) = self.segments.get_mut(&segment) {
                segment.length = offset;
            }
            self.bytes -= length - offset;
            return Ok(Repair::Truncated);
        }
        self.quarantine_segment(disk, segment);
        Ok(Repair::Quarantined)
    }

    /// Sets a segment aside. Its packets become a gap.
    pub(super) fn quarantine_segment(&mut self, disk: &mut impl Disk, segment: u64) {
        let path = self.segment_path(segment);
        let aside = format!("{QUARANTINE}{}", path.replace('/', "-"));
        if let Err(error) = disk.rename(&path, &aside) {
            // The session goes on without it either way.
            warn!(%path, "cannot rename a damaged segment: {error}");
        }
        self.forget_segment(segment);
    }
}
