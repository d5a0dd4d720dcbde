//! What the logs of resumable and of archived sessions have in common: files of checksummed records
//! (`record_log`), which the relay holds locked, and which the next one reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use record_log::{Damage, HEADER_BYTES, Magic, Records};
use rustix::fs::OFlags;
use thiserror::Error;
use tracing::warn;
use wire::{DecodeError, NameError};

use super::pool::{Pool, PooledDescriptor};
use super::{StoreError, disk, remove_file};
use crate::limits::{MAX_SESSION_LOG_BYTES, MAX_SESSION_LOGS, MIN_COMPACTED_LOG_BYTES};

/// The reason why a session cannot be restored from its log.
#[derive(Debug, Error)]
pub enum LogError {
    /// The log cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The log is longer than any relay writes.
    #[error("it is longer than {MAX_SESSION_LOG_BYTES} bytes")]
    TooLong,
    /// The disk has changed the log, or it was edited.
    #[error("{0}")]
    Damaged(Damage),
    /// The records do not describe a session.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The reason why a log cannot be understood.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The log has no record, or does not begin with that of the session.
    #[error("it does not describe a session")]
    NoSession,
    /// A record has an unknown type.
    #[error("unknown record type {0}")]
    UnknownType(u8),
    /// A record is malformed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A directory or a name is not valid.
    #[error("invalid directory or name: {0}")]
    Directory(NameError),
    /// The session has no id of its producer, by which it could be resumed.
    #[error("the session has no id")]
    NoId,
    /// A record is about a stream that was not added.
    #[error("a record of an unknown stream")]
    UnknownStream,
    /// A stream or chunk was added twice.
    #[error("a stream or chunk was added twice")]
    Twice,
    /// The session has too many streams, or a stream too many marks.
    #[error("too many streams or lost packets")]
    TooMany,
}

/// Collects the paths of logs, each with the time of its last write.
pub(super) fn collect_paths(
    directory: &Path,
    logs: &mut Vec<(SystemTime, PathBuf)>,
) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "log") {
            continue;
        }
        if logs.len() >= MAX_SESSION_LOGS {
            let text = format!("there are more than {MAX_SESSION_LOGS}");
            return Err(io::Error::other(text));
        }
        let written = entry.metadata().and_then(|about| about.modified());
        logs.push((written.unwrap_or(SystemTime::UNIX_EPOCH), path));
    }
    Ok(())
}

/// A log that an earlier relay has left, locked.
#[derive(Debug)]
pub(super) struct OpenedLog<T> {
    pub(super) session: T,
    pub(super) file: File,
    pub(super) descriptor: PooledDescriptor,
    /// Length of the log.
    pub(super) bytes: u64,
}

/// Opens a log, from which `decode` makes the session. None: another relay has it.
///
/// # Errors
/// If it cannot be read or understood. It is set aside then, so that the next start does not try
/// again.
pub(super) fn open_log<T>(
    path: &Path,
    pool: &Arc<Pool>,
    magic: Magic,
    decode: impl FnOnce(&mut Records<'_>) -> Result<T, RecordError>,
) -> Result<Option<OpenedLog<T>>, LogError> {
    let opened = open_valid(path, pool, magic, decode);
    if opened.is_err() {
        set_aside(path);
    }
    opened
}

fn open_valid<T>(
    path: &Path,
    pool: &Arc<Pool>,
    magic: Magic,
    decode: impl FnOnce(&mut Records<'_>) -> Result<T, RecordError>,
) -> Result<Option<OpenedLog<T>>, LogError> {
    let descriptor = pool.reserve();
    let (file, log) = read_log(path)?;
    // A file system without locks: no other relay is assumed.
    if matches!(file_lock::try_lock_exclusive(&file), Ok(false)) {
        return Ok(None);
    }
    let mut records = Records::new(magic, &log);
    let session = decode(&mut records);
    // Nothing depends on a torn record, and none was acknowledged: the relay died while it was
    // written.
    match records.damage() {
        Some(damage @ Damage::Corrupt) => return Err(LogError::Damaged(damage)),
        Some(Damage::Torn) => disk::set_len(&file, records.offset() as u64)?,
        None => {}
    }
    Ok(Some(OpenedLog {
        // After the damage, so that a corrupt log is reported as such and not by a record that is
        // cut.
        session: session?,
        file,
        descriptor,
        bytes: records.offset() as u64,
    }))
}

/// Opens and reads a log.
pub(super) fn read_log(path: &Path) -> Result<(File, Vec<u8>), LogError> {
    let file = regular_file::open(path, OFlags::RDWR | OFlags::NOFOLLOW)?;
    let mut log = Vec::new();
    (&file)
        // One byte more than is allowed, which shows that the file is too long.
        .take(MAX_SESSION_LOG_BYTES + 1)
        .read_to_end(&mut log)?;
    if log.len() as u64 > MAX_SESSION_LOG_BYTES {
        return Err(LogError::TooLong);
    }
    Ok((file, log))
}

pub(super) fn compact_at(bytes: u64) -> u64 {
    // At a multiple, so that compacting costs a fraction of what was appended since.
    (4 * bytes).max(MIN_COMPACTED_LOG_BYTES)
}

/// Renames a log that cannot be used, so that the next start does not read it again.
pub(super) fn set_aside(path: &Path) {
    if let Err(error) = disk::rename(path, &path.with_extension("failed")) {
        warn!(path = %path.display(), %error, "log not renamed: the next start reads it again");
    }
}

/// Writes a log of these records, in place of an older one. Returns it, locked, and its length. If
/// `is_synced`, the new log is on the disk before it replaces the old one.
pub(super) fn write_whole(
    path: &Path,
    magic: Magic,
    bodies: &[Vec<u8>],
    is_synced: bool,
) -> Result<(File, u64), StoreError> {
    let mut log = Vec::with_capacity(HEADER_BYTES);
    log.extend_from_slice(&magic);
    for body in bodies {
        record_log::encode(&[body], &mut log);
    }
    let new = path.with_extension("new");
    // A relay that died while it compacted the log may have left one.
    remove_file(&new)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = disk::create(&new, flags).map_err(StoreError::on("create", &new))?;
    // Locked before it has the name by which another relay finds it.
    let _ = file_lock::try_lock_exclusive(&file);
    let written = disk::write_all_at(&file, &log, 0);
    let written = written.and_then(|()| {
        if is_synced {
            disk::sync_file(&file)
        } else {
            Ok(())
        }
    });
    let written = written.and_then(|()| disk::rename(&new, path));
    if let Err(error) = written {
        let _ = remove_file(&new);
        return Err(StoreError::on("write", path)(error));
    }
    Ok((file, log.len() as u64))
}
