//! Bytes of packets.

use wire::{Bytes, StreamId, wire_enum, wire_struct};

wire_struct! {
    /// Asks for bytes of a packet. (`struct lttng_viewer_get_packet`)
    #[derive(Copy)]
    pub GetPacket [20 bytes] {
        /// The stream.
        stream: StreamId,
        /// From where: the offset of an index, or more.
        offset: Bytes,
        /// How many.
        len: u32,
    }

    /// Answers `GET_PACKET`; `len` bytes follow. (`struct lttng_viewer_trace_packet`)
    #[derive(Copy)]
    pub PacketHead [12 bytes] {
        /// How it ended.
        status: PacketStatus,
        /// Bytes that follow. 0 unless it was done.
        len: u32,
        /// As in [`NextIndex`](crate::index::NextIndex).
        flags: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_get_packet_return_code`)
    pub PacketStatus {
        /// Here they are.
        Ok = 1,
        /// Not now. Never sent.
        Retry = 2,
        /// They cannot be had; with a flag, not before what the flag says is fetched.
        Failed = 3,
        /// The packet has been overwritten (LTTng 2.4 to 2.6.0): skip it.
        EndOfFile = 4,
    }
}
