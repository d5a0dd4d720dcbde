//! Exports: writes the stored lines of a trace as one JSON document.

mod directory;
mod document;
mod export_target;
mod output;

pub use document::{DocumentForm, ExportCounts, write_document};
use export_target::{ExportRefusal, ExportTarget};
pub use output::{OutputError, open_output};

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use thiserror::Error;

/// An export of a trace.
#[derive(Debug)]
pub(crate) struct Export {
    /// Absolute path of the export.
    pub(crate) path: PathBuf,
    /// Number of bytes at the front of the events' file that are exported.
    pub(crate) length: u64,
    /// Whether it was pending until the last client had disconnected.
    pub(crate) is_pending_export: bool,
}

/// An export has failed.
#[derive(Debug, Error)]
pub(crate) enum ExportError {
    #[error("refused")]
    Refused(#[from] ExportRefusal),
    #[error("cannot be written")]
    Write(#[from] io::Error),
}

impl Export {
    /// Writes the export. The document is written to a temporary file, which is then renamed, so
    /// that a reader of the path sees either the whole export or the file before it.
    pub(crate) fn write(&self, events: &File, sync: bool) -> Result<ExportCounts, ExportError> {
        let uid = rustix::process::geteuid().as_raw();
        let target = ExportTarget::open(&self.path, uid)?;
        let mut from = Front {
            file: events,
            at: 0,
            end: self.length,
        };
        let mut draft = target.create_draft()?;
        let written = write_document(&mut from, draft.file(), DocumentForm::Array)?;
        draft.publish(sync)?;
        Ok(written)
    }
}

/// Reads the bytes at the front of a file that is being appended to.
struct Front<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Front<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let room = buffer.len().min(left);
        let read = match buffer.get_mut(..room) {
            Some(buffer) => self.file.read_at(buffer, self.at)?,
            None => 0,
        };
        self.at += read as u64;
        Ok(read)
    }
}
