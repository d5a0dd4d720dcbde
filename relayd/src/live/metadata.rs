//! A viewer's position in a metadata stream.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use viewer_proto::relay::Metadata;
use wire::Bytes;

use super::file_calls::{FileCalls, ReadFile};
use super::subscribed::Subscribed;
use crate::limits::METADATA_BYTES;
use crate::publish::published::PublishedMetadata;

/// A viewer's position in a metadata stream.
#[derive(Debug)]
pub struct MetadataReader {
    published: Subscribed<PublishedMetadata>,
    /// Bytes that have been read. They stay valid when the metadata starts again in another chunk,
    /// because that repeats them.
    sent: Bytes,
    calls: Arc<FileCalls>,
}

impl MetadataReader {
    pub(super) fn new(published: Subscribed<PublishedMetadata>, calls: Arc<FileCalls>) -> Self {
        Self {
            published,
            sent: Bytes(0),
            calls,
        }
    }
}

impl Metadata for MetadataReader {
    fn has_unread(&self) -> bool {
        self.published.text_after(self.sent).is_some()
    }

    fn read(&mut self, to: &mut BytesMut) -> io::Result<()> {
        let Some((source, end)) = self.published.text_after(self.sent) else {
            return Ok(());
        };
        // The file of the writer, if it is open: opening it by name may block.
        let file = match source.opened() {
            Some(file) => file,
            None => self.calls.run(|| source.open())?,
        };
        let file = ReadFile::new(file, &self.calls);
        let len = (end.0 - self.sent.0).min(METADATA_BYTES);
        let start = to.len();
        to.resize(start + usize::try_from(len).unwrap_or(0), 0);
        let (_, piece) = to.split_at_mut(start);
        file.read_exact_at(piece, self.sent.0)?;
        self.sent.0 += len;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.published.is_over()
    }

    fn set_subscribed(&mut self, on: bool) {
        self.published.set_subscribed(on);
    }
}
