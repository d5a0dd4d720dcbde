//! Chunks: the parts of a recording between rotations, clears and snapshots, each in a directory of
//! its own.

use bytes::BufMut;
use wire::{
    ChunkId, DecodeError, EpochSeconds, Field, Flagged, Message, PacketSeqNum, StreamId, Text,
    wire_enum, wire_struct,
};

use crate::Minor;

/// Creates a chunk, which becomes current. (`CREATE_TRACE_CHUNK`,
/// `struct lttcomm_relayd_create_trace_chunk`, 2.11)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTraceChunk {
    /// Id of the chunk: 0 for the first of a recording, then one more for each.
    pub chunk: ChunkId,
    /// Time of its creation.
    pub created: EpochSeconds,
    /// Name of its directory. Only snapshots have one.
    pub name: Option<Text>,
}

wire_struct! {
    CreateTraceChunkHead [20 bytes] {
        chunk: ChunkId,
        created: EpochSeconds,
        /// Length in bytes, including the NUL; 0 for no name.
        name_len: u32,
    }

    /// Closes a chunk. Streams may still write to it; `command` is executed when the last of them
    /// has left it. (`CLOSE_TRACE_CHUNK`, `struct lttcomm_relayd_close_trace_chunk`, 2.11)
    #[derive(Copy)]
    pub CloseTraceChunk [21 bytes] {
        /// Id of the chunk.
        chunk: ChunkId,
        /// Time of its end.
        closed: EpochSeconds,
        /// What to do with the chunk. None: nothing.
        command: Flagged<CloseCommand>,
    }

    /// Checks whether a chunk is still written to. (`TRACE_CHUNK_EXISTS`,
    /// `struct lttcomm_relayd_trace_chunk_exists`, 2.11)
    #[derive(Copy)]
    pub TraceChunkExists [8 bytes] {
        /// Id of the chunk.
        chunk: ChunkId,
    }

    /// The position at which a stream moves to the new chunk.
    /// (`struct lttcomm_relayd_stream_rotation_position`)
    #[derive(Copy)]
    pub RotationPosition [16 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Sequence number, by the tracer's count, of the first packet in the new chunk. Ignored
        /// for metadata, which moves at once.
        at: PacketSeqNum,
    }
}

wire_enum! {
    /// What to do with a closed chunk. (`enum lttng_trace_chunk_command_type`)
    pub CloseCommand {
        /// Move it to the archived chunks.
        MoveToCompleted = 0,
        /// Leave it where it is.
        NoOperation = 1,
        /// Delete it with all its files.
        Delete = 2,
    }
}

/// Longest name of a chunk's directory, in bytes, including the NUL: that of a file name.
const MAX_NAME_BYTES: u32 = 256;

impl Message<Minor> for CreateTraceChunk {
    const MAX_SIZE: usize = CreateTraceChunkHead::SIZE + MAX_NAME_BYTES as usize;

    fn decode(_minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        let head = CreateTraceChunkHead::read(from)?;
        Ok(Self {
            chunk: head.chunk,
            created: head.created,
            name: Text::read_optional(from, head.name_len, "chunk name", MAX_NAME_BYTES)?,
        })
    }

    fn encode(&self, _minor: Minor, to: &mut impl BufMut) {
        CreateTraceChunkHead {
            chunk: self.chunk,
            created: self.created,
            // 0 and no NUL if there is no name: a NUL alone would be an empty one.
            name_len: self.name.as_ref().map_or(0, Text::terminated_len),
        }
        .write(to);
        if let Some(name) = &self.name {
            name.write_terminated(to);
        }
    }
}

/// Moves streams to another chunk, or to none. (`ROTATE_STREAMS`,
/// `struct lttcomm_relayd_rotate_streams`, 2.11)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotateStreams {
    /// Id of the new chunk. None when the session has been stopped.
    pub target: Option<ChunkId>,
    /// The streams, with their positions.
    pub positions: Vec<RotationPosition>,
}

/// Maximum number of streams of one [`RotateStreams`]: more than any host has CPUs times channels.
pub const MAX_ROTATED_STREAMS: usize = 1 << 16;

impl RotateStreams {
    /// Size of the part before the positions and offset of the chunk's id in it, in bytes. The C
    /// struct is not packed, so that they depend on the sender's ABI: packed, 32-bit x86, 64-bit.
    const HEADS: [(usize, usize); 3] = [(13, 5), (16, 8), (20, 12)];
}

impl Message<Minor> for RotateStreams {
    // The longest of the three layouts.
    const MAX_SIZE: usize = 20 + MAX_ROTATED_STREAMS * RotationPosition::SIZE;

    /// Decodes the message in the one of the three layouts whose length matches.
    fn decode(_minor: Minor, from: &[u8]) -> Result<Self, DecodeError> {
        let count = u32::read(&mut { from })? as usize;
        let size = count.saturating_mul(RotationPosition::SIZE);
        // All of the message counts, unlike with other commands: its length alone tells which
        // layout it has.
        let fits = |&&(head, _): &&(usize, usize)| size.checked_add(head) == Some(from.len());
        let layout = Self::HEADS.iter().find(fits);
        let truncated = |head: usize| DecodeError::Truncated {
            what: "RotateStreams",
            need: size.saturating_add(head),
            have: from.len(),
        };
        let &(head, at) = layout.ok_or_else(|| truncated(20))?;
        // The padding between this byte and the id is uninitialized memory of the sender.
        let is_set = *from.get(4).ok_or_else(|| truncated(head))? != 0;
        let chunk = ChunkId::read(&mut from.get(at..).unwrap_or_default())?;
        let mut rest = from.get(head..).unwrap_or_default();
        // `check_header` has bounded the length of the command, and so this memory.
        let mut positions = Vec::with_capacity(rest.len() / RotationPosition::SIZE);
        while !rest.is_empty() {
            positions.push(RotationPosition::read(&mut rest)?);
        }
        Ok(Self {
            target: is_set.then_some(chunk),
            positions,
        })
    }

    /// Encodes the message in the layout of a 64-bit sender: old relays accept no other.
    fn encode(&self, _minor: Minor, to: &mut impl BufMut) {
        let count = u32::try_from(self.positions.len()).expect("a session has few streams");
        to.put_u32(count);
        to.put_u8(u8::from(self.target.is_some()));
        // The padding that the C struct has there.
        to.put_bytes(0, 7);
        to.put_u64(self.target.unwrap_or_default().0);
        for position in &self.positions {
            position.write(to);
        }
    }
}
