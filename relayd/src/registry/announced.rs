//! The streams of a session that viewers may be told of, in the order in which they were published.
//! A viewer's position in the list is a number.

use std::collections::VecDeque;
use std::sync::Arc;

use viewer_proto::stream::StreamRecord;

use super::published::{Published, PublishedMetadata};
use crate::limits::MOST_ENDED_STREAMS;

/// A stream, as viewers are told of it.
#[derive(Debug)]
pub struct Listed {
    /// What they are told.
    pub record: StreamRecord,
    /// What they may then see.
    pub content: Content,
}

/// What viewers may see of a stream.
#[derive(Debug, Clone)]
pub enum Content {
    /// Packets.
    Packets(Arc<Published>),
    /// Metadata.
    Metadata(Arc<PublishedMetadata>),
}

impl Listed {
    fn has_ended(&self) -> bool {
        match &self.content {
            Content::Packets(published) => published.is_over(),
            Content::Metadata(published) => published.is_over(),
        }
    }
}

/// The list.
#[derive(Debug, Default)]
pub struct Announced {
    /// Number of the first one that is still in the list.
    first: u64,
    list: VecDeque<Arc<Listed>>,
}

impl Announced {
    /// Appends a stream.
    pub fn push(&mut self, stream: Arc<Listed>) {
        if self.list.len() >= MOST_ENDED_STREAMS
            && self.list.front().is_some_and(|old| old.has_ended())
        {
            self.list.pop_front();
            self.first += 1;
        }
        self.list.push_back(stream);
    }

    /// Number of the next one to come.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.list.len() as u64
    }

    /// The streams from a position on, each with its number.
    pub fn from(&self, position: u64) -> impl Iterator<Item = (u64, &Arc<Listed>)> {
        let skip = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        (self.first..).zip(&self.list).skip(skip)
    }
}
