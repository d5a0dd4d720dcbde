//! A tracefile with its index file, as readers hold it: they read the files that are being written
//! as long as they are, and open them again later.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use ctf::index::{Entry, IndexFormat};

use super::chunk::Chunk;
use super::index_file::read_entry;

/// A tracefile that has at least one packet, and its index file.
#[derive(Debug)]
pub struct Segment {
    chunk: Arc<Chunk>,
    /// Which tracefile of its stream in the chunk it is.
    number: u64,
    /// Below the chunk's directory.
    data_path: PathBuf,
    index_path: PathBuf,
    format: IndexFormat,
    /// The open files, as long as the writer has them open.
    data: Weak<File>,
    index: Weak<File>,
}

impl Segment {
    /// What the writer of the files lets readers have.
    #[must_use]
    pub(super) fn new(
        chunk: &Arc<Chunk>,
        number: u64,
        (data_path, index_path): (PathBuf, PathBuf),
        format: IndexFormat,
        (data, index): (&Arc<File>, &Arc<File>),
    ) -> Self {
        Self {
            chunk: Arc::clone(chunk),
            number,
            data_path,
            index_path,
            format,
            data: Arc::downgrade(data),
            index: Arc::downgrade(index),
        }
    }

    /// Whether it is that tracefile of its stream in that chunk.
    #[must_use]
    pub fn is(&self, chunk: &Arc<Chunk>, number: u64) -> bool {
        self.number == number && Arc::ptr_eq(&self.chunk, chunk)
    }

    /// Whether its chunk has been deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.chunk.is_deleted()
    }

    /// The files, to be read for as long as the reader likes, whatever becomes of their names.
    ///
    /// # Errors
    /// If they cannot be opened: they may have been removed by hand.
    pub fn open(&self) -> io::Result<OpenSegment> {
        let open = |open: &Weak<File>, path: &PathBuf| match open.upgrade() {
            Some(file) => Ok(file),
            None => self
                .chunk
                .with_path(path, |path| File::open(path))
                .map(Arc::new),
        };
        Ok(OpenSegment {
            data: open(&self.data, &self.data_path)?,
            index: open(&self.index, &self.index_path)?,
            format: self.format,
        })
    }
}

/// A [`Segment`]'s files.
#[derive(Debug)]
pub struct OpenSegment {
    data: Arc<File>,
    index: Arc<File>,
    format: IndexFormat,
}

impl OpenSegment {
    /// The packets.
    #[must_use]
    pub fn data(&self) -> &Arc<File> {
        &self.data
    }

    /// The entry of a packet, counted from the first in the segment.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entry(&self, number: u64) -> io::Result<Entry> {
        read_entry(&self.index, self.format, number)
    }
}
