//! Files whose errors say which file it is.

use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};

/// A file, or what reads or writes one. The kind of each error stays.
#[derive(Debug)]
pub struct NamedFile<T> {
    path: PathBuf,
    /// The file.
    pub file: T,
}

impl<T> NamedFile<T> {
    /// Names a file as users know it.
    #[must_use]
    pub fn new(path: &Path, file: T) -> Self {
        let path = path.to_owned();
        Self { path, file }
    }

    fn describe(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }
}

impl<T: Read> Read for NamedFile<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        read.map_err(|error| self.describe(error))
    }
}

impl<T: Write> Write for NamedFile<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        written.map_err(|error| self.describe(error))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.file.write_vectored(pieces);
        written.map_err(|error| self.describe(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        flushed.map_err(|error| self.describe(error))
    }
}
