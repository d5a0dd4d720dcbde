//! The directory of a recording, which programs that read recordings can open at any time.
//!
//! A copy of the directory, made at any moment, is a recording: complete JSON, all parts, and the
//! records from the beginning to some record. No file that a reader has opened changes
//! ([`published_file`]), and paths come before the records that need them. What a killed process
//! leaves is as valid as what it has shown; the next one begins again from the first record, and
//! replaces the files when it has more than they have.

mod events_file;
mod lease;
mod published_file;
mod source_files;
mod steps;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regular_file::{open_at, open_directory_at};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use self::events_file::EventsFile;
use self::published_file::PublishedFile;
pub(super) use self::source_files::SourceFileError;
use self::source_files::SourceFiles;
use codetracer::events::FileChunk;
use codetracer::metadata::RecordingMetadata;
use codetracer::output_form::OutputForm;

/// The file that says which recording the directory has. It is locked as long as the directory is
/// written.
const MARKER: &str = ".test-live";
/// Bytes of a marker that are read: both texts in it fit, if each byte of them is written as an
/// escape.
const MAX_MARKER_BYTES: u64 = 64 << 10;
/// Bytes of the id and of the name of a recording that tell it from others. They are of its
/// metadata, and may be longer.
const MAX_ID_BYTES: usize = 4 << 10;

