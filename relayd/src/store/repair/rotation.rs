//! Completes rotations that the death of a relay has interrupted. The chunk in `.tmp_old_chunk`
//! moves to the archives, as it does when another session daemon takes over its directory, and the
//! chunk in `.tmp_new_chunk` to the directory that is named after it. A chunk that lies in two
//! places is gathered in one. The markers in the trace directories name the chunks; what has no
//! marker stays where it is.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::tz::TimeZone;
use rustix::io::Errno;
use tracing::{info, warn};
use wire::EpochSeconds;

use super::Repair;
use super::directory::{Listing, open_directory, open_file};
use crate::limits::MAX_OUTPUT_DEPTH;
use crate::store::chunk::{ARCHIVES, NEW, OLD, is_being_deleted};
use crate::store::layout::chunk_date;
use crate::store::open_marker::MarkedChunk;
use crate::store::{disk, is_locked};

/// Whether a directory with these names may be that of a session with an interrupted rotation.
pub(super) fn is_possible(listing: &Listing) -> bool {
    [OLD, NEW, ARCHIVES]
        .iter()
        .any(|name| listing.has_directory(name))
}

/// The markers below a directory.
#[derive(Debug, Default)]
struct Markers {
    chunks: BTreeSet<MarkedChunk>,
    /// Whether a relay writes there, or may continue to.
    is_in_use: bool,
}

impl Markers {
    /// The chunk, if there is exactly one.
    fn only(&self) -> Option<&MarkedChunk> {
        // With two chunks in it, nothing says whose the directory is.
        self.chunks.first().filter(|_| self.chunks.len() == 1)
    }
}

/// An entry of the session's directory that belongs to a chunk.
#[derive(Debug)]
struct ChunkEntry {
    name: Vec<u8>,
    chunk: MarkedChunk,
}

/// Completes the rotation in the directory of a session.
pub(super) fn complete(
    repair: &mut Repair<'_>,
    session: &OwnedFd,
    listing: &Listing,
) -> io::Result<()> {
    let mut is_in_use = false;
    let mut markers_in = |repair: &mut Repair<'_>, name: &[u8]| -> io::Result<Markers> {
        let mut markers = Markers::default();
        find_markers(repair, session, name, 0, &mut markers)?;
        is_in_use |= markers.is_in_use;
        Ok(markers)
    };
    let old = markers_in(repair, OLD.as_bytes())?;
    let new = markers_in(repair, NEW.as_bytes())?;
    let mut entries = Vec::new();
    for name in &listing.directories {
        let is_own = [OLD, NEW, ARCHIVES]
            .iter()
            .any(|own| name == own.as_bytes());
        if is_own || is_being_deleted(name) {
            continue;
        }
        let found = markers_in(repair, name)?;
        if let Some(chunk) = found.only().cloned() {
            let name = name.clone();
            entries.push(ChunkEntry { name, chunk });
        }
    }
    // A relay that is alive completes its rotation itself.
    if is_in_use {
        return Ok(());
    }
    if old.chunks.is_empty() && new.chunks.is_empty() && entries.is_empty() {
        // Another relay's, or without files.
        return Ok(());
    }
    // Also before the moves: after them, nothing may show that an empty directory is this relay's.
    remove_empty(session);
    let before = repair.repaired.chunks;
    complete_archives(repair, session, &entries)?;
    if let Some(chunk) = old.only() {
        let ended = ended(repair, &old, &new, &entries);
        gather(session, &entries, chunk, OLD)?;
        archive(repair, session, chunk, ended)?;
    }
    // A part of it is in the session's directory, to which it was on its way.
    if let Some(chunk) = new.only() {
        if entries.iter().any(|entry| entry.chunk == *chunk) {
            scatter(repair, session)?;
        } else {
            let name = format!("{}-{}", chunk.began, chunk.id);
            move_chunk(repair, (session, NEW), (session, &name))?;
        }
    }
    remove_empty(session);
    if repair.repaired.chunks > before {
        disk::sync_directory(session)?;
    }
    Ok(())
}

/// Collects the markers below a directory. Finds nothing if the directory does not exist.
fn find_markers(
    repair: &mut Repair<'_>,
    parent: &OwnedFd,
    name: &[u8],
    depth: usize,
    found: &mut Markers,
) -> io::Result<()> {
    let directory = match open_directory(parent, name) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(()),
        opened => opened?,
    };
    let listing = Listing::of(&directory)?;
    let mut result = Ok(());
    repair.at_name(name, |repair| {
        let chunks = listing
            .files
            .iter()
            .filter_map(|name| MarkedChunk::of(name));
        let before = found.chunks.len();
        found.chunks.extend(chunks);
        found.is_in_use |= repair.is_resumable();
        // Other directories than those of traces have no files that a relay would lock.
        if found.chunks.len() > before || listing.has_directory(super::INDEX_DIRECTORY) {
            for file in &listing.files {
                let opened = open_file(directory.as_fd(), file, rustix::fs::OFlags::RDONLY);
                found.is_in_use |= opened.is_ok_and(|file| is_locked(&file));
            }
        }
        for below in &listing.directories {
            if below == super::INDEX_DIRECTORY.as_bytes() {
                continue;
            }
            let more = if depth < MAX_OUTPUT_DEPTH {
                find_markers(repair, &directory, below, depth + 1, found)
            } else {
                Err(io::Error::other("too many levels of directories"))
            };
            // The first error, after the search: another directory may show that a relay is alive.
            if result.is_ok() {
                result = more;
            }
        }
    });
    result
}

