//! Adding and closing streams, and checking whether all sent packets have arrived.

use bytes::BufMut;
use wire::{
    Bytes, ChunkId, DecodeError, Field, FixedText, Message, SeqNum, SessionId, StreamId, Text,
    wire_struct,
};

use crate::Minor;

/// Channel name of metadata streams. Nothing else identifies them.
pub const METADATA_CHANNEL: &str = "metadata";

/// Adds a stream to the session. (`ADD_STREAM`)
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddStream {
    /// Name of the stream's file: channel and CPU, or [`METADATA_CHANNEL`].
    pub channel: Text,
    /// Directory of the file, which all streams of a trace share. Relative to the chunk since 2.11;
    /// before, `/host/session/...` relative to the relay's output.
    pub path: Text,
    /// Maximum size of a tracefile. 0: unlimited.
    pub tracefile_size: Bytes,
    /// Maximum number of tracefiles, after which the oldest is replaced. 0: unlimited.
    pub tracefile_count: u64,
    /// Id of the chunk that is current for the producer. None before 2.11.
    pub chunk: Option<ChunkId>,
}

/// Longest channel name and path, in bytes, including the NUL.
const CHANNEL_LIMIT: u32 = 264;
const PATH_LIMIT: u32 = 255;

wire_struct! {
    /// `struct lttcomm_relayd_add_stream`.
    AddStreamV2_1 [4360 bytes] {
        channel: FixedText<264>,
        path: FixedText<4096>,
    }

    /// The fields that `struct lttcomm_relayd_add_stream_2_2` adds at its end.
    #[derive(Default)]
    TracefileLimits [16 bytes] {
        size: Bytes,
        count: u64,
    }

    /// The part of `struct lttcomm_relayd_add_stream_2_11` before the names.
    AddStreamV2_11 [32 bytes] {
        /// Lengths in bytes, including the NUL.
        channel_len: u32,
        path_len: u32,
        tracefile_size: Bytes,
        tracefile_count: u64,
        chunk: ChunkId,
    }
}

impl AddStream {
    /// Whether the stream carries metadata.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.channel.as_bytes() == METADATA_CHANNEL.as_bytes()
    }
}

impl Message<Minor> for AddStream {
    const MAX_SIZE: usize = AddStreamV2_1::SIZE + TracefileLimits::SIZE;

    fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        if minor.has_chunks() {
            let head = AddStreamV2_11::read(from)?;
            return Ok(Self {
                // Lengths count the NUL: a file has a name of one byte at least.
                channel: Text::read_terminated(
                    from,
                    head.channel_len,
                    "channel name",
                    2..=CHANNEL_LIMIT,
                )?,
                path: Text::read_terminated(from, head.path_len, "stream path", 2..=PATH_LIMIT)?,
                tracefile_size: head.tracefile_size,
                tracefile_count: head.tracefile_count,
                chunk: Some(head.chunk),
            });
        }
        let names = AddStreamV2_1::read(from)?;
        let limits = if minor.limits_tracefiles() {
            TracefileLimits::read(from)?
        } else {
            TracefileLimits::default()
        };
        Ok(Self {
            channel: names.channel.terminated("channel name")?,
            path: names.path.terminated("stream path")?,
            tracefile_size: limits.size,
            tracefile_count: limits.count,
            chunk: None,
        })
    }

    fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        if minor.has_chunks() {
            AddStreamV2_11 {
                channel_len: self.channel.terminated_len(),
                path_len: self.path.terminated_len(),
                tracefile_size: self.tracefile_size,
                tracefile_count: self.tracefile_count,
                chunk: self.chunk.unwrap_or_default(),
            }
            .write(to);
            self.channel.write_terminated(to);
            self.path.write_terminated(to);
            return;
        }
        AddStreamV2_1 {
            channel: FixedText(self.channel.clone()),
            path: FixedText(self.path.clone()),
        }
        .write(to);
        if minor.limits_tracefiles() {
            TracefileLimits {
                size: self.tracefile_size,
                count: self.tracefile_count,
            }
            .write(to);
        }
    }
}

wire_struct! {
    /// Closes a stream. (`CLOSE_STREAM`, `struct lttcomm_relayd_close_stream`)
    #[derive(Copy)]
    pub CloseStream [16 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Sequence number of the last packet sent. None if there was none, and for metadata.
        last: Option<SeqNum>,
    }

    /// Checks whether all packets up to this one have arrived. (`DATA_PENDING`,
    /// `struct lttcomm_relayd_data_pending`)
    #[derive(Copy)]
    pub DataPending [16 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Sequence number of the last packet sent. None if there was none.
        last: Option<SeqNum>,
    }

    /// Begins a round of data pending checks. (`BEGIN_DATA_PENDING`,
    /// `struct lttcomm_relayd_begin_data_pending`)
    #[derive(Copy)]
    pub BeginDataPending [8 bytes] {
        /// Id of the session, assigned by the relay.
        session: SessionId,
    }

    /// Ends the round: checks whether any stream was not checked, or has missing packets.
    /// (`END_DATA_PENDING`, `struct lttcomm_relayd_end_data_pending`)
    #[derive(Copy)]
    pub EndDataPending [8 bytes] {
        /// Id of the session, assigned by the relay.
        session: SessionId,
    }

    /// Checks, in the round, whether the metadata of a stream has arrived. It always has: all
    /// commands before this one are handled when it is answered. (`QUIESCENT_CONTROL`,
    /// `struct lttcomm_relayd_quiescent_control`)
    #[derive(Copy)]
    pub QuiescentControl [8 bytes] {
        /// Id of the metadata stream.
        stream: StreamId,
    }
}
