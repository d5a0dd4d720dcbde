//! Records as events of a CTF trace: [`EventEncoder`] declares their classes and makes each record
//! an event; [`EventDecoder`] takes records from events again.
//!
//! All records of a recording are in one stream, in their original order. Strings of CTF end at a
//! NUL: a record with a NUL in a text is an event `ct:other`, with its text as JSON. Fields that
//! people read and no program needs, such as the name of a function beside its number, are not read
//! back.
//!
//! | class | fields |
//! |---|---|
//! | `ct:meta` | `program`, `workdir`, `args` (JSON), `others` (JSON object) |
//! | `ct:path` | `id`, `path` |
//! | `ct:function` | `id`, `path_id`, `line`, `name` |
//! | `ct:type` | `id`, `type` (JSON) |
//! | `ct:variable` | `id`, `name`, `legacy` |
//! | `ct:step` | `path_id`, `line`, `file` |
//! | `ct:call` | `function_id`, `function`, `args` (JSON) |
//! | `ct:return` | `value` (JSON) |
//! | `ct:value` | `variable_id`, `variable`, `value` (JSON) |
//! | `ct:log` | `kind`, `metadata`, `content` |
//! | `ct:drop_last_step` | |
//! | `ct:other` | `kind`, `json` |
//! | `ct:file` | `path`, `size`, `offset`, `content` (bytes), `sha256` |
//! | `ct:end` | `records` |
//!
//! `ct:end` is the last event of a recording: without it, the producer has ended early, and may
//! send the recording again.
//!
//! The context of a packet ends with `first_record`, the number of records before its first one;
//! `depth`, the number of open calls before it; and `have_step`, 1 if there was a step before it.

mod classes;
mod decoder;
mod encoder;
mod names;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use decoder::EventDecoder;
pub use encoder::{Encoded, EventEncoder};

use crate::metadata::RecordingMetadata;
use crate::record::Record;

/// The prefix of the names of all event classes here.
pub const PREFIX: &str = "ct:";

/// Bytes of a copied file that one event holds at most.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// The content of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next record of the recording.
    Record(Record<'a>),
    /// The program that is recorded.
    Metadata(RecordingMetadata),
    /// A part of the copy of a source file.
    FileChunk(FileChunk<'a>),
    /// The end of the recording, and the number of its records.
    End {
        /// Records that were sent.
        records: u64,
    },
}

/// A part of the copy of a source file. The parts of a file come in order, with those of no other
/// file between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChunk<'a> {
    /// The file below `files/`: names separated by `/`. From a packet it is whatever the producer
    /// has sent.
    pub path: Cow<'a, str>,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The number of bytes in earlier parts.
    pub offset: u64,
    /// The bytes, at most [`MAX_CHUNK_BYTES`].
    pub content: Cow<'a, [u8]>,
    /// On the last part, the SHA-256 of the whole file in lower-case hexadecimal digits; else
    /// empty.
    pub sha256: Cow<'a, str>,
}
