//! Stored lines -> one JSON document.

mod directory;
mod document;
mod export_target;
mod output;

pub use document::{DocumentForm, ExportCounts, write_document};
use export_target::ExportRefusal;
pub(crate) use export_target::{ExportOwner, ExportRules};
pub use output::{OutputError, open_output};

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use thiserror::Error;

/// An export of a trace.
#[derive(Debug)]
pub(crate) struct Export {
    /// Where to: absolute.
    pub(crate) path: PathBuf,
    /// Who wants it.
    pub(crate) owner: ExportOwner,
    /// So many bytes of the events' file.
    pub(crate) length: u64,
    /// Whether it was asked for before, to be done when the last client has gone.
    pub(crate) is_pending_export: bool,
}

/// Why an export was not done.
#[derive(Debug, Error)]
pub(crate) enum ExportError {
    #[error("refused")]
    Refused(#[from] ExportRefusal),
    #[error("cannot be written")]
    Write(#[from] io::Error),
}

impl Export {
    /// Writes it: aside first, so that whoever reads the path sees all of it or what was there before.
    pub(crate) fn write(
        &self,
        events: &File,
        rules: &ExportRules,
        sync: bool,
    ) -> Result<ExportCounts, ExportError> {
        let target = rules.export_target(&self.path, self.owner)?;
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

/// The first bytes of a file that others append to.
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
