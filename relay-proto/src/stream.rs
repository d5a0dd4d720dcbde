//! Adding streams, closing them, and asking whether everything sent has arrived.

use bytes::BufMut;
use wire::wire_struct;
use wire::{Bytes, ChunkId, DecodeError, Field, FixedText, SeqNum, SessionId, StreamId, Text};

use crate::Minor;

/// Channel name of the stream that carries a trace's metadata. Nothing else marks it.
pub const METADATA_CHANNEL: &str = "metadata";

/// Adds a stream to the session. (`ADD_STREAM`)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddStream {
    /// Name of the stream's file: channel and CPU, or [`METADATA_CHANNEL`].
    pub channel: Text,
    /// Directory of the file. Streams with the same one make up one trace. Below the chunk since
    /// 2.11; before, `/host/session/...` below the relay's output.
    pub path: Text,
    /// Size at which the next tracefile begins. 0: never.
    pub tracefile_size: Bytes,
    /// Tracefiles kept, after which the oldest is replaced. 0: all.
    pub tracefile_count: u64,
    /// The chunk that the producer takes to be current. Since 2.11.
    pub chunk: Option<ChunkId>,
}

/// Longest channel name and path with their NUL.
const CHANNEL_LIMIT: u32 = 264;
const PATH_LIMIT: u32 = 255;

wire_struct! {
    /// `struct lttcomm_relayd_add_stream`.
    AddStreamV2_1 [4360 bytes] {
        channel: FixedText<264>,
        path: FixedText<4096>,
    }

    /// What `struct lttcomm_relayd_add_stream_2_2` adds at its end.
    TracefileLimits [16 bytes] {
        size: Bytes,
        count: u64,
    }

    /// The part of `struct lttcomm_relayd_add_stream_2_11` before the names.
    AddStreamV2_11 [32 bytes] {
        /// Lengths with NUL.
        channel_len: u32,
        path_len: u32,
        tracefile_size: Bytes,
        tracefile_count: u64,
        chunk: ChunkId,
    }
}

impl AddStream {
    /// The most bytes that the message can need.
    pub(crate) const MOST: usize = AddStreamV2_1::SIZE + TracefileLimits::SIZE;

    /// Whether the stream carries metadata.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        self.channel.as_bytes() == METADATA_CHANNEL.as_bytes()
    }

    /// Reads the form that `minor` calls for.
    ///
    /// # Errors
    /// If the bytes are not that form.
    pub fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let from = &mut from;
        if minor.has_chunks() {
            let head = AddStreamV2_11::read(from)?;
            return Ok(Self {
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
            TracefileLimits {
                size: Bytes(0),
                count: 0,
            }
        };
        Ok(Self {
            channel: names.channel.terminated("channel name")?,
            path: names.path.terminated("stream path")?,
            tracefile_size: limits.size,
            tracefile_count: limits.count,
            chunk: None,
        })
    }

    /// Appends the form that `minor` calls for. What that form has no room for is left out.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
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
    /// No more of this stream is to come. (`CLOSE_STREAM`, `struct lttcomm_relayd_close_stream`)
    #[derive(Copy)]
    pub CloseStream [16 bytes] {
        /// The stream.
        stream: StreamId,
        /// The last packet sent, if any was. None for metadata.
        last: Option<SeqNum>,
    }

    /// Has everything up to this packet arrived? (`DATA_PENDING`,
    /// `struct lttcomm_relayd_data_pending`)
    #[derive(Copy)]
    pub DataPending [16 bytes] {
        /// The stream.
        stream: StreamId,
        /// The last packet sent, if any was.
        last: Option<SeqNum>,
    }

    /// Opens a round of questions about data under way. (`BEGIN_DATA_PENDING`,
    /// `struct lttcomm_relayd_begin_data_pending`)
    #[derive(Copy)]
    pub BeginDataPending [8 bytes] {
        /// The relay's number for the session.
        session: SessionId,
    }

    /// Closes the round: was any stream left out or found wanting? (`END_DATA_PENDING`,
    /// `struct lttcomm_relayd_end_data_pending`)
    #[derive(Copy)]
    pub EndDataPending [8 bytes] {
        /// The relay's number for the session.
        session: SessionId,
    }

    /// Asks, in the round, whether a metadata stream has come to rest. It has: all that was sent
    /// before is handled when this is answered. (`QUIESCENT_CONTROL`,
    /// `struct lttcomm_relayd_quiescent_control`)
    #[derive(Copy)]
    pub QuiescentControl [8 bytes] {
        /// The metadata stream.
        stream: StreamId,
    }
}
