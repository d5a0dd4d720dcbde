//! The copies of source files: each complete or absent.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use regular_file::{open_at, open_directory_at};
use ring::digest::{Context, SHA256};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use thiserror::Error;

use super::published_file::{MODE, link};
use super::steps;
use codetracer::events::FileChunk;

/// Parts of a path of which a copy is made.
const MAX_PARTS: usize = 100;
/// The name of the copy of a file while it replaces another one.
const REPLACEMENT: &str = ".replacement";

/// Why a source file is not copied.
#[derive(Debug, Error)]
pub(in crate::sink::codetracer) enum SourceFileError {
    /// The path leads elsewhere, or is no path.
    #[error("the path is not below the root of the sources")]
    Path,
    /// A part is missing, or the parts do not fit together.
    #[error("a part is missing")]
    Parts,
    /// The content is not what was sent.
    #[error("the SHA-256 is not that of the content")]
    Hash,
    /// A file or directory, or something else, is in the way.
    #[error("the path is in use")]
    InTheWay,
    /// The copy of the file cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The directory `files` of a recording.
pub(super) struct SourceFiles {
    root: Arc<OwnedFd>,
    incoming: Option<Incoming>,
}

/// A file of which parts have come.
struct Incoming {
    path: String,
    file: File,
    size: u64,
    written: u64,
    hash: Context,
}

impl fmt::Debug for SourceFiles {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let incoming = self.incoming.as_ref().map(|incoming| &incoming.path);
        let mut text = to.debug_struct("SourceFiles");
        text.field("root", &self.root).field("incoming", &incoming);
        text.finish()
    }
}

impl SourceFiles {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            incoming: None,
        }
    }

    /// Takes the next part of a file. With the last one the file gets its name.
    pub(super) fn write_chunk(&mut self, chunk: &FileChunk<'_>) -> Result<(), SourceFileError> {
        // A part at 0 begins a file, also if the last part of the file before never came.
        let mut incoming = match self.incoming.take() {
            Some(incoming) if chunk.offset > 0 => incoming,
            _ => Incoming::begin(&self.root, chunk)?,
        };
        incoming.append(chunk)?;
        if chunk.sha256.is_empty() {
            self.incoming = Some(incoming);
            return Ok(());
        }
        incoming.finish(&self.root, &chunk.sha256)
    }
}

impl Incoming {
    fn begin(root: &OwnedFd, chunk: &FileChunk<'_>) -> Result<Self, SourceFileError> {
        if chunk.offset != 0 {
            return Err(SourceFileError::Parts);
        }
        // Checked before anything is written, although the path is used at the end only.
        parts(&chunk.path)?;
        steps::check()?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(root, ".", flags, MODE) {
            Ok(file) => file,
            // The file system has no files without name.
            Err(_) => open_replacement(root)?,
        };
        Ok(Self {
            path: chunk.path.clone().into_owned(),
            file: file.into(),
            size: chunk.size,
            written: 0,
            hash: Context::new(&SHA256),
        })
    }

    fn append(&mut self, chunk: &FileChunk<'_>) -> Result<(), SourceFileError> {
        let end = self.written.saturating_add(chunk.content.len() as u64);
        let fits = self.path == chunk.path && self.size == chunk.size;
        // Parts come through a trace, from which packets may be missing.
        if !fits || self.written != chunk.offset || end > self.size {
            return Err(SourceFileError::Parts);
        }
        steps::check()?;
        self.file.write_all_at(&chunk.content, self.written)?;
        // As the parts come, so that the file need not be read again.
        self.hash.update(&chunk.content);
        self.written = end;
        Ok(())
    }

    fn finish(self, root: &OwnedFd, sha256: &str) -> Result<(), SourceFileError> {
        if self.written != self.size {
            return Err(SourceFileError::Parts);
        }
        let hash = hexadecimal(self.hash);
        if hash != sha256 {
            return Err(SourceFileError::Hash);
        }
        let parts = parts(&self.path)?;
        let (name, parents) = parts.split_last().ok_or(SourceFileError::Path)?;
        let mut parent = root.try_clone()?;
        for part in parents {
            // One part after the other, because a symbolic link could lead out of the directory.
            parent = enter(&parent, part)?;
        }
        steps::check()?;
        let is_unnamed = fstat(&self.file).map_err(io::Error::from)?.st_nlink == 0;
        if !is_unnamed {
            return Ok(renameat(root, REPLACEMENT, &parent, *name).map_err(io::Error::from)?);
        }
        match link(&self.file, &parent, name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            linked => return Ok(linked?),
        }
        // The same content was copied before: the copy may be open, and stays.
        if hash_of(&parent, name)? == hash {
            return Ok(());
        }
        // An earlier copy of another content, of which the name must not vanish.
        let _ = unlinkat(root, REPLACEMENT, AtFlags::empty());
        link(&self.file, root, REPLACEMENT)?;
        Ok(renameat(root, REPLACEMENT, &parent, *name).map_err(io::Error::from)?)
    }
}

fn open_replacement(root: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(root, REPLACEMENT, flags, MODE)?)
}

/// The parts of a path below the root: without `/` at the begin, and never upwards.
fn parts(path: &str) -> Result<Vec<&str>, SourceFileError> {
    let parts: Vec<_> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    // File systems take names of up to 255 bytes.
    let is_valid = |part: &&str| *part != ".." && part.len() <= 255 && !part.contains('\0');
    let is_reserved = parts.first() == Some(&REPLACEMENT);
    if parts.is_empty() || parts.len() > MAX_PARTS || is_reserved || !parts.iter().all(is_valid) {
        return Err(SourceFileError::Path);
    }
    Ok(parts)
}

/// Opens a directory, which is made if it is not there. A symbolic link is not followed.
fn enter(parent: &OwnedFd, name: &str) -> Result<OwnedFd, SourceFileError> {
    steps::check()?;
    match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(io::Error::from(error).into()),
    }
    open_directory_at(parent, name).map_err(|error| {
        let in_the_way = [Errno::NOTDIR, Errno::LOOP].map(|code| Some(code.raw_os_error()));
        match in_the_way.contains(&error.raw_os_error()) {
            true => SourceFileError::InTheWay,
            false => SourceFileError::Io(error),
        }
    })
}

/// The hash of the file of this name.
fn hash_of(parent: impl AsFd, name: &str) -> Result<String, SourceFileError> {
    let opened = open_at(parent, name, OFlags::RDONLY);
    let mut file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code != Errno::LOOP.raw_os_error() => SourceFileError::Io(error),
        // A symbolic link, or nothing regular.
        _ => SourceFileError::InTheWay,
    })?;
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(hash)),
            length => hash.update(buffer.get(..length).unwrap_or_default()),
        }
    }
}

fn hexadecimal(hash: Context) -> String {
    let digest = hash.finish();
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}
