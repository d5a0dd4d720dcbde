//! A stream in the table. In a file of its own so that nobody looks at a stream or its directory but
//! by what is counted in tests.

use wire::TracePath;

use crate::registry::stream::Stream;

/// A stream in the table.
#[derive(Debug)]
pub(super) struct Entry {
    stream: Stream,
    path: TracePath,
    /// The producer has said that its batch of streams is complete.
    pub(super) is_published: bool,
    /// The stream was found closed.
    pub(super) is_closed: bool,
    /// The last round of questions in which it was asked about.
    pub(super) asked_in: u64,
}

#[cfg(test)]
thread_local! {
    /// How often a thread has looked at an entry.
    pub(super) static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Entry {
    pub(super) fn new(stream: Stream, path: TracePath) -> Self {
        Self {
            stream,
            path,
            is_published: false,
            is_closed: false,
            asked_in: 0,
        }
    }

    pub(super) fn stream(&self) -> &Stream {
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