/// The end of the old chunk, as in the name of its archive: the beginning of its successor, or the
/// time at which it was moved.
fn ended(
    repair: &Repair<'_>,
    old: &Markers,
    new: &Markers,
    entries: &[ChunkEntry],
) -> Option<String> {
    let old = old.only()?;
    let later = entries.iter().map(|entry| &entry.chunk);
    let later = new.chunks.iter().chain(later);
    // The successor began when this chunk ended, and has the next higher id that exists.
    let successor = later
        .filter(|chunk| chunk.id > old.id)
        .min_by_key(|chunk| chunk.id);
    successor.map(|chunk| chunk.began.clone()).or_else(|| {
        let moved = repair.path.join(OLD).symlink_metadata().ok()?.mtime();
        let moved = EpochSeconds(u64::try_from(moved).ok()?);
        chunk_date(moved, &TimeZone::UTC).ok()
    })
}

/// Moves the chunk's entries in the session's directory to where the others of them are.
fn gather(
    session: &OwnedFd,
    entries: &[ChunkEntry],
    chunk: &MarkedChunk,
    to: &str,
) -> io::Result<()> {
    let to = open_directory(session, to.as_bytes())?;
    for entry in entries
        .iter()
        .filter(|entry| entry.chunk == *chunk && !is_dated(entry))
    {
        disk::rename_at((session.as_fd(), &entry.name), (to.as_fd(), &entry.name))?;
    }
    disk::sync_directory(&to)
}

/// Whether the entry is the chunk's directory of its own, and not one of the directories in it.
fn is_dated(entry: &ChunkEntry) -> bool {
    let chunk = &entry.chunk;
    entry.name == format!("{}-{}", chunk.began, chunk.id).into_bytes()
}

/// Moves the old chunk to the archives.
fn archive(
    repair: &mut Repair<'_>,
    session: &OwnedFd,
    chunk: &MarkedChunk,
    ended: Option<String>,
) -> io::Result<()> {
    let Some(ended) = ended else {
        warn!(path = %repair.path.display(), "rotation not completed: the end of the chunk is not known");
        return Ok(());
    };
    let archives = open_or_create(session, ARCHIVES)?;
    let name = format!("{}-{ended}-{}", chunk.began, chunk.id);
    move_chunk(repair, (session, OLD), (&archives, &name))?;
    disk::sync_directory(&archives)
}

/// Completes a move from the session's directory to the archives, which moves one entry after the
/// other.
fn complete_archives(
    repair: &mut Repair<'_>,
    session: &OwnedFd,
    entries: &[ChunkEntry],
) -> io::Result<()> {
    let archives = match open_directory(session, ARCHIVES.as_bytes()) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(()),
        opened => opened?,
    };
    if entries.is_empty() {
        return Ok(());
    }
    let names = Listing::of(&archives)?.directories;
    for entry in entries.iter().filter(|entry| !is_dated(entry)) {
        let (begin, end) = (&entry.chunk.began, format!("-{}", entry.chunk.id));
        let is_it =
            |name: &&Vec<u8>| name.starts_with(begin.as_bytes()) && name.ends_with(end.as_bytes());
        let Some(name) = names.iter().find(is_it) else {
            continue;
        };
        let archive = open_directory(&archives, name)?;
        disk::rename_at(
            (session.as_fd(), &entry.name),
            (archive.as_fd(), &entry.name),
        )?;
        repair.repaired.chunks += 1;
        info!(path = %repair.path.join(ARCHIVES).display(), "rotation completed: rest of a chunk archived");
    }
    Ok(())
}

/// Completes a move of the new chunk to the session's directory, which moves one entry after the
/// other.
fn scatter(repair: &mut Repair<'_>, session: &OwnedFd) -> io::Result<()> {
    let new = open_directory(session, NEW.as_bytes())?;
    for name in Listing::of(&new)?.directories {
        disk::rename_at((new.as_fd(), &name), (session.as_fd(), &name))?;
    }
    repair.repaired.chunks += 1;
    info!(path = %repair.path.display(), "rotation completed: new chunk moved to the session's directory");
    Ok(())
}

/// Moves the directory of a chunk, unless the destination exists.
fn move_chunk(
    repair: &mut Repair<'_>,
    from: (&OwnedFd, &str),
    to: (&OwnedFd, &str),
) -> io::Result<()> {
    let destination = Path::new(to.1);
    disk::rename_at(
        (from.0.as_fd(), from.1.as_bytes()),
        (to.0.as_fd(), to.1.as_bytes()),
    )?;
    repair.repaired.chunks += 1;
    info!(path = %repair.path.display(), from = from.1, to = %destination.display(), "rotation completed: chunk moved");
    Ok(())
}

/// Removes temporary directories of chunks in which there are no files.
fn remove_empty(session: &OwnedFd) {
    for name in [OLD, NEW] {
        remove_if_empty(session, name.as_bytes(), 0);
    }
}

/// Removes a directory in which there are no files: its chunk has been moved, or died before its
/// first file. Otherwise it stays.
fn remove_if_empty(parent: &OwnedFd, name: &[u8], depth: usize) {
    let Ok(directory) = open_directory(parent, name) else {
        return;
    };
    if let Ok(listing) = Listing::of(&directory) {
        for below in listing
            .directories
            .iter()
            .filter(|_| depth < MAX_OUTPUT_DEPTH)
        {
            remove_if_empty(&directory, below, depth + 1);
        }
    }
    // Fails if there are files in the directory, which then stays.
    let _ = disk::remove_directory_at(parent.as_fd(), name);
}

fn open_or_create(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match disk::make_directory_at(parent.as_fd(), name.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    open_directory(parent, name.as_bytes())
}
