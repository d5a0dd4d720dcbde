//! Chunks: the pieces that rotating, clearing and snapshots cut a recording into, each a directory
//! of its own.

use bytes::BufMut;
use wire::{
    ChunkId, DecodeError, EpochSeconds, Field, Flagged, PacketSeqNum, StreamId, Text, wire_enum,
    wire_struct,
};

/// A new chunk is current from now on. (`CREATE_TRACE_CHUNK`,
/// `struct lttcomm_relayd_create_trace_chunk`, 2.11)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTraceChunk {
    /// Its number: 0, then one more for each.
    pub chunk: ChunkId,
    /// When it began.
    pub created: EpochSeconds,
    /// Name of its directory, given for snapshots only.
    pub name: Option<Text>,
}

wire_struct! {
    CreateTraceChunkHead [20 bytes] {
        chunk: ChunkId,
        created: EpochSeconds,
        /// With NUL; 0 for no name.
        name_len: u32,
    }

    /// A chunk ends. Streams may still be writing to it; what is to become of it happens when the
    /// last has left. (`CLOSE_TRACE_CHUNK`, `struct lttcomm_relayd_close_trace_chunk`, 2.11)
    #[derive(Copy)]
    pub CloseTraceChunk [21 bytes] {
        /// The chunk.
        chunk: ChunkId,
        /// When it ended.
        closed: EpochSeconds,
        /// What becomes of it. None: it stays where it is.
        command: Flagged<CloseCommand>,
    }

    /// Is anything still written to this chunk? (`TRACE_CHUNK_EXISTS`,
    /// `struct lttcomm_relayd_trace_chunk_exists`, 2.11)
    #[derive(Copy)]
    pub TraceChunkExists [8 bytes] {
        /// The chunk.
        chunk: ChunkId,
    }

    /// Where a stream goes over to the new chunk.
    /// (`struct lttcomm_relayd_stream_rotation_position`)
    #[derive(Copy)]
    pub RotationPosition [16 bytes] {
        /// The stream.
        stream: StreamId,
        /// First packet, by the tracer's count, that belongs to the new chunk. Without meaning for
        /// metadata, which goes over at once.
        at: PacketSeqNum,
    }
}

wire_enum! {
    /// What becomes of a closed chunk. (`enum lttng_trace_chunk_command_type`)
    pub CloseCommand {
        /// It joins the archived chunks.
        MoveToCompleted = 0,
        /// It stays where it is.
        NoOperation = 1,
        /// It and all in it is deleted.
        Delete = 2,
    }
}

/// Longest name of a chunk's directory with its NUL: that of a file name.
const NAME_LIMIT: u32 = 256;

impl CreateTraceChunk {
    /// The most bytes that the message can need.
    pub(crate) const MOST: usize = CreateTraceChunkHead::SIZE + NAME_LIMIT as usize;

    /// Reads the message.
    ///
    /// # Errors
    /// If the bytes are not one.
    pub fn decode(mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        let head = CreateTraceChunkHead::read(from)?;
        let name = match head.name_len {
            0 => None,
            len => Some(Text::read_terminated(
                from,
                len,
                "chunk name",
                1..=NAME_LIMIT,
            )?),
        };
        Ok(Self {
            chunk: head.chunk,
            created: head.created,
            name,
        })
    }

    /// Appends the message.
    pub fn encode(&self, to: &mut impl BufMut) {
        CreateTraceChunkHead {
            chunk: self.chunk,
            created: self.created,
            name_len: self.name.as_ref().map_or(0, Text::terminated_len),
        }
        .write(to);
        if let Some(name) = &self.name {
            name.write_terminated(to);
        }
    }
}

/// These streams go over to another chunk, or to none. (`ROTATE_STREAMS`,
/// `struct lttcomm_relayd_rotate_streams`, 2.11)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotateStreams {
    /// The chunk they go over to. None: the session has been stopped.
    pub target: Option<ChunkId>,
    /// Each stream and where it goes over.
    pub positions: Vec<RotationPosition>,
}

impl RotateStreams {
    /// Lengths of the part before the positions: it was not packed, so that it depends on the
    /// sender's ABI. Packed, 32-bit x86, 64-bit; behind them, where the chunk's number lies.
    const HEADS: [(usize, usize); 3] = [(13, 5), (16, 8), (20, 12)];

    /// The most bytes that a message about `streams` streams can need.
    pub(crate) const fn most(streams: usize) -> usize {
        20 + streams * RotationPosition::SIZE
    }

    /// Reads the message: of the three layouts, the one whose length fits.
    ///
    /// # Errors
    /// If none fits.
    pub fn decode(from: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "RotateStreams";
        let count = u32::read(&mut { from })? as usize;
        let fits = |&&(head, _): &&(usize, usize)| {
            count
                .checked_mul(RotationPosition::SIZE)
                .and_then(|size| size.checked_add(head))
                == Some(from.len())
        };
        let Some(&(head, at)) = Self::HEADS.iter().find(fits) else {
            let need = 20usize.saturating_add(count.saturating_mul(RotationPosition::SIZE));
            return Err(DecodeError::Truncated {
                what: WHAT,
                need,
                have: from.len(),
            });
        };
        let cut = DecodeError::Truncated {
            what: WHAT,
            need: head,
            have: from.len(),
        };
        // Bytes between this one and the number are whatever the sender's memory held.
        let is_set = *from.get(4).ok_or(cut.clone())? != 0;
        let chunk = ChunkId::read(&mut from.get(at..).ok_or(cut.clone())?)?;
        let mut rest = from.get(head..).ok_or(cut)?;
        let mut positions = Vec::with_capacity(rest.len() / RotationPosition::SIZE);
        while !rest.is_empty() {
            positions.push(RotationPosition::read(&mut rest)?);
        }
        Ok(Self {
            target: is_set.then_some(chunk),
            positions,
        })
    }

    /// Appends the message, in the layout of a 64-bit sender: old relays know no other.
    pub fn encode(&self, to: &mut impl BufMut) {
        let count = u32::try_from(self.positions.len()).expect("a session has few streams");
        to.put_u32(count);
        to.put_u8(u8::from(self.target.is_some()));
        to.put_bytes(0, 7);
        to.put_u64(self.target.unwrap_or_default().0);
        for position in &self.positions {
            position.write(to);
        }
    }
}
