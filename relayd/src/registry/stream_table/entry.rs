//! A stream in the table. The entry has a file of its own so that its stream and directory are
//! reached only through methods that count visits, by which tests check that no command walks over
//! all streams.

use wire::{StreamId, TracePath};

use crate::registry::stream::SessionStream;

/// A stream in the table.
#[derive(Debug)]
pub(super) struct TableEntry {
    stream: SessionStream,
    path: TracePath,
    /// Number by which the producer names the stream.
    pub(super) wire_id: StreamId,
    /// Whether the producer has completed the batch of streams to which the stream belongs.
    pub(super) is_published: bool,
    /// Whether the table has recorded that the stream is closed.
    pub(super) is_closed: bool,
    /// The last data-pending round in which the producer asked about the stream.
    pub(super) asked_in: u64,
}

#[cfg(test)]
thread_local! {
    /// Number of visits of entries by a thread.
    pub(super) static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl TableEntry {
    pub(super) fn new(stream: SessionStream, path: TracePath) -> Self {
        Self {
            wire_id: stream.id(),
            stream,
            path,
            is_published: false,
            is_closed: false,
            asked_in: 0,
        }
    }

    pub(super) fn stream(&self) -> &SessionStream {
        count_visit();
        &self.stream
    }

    pub(super) fn path(&self) -> &TracePath {
        count_visit();
        &self.path
    }
}

fn count_visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}
