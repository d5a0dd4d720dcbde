//! `GET_PACKET`: bytes of packets.

use wire::{Bytes, StreamId, wire_enum, wire_struct};

wire_struct! {
    /// Requests bytes of a packet. (`struct lttng_viewer_get_packet`)
    #[derive(Copy)]
    pub GetPacket [20 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Offset of the first byte: the offset of an index, or more.
        offset: Bytes,
        /// Number of bytes.
        len: u32,
    }

    /// Answers `GET_PACKET`; `len` bytes follow. (`struct lttng_viewer_trace_packet`)
    #[derive(Copy)]
    pub PacketHead [12 bytes] {
        /// Result of the command.
        status: PacketStatus,
        /// Bytes that follow. 0 unless `status` is `Ok`.
        len: u32,
        /// Flags as in [`NextIndex`](crate::index::NextIndex).
        flags: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_get_packet_return_code`)
    pub PacketStatus {
        /// The bytes follow.
        Ok = 1,
        /// Ask again later. No relay sends it.
        Retry = 2,
        /// The bytes are not available; if a flag is set, not before what it names has been
        /// fetched.
        Failed = 3,
        /// The packet has been overwritten, and is to be skipped (LTTng 2.4 to 2.6.0).
        EndOfFile = 4,
    }
}
