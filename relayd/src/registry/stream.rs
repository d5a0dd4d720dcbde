//! A stream of a session, of packets or of metadata: the operations that both kinds have.

use std::sync::Arc;

use wire::StreamId;

use crate::ingest::{DataStream, IngestError, MetadataStream, Resumed};
use crate::publish::announced::AnnouncedContent;

/// A stream of a session, of either kind.
#[derive(Debug, Clone)]
pub enum SessionStream {
    /// A stream of packets.
    Data(Arc<DataStream>),
    /// The metadata of a trace.
    Metadata(Arc<MetadataStream>),
}

impl SessionStream {
    /// Number of the stream, as the producer knows it.
    #[must_use]
    pub fn id(&self) -> StreamId {
        match self {
            Self::Data(stream) => stream.id(),
            Self::Metadata(stream) => stream.id(),
        }
    }

    pub(super) fn content(&self) -> AnnouncedContent {
        match self {
            Self::Data(stream) => AnnouncedContent::Packets(Arc::clone(stream.published())),
            Self::Metadata(stream) => AnnouncedContent::Metadata(Arc::clone(stream.published())),
        }
    }

    /// Whether the stream is closed and accepts nothing.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Data(stream) => stream.is_closed(),
            Self::Metadata(stream) => stream.is_closed(),
        }
    }

    /// Whether the stream is paused until the disk has space.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        match self {
            Self::Data(stream) => stream.is_paused(),
            Self::Metadata(stream) => stream.is_paused(),
        }
    }

    /// Retries to write what the disk had no space for.
    ///
    /// # Errors
    /// If that fails for another reason than before.
    pub(super) fn resume(&self) -> Result<Resumed, IngestError> {
        match self {
            Self::Data(stream) => stream.lock().resume(),
            Self::Metadata(stream) => match stream.resume() {
                Ok(true) => Ok(Resumed::Yes { was_reported: true }),
                Ok(false) => Ok(Resumed::No(None)),
                Err(source) => Err(IngestError::Store {
                    stream: stream.id(),
                    source,
                }),
            },
        }
    }
}
