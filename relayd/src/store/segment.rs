//! A tracefile with its index file, for readers. They share the handles of the writer while it has
//! the files open, and open the files themselves otherwise.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ctf::index::IndexFormat;
use parking_lot::Mutex;

use super::chunk::Chunk;
use super::pool::PooledFile;
use super::reopenable_file::{FileLocation, ReopenableFile};

/// A tracefile that has at least one packet, and its index file.
#[derive(Debug)]
pub struct Segment {
    /// Number of the tracefile in its stream and chunk.
    number: u64,
    data: Arc<FileLocation>,
    /// The index file, and its format. None: the producer sends no indexes.
    index: Option<(Arc<FileLocation>, IndexFormat)>,
    written: Mutex<Written>,
    has_failed: AtomicBool,
}

/// The open files, as long as the writer has them open.
#[derive(Debug, Default)]
struct Written {
    // Weak, so that a segment that viewers hold keeps no file open.
    data: Weak<PooledFile>,
    index: Weak<PooledFile>,
}

impl Segment {
    /// The segment of the tracefile with this number.
    #[must_use]
    pub(super) fn new(
        number: u64,
        data: &ReopenableFile,
        index: Option<(&ReopenableFile, IndexFormat)>,
    ) -> Self {
        Self {
            number,
            data: Arc::clone(data.location()),
            index: index.map(|(index, format)| (Arc::clone(index.location()), format)),
            written: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Sets which of the files the writer has open.
    pub(super) fn set_handles(
        &self,
        data: Option<&Arc<PooledFile>>,
        index: Option<&Arc<PooledFile>>,
    ) {
        let weak = |file: Option<&Arc<PooledFile>>| file.map_or_else(Weak::new, Arc::downgrade);
        *self.written.lock() = Written {
            data: weak(data),
            index: weak(index),
        };
    }

    /// Whether this is the tracefile with this number in this chunk.
    #[must_use]
    pub fn is(&self, chunk: &Arc<Chunk>, number: u64) -> bool {
        self.number == number && Arc::ptr_eq(self.data.chunk(), chunk)
    }

    /// Number of the tracefile in its stream and chunk.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The chunk of the segment.
    #[must_use]
    pub fn chunk(&self) -> &Arc<Chunk> {
        self.data.chunk()
    }

    /// Whether the chunk of the segment has been deleted.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.data.chunk().is_deleted()
    }

    /// Records that a reader could not read the segment. Returns whether this is the first failure,
    /// so that the fault is logged once.
    #[must_use]
    pub fn is_first_failure(&self) -> bool {
        !self.has_failed.swap(true, Ordering::Relaxed)
    }

    fn files_of_writer(&self) -> (Option<Arc<PooledFile>>, Option<Arc<PooledFile>>) {
        let written = self.written.lock();
        (written.data.upgrade(), written.index.upgrade())
    }

    /// The files, if the writer has both open. Makes no system call.
    #[must_use]
    pub fn opened_by_writer(&self) -> Option<OpenSegment> {
        let (data, index) = self.files_of_writer();
        let index = match &self.index {
            Some((_, format)) => Some((index?, *format)),
            None => None,
        };
        Some(OpenSegment { data: data?, index })
    }

    /// The files, which stay readable even if they are renamed or unlinked. Opens those that the
    /// writer does not have open, which may block.
    ///
    /// # Errors
    /// If they cannot be opened: a user may have removed them, or replaced them by something that
    /// is not a regular file.
    pub fn open(&self) -> io::Result<OpenSegment> {
        let (data, index) = self.files_of_writer();
        let open = |open: Option<Arc<PooledFile>>, location: &FileLocation| match open {
            Some(file) => Ok(file),
            None => location.open_for_reading(),
        };
        let data = open(data, &self.data)?;
        let index = match &self.index {
            Some((location, format)) => Some((open(index, location)?, *format)),
            None => None,
        };
        Ok(OpenSegment { data, index })
    }

    /// Checks that these are the files of the segment: a later recording in the same directory may
    /// have given their names to others.
    ///
    /// # Errors
    /// If they are others.
    pub fn check(&self, files: &OpenSegment) -> io::Result<()> {
        self.data.id().check(&files.data)?;
        match (&self.index, &files.index) {
            (Some((location, _)), Some((file, _))) => location.id().check(file),
            _ => Ok(()),
        }
    }
}

/// The open files of a [`Segment`].
#[derive(Debug)]
pub struct OpenSegment {
    /// The tracefile, which has the packets.
    pub data: Arc<PooledFile>,
    /// Index entries of the packets, and their format. None: the producer sends no indexes.
    pub index: Option<(Arc<PooledFile>, IndexFormat)>,
}
