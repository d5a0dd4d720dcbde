//! The metadata file of a trace. What a producer sends in one piece is in it whole or not at all.

use std::io;
use std::path::Path;
use std::sync::Arc;

use wire::{Bytes, FileName, TracePath};

use super::StoreError;
use super::chunk::Holding;
use super::pool::{Pool, PooledFile};
use super::tracefile::Tracefile;

/// The metadata file of a trace. In no chunk, there is none to write to.
///
/// It is never put aside: its lock says that the streams beside it may go on, so that it is kept as
/// long as any of them does.
#[derive(Debug)]
pub struct MetadataFile {
    pool: Arc<Pool>,
    directory: TracePath,
    name: FileName,
    open: Option<(Holding, Tracefile)>,
}

impl MetadataFile {
    /// Makes an empty file.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(
        pool: Arc<Pool>,
        directory: TracePath,
        name: FileName,
        chunk: Holding,
    ) -> Result<Self, StoreError> {
        let mut file = Self {
            pool,
            directory,
            name,
            open: None,
        };
        file.enter(chunk)?;
        Ok(file)
    }

    /// Goes on with an empty file in a chunk. In the chunk that it is in, this replaces the file,
    /// whose readers keep what they read.
    ///
    /// # Errors
    /// If it cannot be made. Nothing can be written then.
    pub fn enter(&mut self, chunk: Holding) -> Result<(), StoreError> {
        self.open = None;
        let directory: &Path = self.directory.as_ref();
        let create = || chunk.create_file(&self.pool, directory, &self.name);
        let file = Tracefile::new(self.pool.open(create)?);
        let file = file.map_err(StoreError::on("write metadata of", directory))?;
        self.open = Some((chunk, file));
        Ok(())
    }

    /// Stops writing to the chunk.
    pub fn leave(&mut self) {
        self.open = None;
    }

    /// The chunk being written to, if any.
    #[must_use]
    pub fn chunk(&self) -> Option<&Holding> {
        self.open.as_ref().map(|(chunk, _)| chunk)
    }

    /// The file, for readers.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<PooledFile>> {
        self.open.as_ref().and_then(|(_, file)| file.file())
    }

    /// How long the file is, without a piece that has not ended.
    #[must_use]
    pub fn received(&self) -> Bytes {
        self.open.as_ref().map_or(Bytes(0), |(_, file)| file.size())
    }

    /// Writes some of a piece.
    ///
    /// # Errors
    /// As the system says.
    pub fn append(&mut self, text: &[u8]) -> Result<(), StoreError> {
        self.write(|file| file.append(text))
    }

    /// Ends the piece with so many zeros. Gives how long the file is now.
    ///
    /// # Errors
    /// As the system says. The piece is not whole then.
    pub fn finish(&mut self, padding: u32) -> Result<Bytes, StoreError> {
        self.write(|file| file.finish(&[], padding))
            .map(|extent| extent.end())
    }

    /// What bounds its open files.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Forgets a piece that has not ended.
    pub fn abandon(&mut self) {
        if let Some((_, file)) = &mut self.open {
            file.abandon();
        }
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut Tracefile) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let path: &Path = self.directory.as_ref();
        let Some((chunk, file)) = &mut self.open else {
            let none = io::Error::other("the metadata stream is in no chunk");
            return Err(StoreError::on("write metadata of", path)(none));
        };
        write(file).map_err(|error| {
            let path = chunk.with_path(&path.join(&self.name), Path::to_owned);
            StoreError::at("write", path, file.position(), error)
        })
    }
}
