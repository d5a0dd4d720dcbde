//! A metadata stream, as it comes on the control connection: in pieces, each of which viewers see
//! whole or not at all.

use std::sync::Arc;

use parking_lot::Mutex;
use relay_proto::metadata::SendMetadata;
use wire::{StreamId, TracePath};

use crate::limits::MOST_METADATA_BYTES;
use crate::registry::published::PublishedMetadata;
use crate::store::StoreError;
use crate::store::chunk::Holding;
use crate::store::metadata::MetadataFile;

/// The metadata of a trace.
#[derive(Debug)]
pub struct MetadataStream {
    id: StreamId,
    trace: TracePath,
    published: Arc<PublishedMetadata>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: MetadataFile,
    /// Zeros that the piece under way ends in.
    padding: u32,
    was_asked: bool,
}

impl MetadataStream {
    /// A stream that describes a trace and writes to `file`.
    #[must_use]
    pub fn new(id: StreamId, trace: TracePath, file: MetadataFile) -> Self {
        let published = Arc::new(PublishedMetadata::default());
        let state = State {
            file,
            padding: 0,
            was_asked: false,
        };
        Self {
            id,
            trace,
            published,
            state: Mutex::new(state),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Directory of the trace that it describes.
    #[must_use]
    pub fn trace(&self) -> &TracePath {
        &self.trace
    }

    /// What viewers may see of it.
    #[must_use]
    pub fn published(&self) -> &Arc<PublishedMetadata> {
        &self.published
    }

    /// Whether a piece of so many bytes may come.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        let received = self.state.lock().file.received();
        received.0.saturating_add(bytes) <= MOST_METADATA_BYTES
    }

    /// A piece begins. Gives whether there is a file for it.
    #[must_use]
    pub fn begin(&self, metadata: &SendMetadata) -> bool {
        let mut state = self.state.lock();
        state.padding = metadata.padding;
        state.file.chunk().is_some() && !self.published.is_over()
    }

    /// Some of the piece.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn text(&self, text: &[u8]) -> Result<(), StoreError> {
        self.state.lock().file.append(text)
    }

    /// The piece is complete: viewers may have it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end_piece(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let padding = state.padding;
        let received = state.file.finish(padding)?;
        if let Some(file) = state.file.file() {
            self.published.received(file, received);
        }
        Ok(())
    }

    /// The metadata starts anew.
    ///
    /// # Errors
    /// If no new file can be made.
    pub fn reset(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let Some(chunk) = state.file.chunk().cloned() else {
            return Ok(());
        };
        self.published.restart();
        state.file.enter(chunk)
    }

    /// Goes over to another chunk, or to none, at once.
    ///
    /// # Errors
    /// If the file there cannot be made.
    pub fn rotate(&self, target: Option<Holding>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        match target {
            Some(chunk) => {
                self.published.restart();
                state.file.enter(chunk)
            }
            None => {
                state.file.leave();
                Ok(())
            }
        }
    }

    /// No more will come: what has not ended is dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.file.abandon();
        state.file.leave();
        self.published.end();
    }

    /// Whether no more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.published.is_over()
    }

    /// Sets whether it was asked, in this round of questions, if it has come to rest.
    pub fn set_asked(&self, was_asked: bool) {
        self.state.lock().was_asked = was_asked;
    }

    /// Whether it was left out of the round.
    #[must_use]
    pub fn was_left_out(&self) -> bool {
        !self.state.lock().was_asked
    }
}
