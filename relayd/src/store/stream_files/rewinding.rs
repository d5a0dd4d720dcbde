//! Positions in the tracefiles of a stream, and the way back to the last packet that has its entry:
//! a producer whose connection was lost sends everything after it again.

use wire::ChunkId;

use super::StreamFiles;
use crate::store::StoreError;
use crate::store::session_log::FilePosition;

impl StreamFiles {
    /// Whether the names of tracefiles have numbers.
    #[must_use]
    pub fn are_numbered(&self) -> bool {
        self.layout.limits.is_some()
    }

    /// The chunk of the tracefile that is being written, and its number there. None: the stream is
    /// in no chunk.
    #[must_use]
    pub fn tracefile(&self) -> Option<(Option<ChunkId>, u64)> {
        Some((self.chunk()?.id(), self.number))
    }

    /// Position of the next packet.
    #[must_use]
    pub fn end(&self) -> FilePosition {
        let last = self.open.back();
        FilePosition {
            file: (self.first_open + self.open.len() as u64).saturating_sub(1),
            packets: last.map_or(0, |file| {
                file.entries() + file.unindexed as u64 + file.without_index
            }),
        }
    }

    /// Position of the first packet that has no entry.
    #[must_use]
    pub fn indexed_end(&self) -> FilePosition {
        FilePosition {
            file: self.first_open,
            packets: self.open.front().map_or(0, |file| file.entries()),
        }
    }

    /// Removes all packets that have no entry, and the tracefiles that were begun with one of them.
    /// The next packet is then written where it would have been written first.
    ///
    /// # Errors
    /// If a file cannot be truncated or removed.
    pub fn drop_unindexed(&mut self) -> Result<(), StoreError> {
        self.drop_packet();
        while let [.., previous, last] = self.open.make_contiguous()
            && last.entries() == 0
            // Its name belongs to a newer tracefile: nothing can be appended.
            && !previous.is_replaced
        {
            self.number = previous.number;
            if let Some(last) = self.open.pop_back() {
                last.remove()?;
            }
        }
        for file in &mut self.open {
            if file.is_replaced {
                file.unindexed = 0;
            } else {
                file.drop_unindexed()?;
            }
        }
        self.close_indexed();
        Ok(())
    }
}
