//! A stream of a session, of packets or of metadata: what both sorts have in common.

use std::sync::Arc;

use tracing::{error, info, warn};
use wire::StreamId;

use super::session::Session;
use crate::ingest::{DataStream, IngestError, MetadataStream, Resumed};
use crate::publish::announced::AnnouncedContent;

/// A stream of either sort.
#[derive(Debug, Clone)]
pub enum Stream {
    /// A stream of packets.
    Data(Arc<DataStream>),
    /// A metadata stream.
    Metadata(Arc<MetadataStream>),
}

impl Stream {
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

    /// Whether the stream is closed and takes nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Data(stream) => stream.is_closed(),
            Self::Metadata(stream) => stream.is_closed(),
        }
    }

    /// Whether the stream is paused until there is space on the disk.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        match self {
            Self::Data(stream) => stream.is_paused(),
            Self::Metadata(stream) => stream.is_paused(),
        }
    }

    /// Tries again to write what there was no space for. Gives whether the stream goes on. If it fails for another
    /// reason than before, so does the session.
    #[must_use]
    pub fn resume(&self, session: &Session) -> bool {
        let id = self.id();
        let resumed = match self {
            Self::Data(stream) => stream.lock().resume(),
            Self::Metadata(stream) => match stream.resume() {
                Ok(true) => Ok(Resumed::Yes),
                Ok(false) => Ok(Resumed::No(None)),
                Err(source) => Err(IngestError::Store { stream: id, source }),
            },
        };
        match resumed {
            Ok(Resumed::Yes) => info!(%session, stream = %id, "producer resumed"),
            Ok(Resumed::Already) => {}
            Ok(Resumed::No(why)) => {
                if let Some(why) = why {
                    warn!(%session, %why, "producer paused");
                }
                return false;
            }
            Err(why) => {
                error!(%session, error = %why, "session aborted");
                session.fail();
            }
        }
        true
    }
}