/// Why a directory cannot be written.
#[derive(Debug, Error)]
pub enum DirectoryError {
    /// The directory has files that are not of a recording.
    #[error("cannot write a recording to {}: the directory is not empty", path.display())]
    NotEmpty {
        /// The directory that was to be written.
        path: PathBuf,
    },
    /// The directory has another recording.
    #[error(
        "cannot write the recording {wanted} to {}: the directory has the recording {found}; \
         choose another directory",
        path.display()
    )]
    OtherRecording {
        /// The directory that was to be written.
        path: PathBuf,
        /// The name of the recording that the directory has.
        found: String,
        /// The name of the recording that was to be written.
        wanted: String,
    },
    /// Another process writes the directory.
    #[error("cannot write a recording to {}: another process is writing it", path.display())]
    InUse {
        /// The directory that was to be written.
        path: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot write a recording to {}", path.display())]
    Io {
        /// The directory that was to be written.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// What distinguishes a recording from all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordingId {
    /// The UUID of its trace; its name if it has none.
    pub(super) id: String,
    /// The name for users.
    pub(super) name: String,
}

impl RecordingId {
    /// Returns the id with no more than can be read again from a marker.
    fn shortened(&self) -> Self {
        let shortened = |text: &String| {
            // Cut between characters, because the marker is JSON.
            let end = text.floor_char_boundary(MAX_ID_BYTES);
            text.get(..end).unwrap_or_default().to_owned()
        };
        Self {
            id: shortened(&self.id),
            name: shortened(&self.name),
        }
    }
}

/// Checks that a recording may be written to a directory: it is not there, empty, or has a
/// recording of this program.
///
/// # Errors
/// If it has something else, or cannot be read.
pub(super) fn check_target(path: &Path) -> Result<(), DirectoryError> {
    let fail = |source| io_error(path, source);
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    let mut is_empty = true;
    for entry in entries {
        if entry.map_err(fail)?.file_name() == MARKER {
            return Ok(());
        }
        is_empty = false;
    }
    if is_empty {
        return Ok(());
    }
    let path = path.to_owned();
    Err(DirectoryError::NotEmpty { path })
}

fn io_error(path: &Path, source: io::Error) -> DirectoryError {
    let path = path.to_owned();
    DirectoryError::Io { path, source }
}

/// The locked marker. Unlocked when dropped, since a process that is being started may still have
/// the descriptor.
#[derive(Debug)]
struct LockedMarker(File);

impl Drop for LockedMarker {
    fn drop(&mut self) {
        // Closing the file does the same, a moment later.
        let _ = file_lock::unlock(&self.0);
    }
}

/// The directory of one recording, while it is written.
#[derive(Debug)]
pub(super) struct RecordingDirectory {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    marker: LockedMarker,
    recording: RecordingId,
    /// Whether the marker says the name of this recording and another id: the producer was started
    /// again, or the directory has another recording.
    is_again: bool,
    form: OutputForm,
    metadata: PublishedFile,
    program: RecordingMetadata,
    is_program_written: bool,
    paths: PublishedFile,
    /// Paths that are not in the file, as elements of the array.
    new_paths: Vec<u8>,
    has_paths: bool,
    files: SourceFiles,
    events: EventsFile,
}

impl RecordingDirectory {
    /// Opens or creates the directory of a recording. Readers find no recording in a new one until
    /// the first [`publish`](Self::publish).
    ///
    /// # Errors
    /// If the directory has something else or another recording, is being written, or cannot be
    /// written.
    pub(super) fn open(
        path: &Path,
        form: OutputForm,
        recording: &RecordingId,
    ) -> Result<Self, DirectoryError> {
        check_target(path)?;
        let recording = recording.shortened();
        let fail = |source| io_error(path, source);
        fs::create_dir_all(path).map_err(fail)?;
        // All files are opened relative to this descriptor: a directory that is renamed stays the
        // same.
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(rustix::fs::CWD, path, flags, Mode::empty());
        let directory = Arc::new(directory.map_err(|error| fail(error.into()))?);
        let marker = open_marker(&directory).map_err(fail)?;
        if !file_lock::try_lock_exclusive(&marker).map_err(fail)? {
            let path = path.to_owned();
            return Err(DirectoryError::InUse { path });
        }
        let marker = LockedMarker(marker);
        // Under the lock, because another process might be writing the marker.
        let is_again = check_marker(&marker.0, path, &recording)?;
        let files = open_files(&directory).map_err(fail)?;
        let open =
            |name| PublishedFile::open(Arc::clone(&directory), name, Some(b'\n')).map_err(fail);
        Ok(Self {
            metadata: open("trace_metadata.json")?,
            paths: open("trace_paths.json")?,
            events: EventsFile::open(&directory, form).map_err(fail)?,
            path: path.to_owned(),
            directory,
            marker,
            recording,
            is_again,
            form,
            program: RecordingMetadata::default(),
            is_program_written: false,
            new_paths: b"[".to_vec(),
            has_paths: false,
            files: SourceFiles::new(files),
        })
    }

    /// Sets what `trace_metadata.json` says from the next publication on.
    pub(super) fn set_metadata(&mut self, metadata: &RecordingMetadata) {
        if self.program != *metadata {
            self.program = metadata.clone();
            self.is_program_written = false;
        }
    }

    /// Adds paths to those in `trace_paths.json` from the next publication on.
    pub(super) fn add_paths(&mut self, paths: &[String]) {
        for path in paths {
            if std::mem::replace(&mut self.has_paths, true) {
                self.new_paths.push(b',');
            }
            let written = serde_json::to_writer(&mut self.new_paths, path);
            written.expect("a write to memory does not fail");
        }
    }

    /// Takes a part of a source file, which appears when it is complete.
    ///
    /// # Errors
    /// If the file cannot be copied. The recording is valid without.
    pub(super) fn write_chunk(&mut self, chunk: &FileChunk<'_>) -> Result<(), SourceFileError> {
        self.files.write_chunk(chunk)
    }

    /// Appends records in the form of the directory, which are removed from `certain`, and after
    /// them for now those of `uncertain`. Readers see them unless the files of an earlier process
    /// have more.
    ///
    /// # Errors
    /// If a file cannot be written. What readers see is valid, and no further call may follow.
    pub(super) fn publish(
        &mut self,
        certain: &mut Vec<u8>,
        uncertain: &[u8],
    ) -> Result<(), DirectoryError> {
        self.write(certain, uncertain, false)
    }

    /// Fails if what an earlier process has left is not the begin of this recording.
    fn check_begin(&mut self) -> Result<(), DirectoryError> {
        let fail = |source| io_error(&self.path, source);
        if !self.events.has_same_begin().map_err(fail)? {
            let wanted = format!("{} (id {})", self.recording.name, self.recording.id);
            return Err(DirectoryError::OtherRecording {
                path: self.path.clone(),
                found: self.recording.name.clone(),
                wanted,
            });
        }
        write_marker(&self.marker.0, &self.recording).map_err(fail)?;
        self.is_again = false;
        Ok(())
    }

    /// Publishes the last records, even if an earlier process has left more.
    ///
    /// # Errors
    /// If a file cannot be written, as for [`publish`](Self::publish).
    pub(super) fn finish(&mut self, certain: &mut Vec<u8>) -> Result<(), DirectoryError> {
        self.write(certain, &[], true)?;
        let freed = self.free_spares();
        freed.map_err(|source| io_error(&self.path, source))
    }

    fn write(
        &mut self,
        certain: &mut Vec<u8>,
        uncertain: &[u8],
        is_last: bool,
    ) -> Result<(), DirectoryError> {
        let is_published = is_last || !self.events.is_behind(certain, uncertain);
        if self.is_again && is_published {
            // Compared before any reader can see them: another recording must not replace what is
            // there.
            let appended = self.events.write(certain, &[], false);
            appended.map_err(|source| io_error(&self.path, source))?;
            self.check_begin()?;
        }
        let written = self.write_files(certain, uncertain, is_published);
        written.map_err(|source| io_error(&self.path, source))
    }

    fn write_files(
        &mut self,
        certain: &mut Vec<u8>,
        uncertain: &[u8],
        is_published: bool,
    ) -> io::Result<()> {
        // Metadata and paths first, because readers look them up when they read records.
        if is_published && !self.is_program_written {
            let program = self.program.to_readable_json();
            self.metadata.write(&[], program.as_bytes(), true)?;
            self.is_program_written = true;
        }
        if is_published && !self.new_paths.is_empty() {
            self.paths.write(&self.new_paths, b"]", true)?;
            self.new_paths.clear();
        }
        self.events.write(certain, uncertain, is_published)?;
        if is_published {
            self.remove_other_form()?;
        }
        Ok(())
    }

    /// Removes the records that an earlier process has written in the other form.
    fn remove_other_form(&self) -> io::Result<()> {
        let other = events_file::name(match self.form {
            OutputForm::Json => OutputForm::Binary,
            OutputForm::Binary => OutputForm::Json,
        });
        match unlinkat(&*self.directory, other, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn free_spares(&mut self) -> io::Result<()> {
        self.metadata.free_spares()?;
        self.paths.free_spares()?;
        self.events.free_spares()
    }
}

fn open_marker(directory: &OwnedFd) -> io::Result<File> {
    steps::check()?;
    open_at(directory, MARKER, OFlags::CREATE | OFlags::RDWR)
}

/// Reads which recording the directory has, and writes it if it has none. Returns whether it has
/// one of this name and another id.
fn check_marker(
    marker: &File,
    path: &Path,
    recording: &RecordingId,
) -> Result<bool, DirectoryError> {
    let fail = |source| io_error(path, source);
    let mut text = String::new();
    let read = marker.take(MAX_MARKER_BYTES).read_to_string(&mut text);
    read.map_err(fail)?;
    // What a killed process has not written to its end is none.
    let Ok(found) = serde_json::from_str::<RecordingId>(&text) else {
        return write_marker(marker, recording)
            .map_err(fail)
            .map(|()| false);
    };
    if found.id == recording.id {
        return Ok(false);
    }
    // The producer may have been started again: whether it was, the records will tell.
    if found.name == recording.name {
        return Ok(true);
    }
    Err(DirectoryError::OtherRecording {
        path: path.to_owned(),
        found: found.name,
        wanted: recording.name.clone(),
    })
}

fn write_marker(marker: &File, recording: &RecordingId) -> io::Result<()> {
    let text = serde_json::to_vec(recording)?;
    steps::check()?;
    marker.write_all_at(&text, 0)?;
    // An earlier text may have been longer.
    marker.set_len(text.len() as u64)
}

fn open_files(directory: &OwnedFd) -> io::Result<OwnedFd> {
    steps::check()?;
    // The umask takes away what others may not do.
    match mkdirat(directory, "files", Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    open_directory_at(directory, "files")
}
