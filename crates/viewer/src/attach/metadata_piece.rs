//! Metadata on its way to the reader, which parses it: that takes far longer than to fetch it.

use std::ops::Deref;

use super::Backlog;

/// Bytes of metadata from which on a source fetches none of further traces before the reader has
/// parsed some: 20 to 30 milliseconds of work. Otherwise traces that come and go would keep it from
/// showing those that it knows.
pub(super) const MAX_WAITING_METADATA_BYTES: usize = 256 << 10;

/// A piece of a trace's metadata that has been handed over. It counts in the backlog of its source
/// until it is dropped.
#[derive(Debug)]
pub struct MetadataPiece {
    bytes: Vec<u8>,
    backlog: Backlog,
}

impl MetadataPiece {
    /// A piece that is handed over by the source with this backlog of metadata.
    pub(super) fn new(bytes: Vec<u8>, backlog: &Backlog) -> Self {
        backlog.add_packet(bytes.len());
        let backlog = backlog.clone();
        Self { bytes, backlog }
    }
}

impl Deref for MetadataPiece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for MetadataPiece {
    fn drop(&mut self) {
        self.backlog.remove_packet();
    }
}
