//! Repair of the traces that a crashed relay has left in the output directory, before the next
//! relay listens: after `kill -9`, and after power loss, which may leave files empty, too short or
//! with zeros at their end.
//!
//! The repair only touches what a relay of this kind wrote. The evidence is a marker in the trace
//! directory (`open_marker`), the log of a resumable session, or, for a single stream, the beacon
//! at the end of its index file. `lttng-relayd` writes none of these. In such a trace the repair
//!
//! - truncates each tracefile after its last whole packet, because a partial packet at the end
//!   makes Babeltrace refuse the whole trace,
//! - gives each whole packet its index entry, and removes entries without a packet, and the beacon,
//! - truncates metadata after its last whole declaration.
//!
//! A packet with an index entry was acknowledged to its producer, and stays whatever its content
//! is. Only a power loss can have kept such a packet from the disk. The packets are examined for
//! that if there may have been one since the relay wrote the trace, which the markers tell.
//!
//! Before that it completes interrupted rotations and deletions. It changes nothing else: no target
//! of a symbolic link, no trace that a relay has locked. Every step can be interrupted: markers and
//! beacons are removed last, and a repair of what is repaired changes nothing.
//!
//! Read in this order: `directory`, `index`, `packets`, `metadata`, `trace`, `rotation`.

mod directory;
pub(in crate::store) mod index;
mod metadata;
pub(crate) mod packets;
mod rotation;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use daemon::host_clock::boot_id;
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use tracing::warn;

use self::directory::{Listing, open_directory};
use self::trace::Trace;
use super::chunk::{INDEX_DIRECTORY, is_being_deleted};
use super::{disk, open_marker};
use crate::limits::MAX_OUTPUT_DEPTH;

/// The counters of a repair.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Repaired {
    /// Index files that were truncated or removed: a beacon, a partial entry or entries without a
    /// packet.
    pub indexes: u64,
    /// Index files to which entries were added for packets that had none.
    pub rebuilt: u64,
    /// Tracefiles that were truncated.
    pub tracefiles: u64,
    /// Bytes by which tracefiles were truncated.
    pub bytes: u64,
    /// Metadata files that were truncated or set aside.
    pub metadata: u64,
    /// Chunks whose rotation or deletion was completed.
    pub chunks: u64,
    /// Index files that contradicted themselves or their packets.
    pub damaged: u64,
    /// Files and directories that could not be repaired, and are as they were.
    pub failed: u64,
}

/// The evidence that a relay of this kind wrote a trace directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// Nothing for the directory as a whole. The index file of a single stream may end in a beacon.
    None,
    /// A marker, which covers all files of the directory.
    Marker,
    /// The log of a session that may be resumed.
    Resumable,
}

/// Repairs every trace below the output directory that was not closed and that no relay has locked.
///
/// `resumable` are the directories, relative to `output`, of sessions that may be resumed. The
/// streams below them are not closed. Each tracefile is truncated after the last packet with an
/// entry, since the producer sends again what has no entry; only if the index file is lost or
/// damaged, it is rebuilt from the packets. Each index file then has a header, whole entries and a
/// beacon, or does not exist; an index file of a stream without packets is left as it is, unless it
/// ends within its header. Metadata keeps a beginning of what the producer sent, of whole packets
/// if it is in packets. Markers stay, and no chunk of the session is moved.
///
/// What cannot be repaired is logged and left as it is: the relay records nevertheless.
#[must_use]
pub fn repair(output: &Path, resumable: &BTreeSet<PathBuf>) -> Repaired {
    repair_at(output, resumable, boot_id())
}

/// Repairs as [`repair`] does, on a kernel with this boot id. None: there may have been a power
/// loss.
pub(crate) fn repair_at(
    output: &Path,
    resumable: &BTreeSet<PathBuf>,
    boot: Option<&str>,
) -> Repaired {
    let mut repair = Repair {
        output,
        path: output.to_owned(),
        resumable,
        boot,
        repaired: Repaired::default(),
    };
    // The output itself may be a symbolic link. Nothing below it is followed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry_on_intr(|| rustix::fs::open(output, flags, Mode::empty())) {
        Ok(directory) => repair.repair_directory(&directory, 0),
        Err(error) => repair.failed(&error.into()),
    }
    repair.repaired
}

#[derive(Debug)]
struct Repair<'a> {
    output: &'a Path,
    /// Path of the directory or file that is being examined, for the log.
    path: PathBuf,
    resumable: &'a BTreeSet<PathBuf>,
    boot: Option<&'a str>,
    repaired: Repaired,
}

impl Repair<'_> {
    fn failed(&mut self, error: &io::Error) {
        self.repaired.failed += 1;
        warn!(path = %self.path.display(), %error, "trace not repaired");
    }

    fn damaged(&mut self, reason: &str) {
        self.repaired.damaged += 1;
        warn!(path = %self.path.display(), reason, "index file is damaged: its last entries are taken from the packets");
    }

    /// Calls `then` while `path` is that of `name` in the current directory.
    fn at_name(&mut self, name: &[u8], then: impl FnOnce(&mut Self)) {
        self.path.push(std::ffi::OsStr::from_bytes(name));
        then(self);
        self.path.pop();
    }

    /// Whether the directory that is being examined lies in a resumable session.
    fn is_resumable(&self) -> bool {
        let path = self.path.strip_prefix(self.output);
        let is_below = |path: &Path| path.ancestors().any(|above| self.resumable.contains(above));
        !self.resumable.is_empty() && path.is_ok_and(is_below)
    }

    fn repair_directory(&mut self, directory: &OwnedFd, depth: usize) {
        let mut listing = match Listing::of(directory) {
            Ok(listing) => listing,
            Err(error) => return self.failed(&error),
        };
        // Before the traces, whose markers name the chunks.
        if rotation::is_possible(&listing) {
            let moved = rotation::complete(self, directory, &listing);
            match moved.and_then(|()| Listing::of(directory)) {
                Ok(after) => listing = after,
                Err(error) => self.failed(&error),
            }
        }
        for name in &listing.directories {
            self.at_name(name, |repair| {
                if is_being_deleted(name) {
                    return repair.finish_deletion();
                }
                // Index files are repaired with the tracefiles above them.
                if name == INDEX_DIRECTORY.as_bytes() {
                    return;
                }
                if depth >= MAX_OUTPUT_DEPTH {
                    return repair.failed(&io::Error::other("too many levels of directories"));
                }
                match open_directory(directory, name) {
                    Ok(opened) => repair.repair_directory(&opened, depth + 1),
                    Err(error) => repair.failed(&error),
                }
            });
        }
        let is_marked = listing
            .files
            .iter()
            .any(|name| open_marker::is_marker(name));
        let is_trace = is_marked || listing.has_directory(INDEX_DIRECTORY);
        // A resumable session has markers too, but its streams go on and are not closed.
        let evidence = match (self.is_resumable() && is_trace, is_marked) {
            (true, _) => Evidence::Resumable,
            (false, true) => Evidence::Marker,
            (false, false) => Evidence::None,
        };
        if evidence != Evidence::None || listing.has_directory(INDEX_DIRECTORY) {
            let trace = Trace::new(directory, &listing, evidence);
            if let Err(error) = trace.repair(self) {
                self.failed(&error);
            }
        }
    }

    /// Completes the deletion of a chunk, which the death of the relay has interrupted.
    fn finish_deletion(&mut self) {
        match disk::remove_tree(&self.path) {
            Ok(()) => self.repaired.chunks += 1,
            Err(error) => self.failed(&error),
        }
    }
}
