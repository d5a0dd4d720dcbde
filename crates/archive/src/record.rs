//! The records of a directory. Each is one idempotent statement about a session: read twice, or in
//! another order, it says the same.
//!
//! A record is its type (1 byte), the length of its body (4 bytes) and the body. Records after a
//! [`SessionRecord`] are about that session, until the next one.

mod encoding;

use thiserror::Error;
use wire::wire_enum;
use wire::{
    Bytes, ChunkId, ClassId, DecodeError, FileName, NameError, SeqNum, Text, Timestamp, TracePath,
};

use crate::name::{BootId, SessionKey};

/// The reason why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A record is cut, or has a value that is not allowed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The name of a file or directory could lead out of the directory of the trace.
    #[error("invalid name: {0}")]
    Name(#[from] NameError),
    /// The record has a type that this version does not know.
    #[error("unknown record type {0}: a newer version has written it")]
    Unknown(u8),
    /// The record is longer than its fields.
    #[error("record of type {0} is longer than its fields")]
    TooLong(u8),
}

/// A statement about an object or a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The object itself. First record of each directory.
    Object(ObjectRecord),
    /// The session that the records after this one are about.
    Session(SessionRecord),
    /// A chunk of the session, and its state at that time.
    Chunk(ChunkRecord),
    /// A stream of the session.
    Stream(StreamRecord),
    /// A block of packets in this object.
    Packets(PacketsRecord),
    /// A block of metadata in this object.
    Metadata(MetadataRecord),
    /// Packets that the producer has dropped.
    Skipped {
        /// Number of the data stream.
        stream: u64,
        /// The first packet that will not arrive.
        first: SeqNum,
        /// Number of packets in the block.
        count: u64,
    },
    /// No event of the stream before this time is in a later commit object. Only in commit objects.
    Beacon {
        /// Number of the data stream.
        stream: u64,
        /// The time, in cycles.
        until: Timestamp,
        /// The class of the stream.
        class: ClassId,
    },
    /// A stream has ended.
    StreamEnd {
        /// The stream.
        stream: StreamKey,
        /// Number of the packet after the last one, or length of the metadata in bytes.
        next: u64,
    },
    /// The session has ended.
    SessionEnd {
        /// Time of the end, in nanoseconds since 1970.
        at: u64,
    },
}

wire_enum! {
    /// The kind of an object that has a directory.
    pub ObjectKind {
        /// An object of a relay's log: packets of many sessions.
        Commit = 1,
        /// Packets of one session.
        Part = 2,
    }

    /// The state of a chunk.
    pub ChunkState {
        /// The chunk is being written to.
        Open = 1,
        /// The chunk is complete.
        Ended = 2,
        /// The user has deleted the chunk (`lttng clear`): its packets are not shown.
        Deleted = 3,
    }

    /// How the bytes of a block are stored.
    pub Encoding {
        /// The bytes are stored as they are.
        Stored = 0,
        /// One frame of Zstandard.
        Zstd = 1,
    }
}

/// What an object is, and who has written it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// The run of the relay that has written it.
    pub boot: BootId,
    /// Number of the commit object in its log, or of the part.
    pub number: u64,
}

/// The properties of a session that never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// The session.
    pub session: SessionKey,
    /// Time of its creation, in nanoseconds since 1970.
    pub created: u64,
    /// Interval of the live timer in microseconds. Zero: the session is not live.
    pub live_timer: u32,
    /// Version of the Common Trace Format: 1 or 2.
    pub ctf_version: u32,
    /// Name of the traced host.
    pub host: Text,
    /// Name of the session.
    pub name: Text,
}

/// A chunk, which has its own metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRecord {
    /// Number of the chunk, which its producer has chosen. None: the producer knows no chunks.
    pub chunk: Option<ChunkId>,
    /// State of the chunk.
    pub state: ChunkState,
}

/// A stream, as its producer names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey {
    /// Number of the stream.
    pub number: u64,
    /// Whether it is a stream of metadata, which are counted apart.
    pub is_metadata: bool,
}

/// The names of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// The stream.
    pub stream: StreamKey,
    /// Directory of the trace, below that of the chunk.
    pub path: TracePath,
    /// Name of its file.
    pub name: FileName,
}

/// The place of a block in its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Offset of the block in the object.
    pub offset: Bytes,
    /// Bytes of the block in the object.
    pub stored: u32,
    /// Bytes of the block when it is decoded.
    pub raw: u32,
    /// How it is stored.
    pub encoding: Encoding,
    /// CRC-32 of the stored bytes.
    pub checksum: u32,
}

/// Packets of one stream in one chunk, with consecutive numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketsRecord {
    /// Number of the data stream.
    pub stream: u64,
    /// Chunk of the packets.
    pub chunk: Option<ChunkId>,
    /// Number of the first packet.
    pub first: SeqNum,
    /// Number of packets, at least 1.
    pub count: u32,
    /// The earliest time at which one of the packets begins, in cycles.
    pub begin: Timestamp,
    /// The latest time at which one of the packets ends, in cycles.
    pub end: Timestamp,
    /// Bytes of the packets.
    pub packet_bytes: Bytes,
    /// The block: index entries of 72 bytes, then the packets.
    pub block: BlockPlace,
}

/// A piece of the metadata of a trace in one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataRecord {
    /// Number of the metadata stream.
    pub stream: u64,
    /// Chunk of the metadata.
    pub chunk: Option<ChunkId>,
    /// Counts how often the metadata was written anew in this chunk.
    pub generation: u32,
    /// Offset of the piece in the metadata, in bytes.
    pub offset: Bytes,
    /// The block: the bytes of the piece.
    pub block: BlockPlace,
}

#[cfg(test)]
mod tests;
