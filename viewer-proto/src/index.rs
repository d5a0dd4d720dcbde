//! `GET_NEXT_INDEX`: where a stream's next packet is, or that there is none.

use wire::{Bytes, ClassId, PacketIndexV1_0, Timestamp, wire_enum, wire_struct};

wire_struct! {
    /// Answers `GET_NEXT_INDEX`. (`struct lttng_viewer_index`)
    #[derive(Copy)]
    pub NextIndex [64 bytes] {
        /// Offset of the packet in bytes. LTTng counts from the beginning of the tracefile,
        /// `relayd` from the beginning of the stream, so that it increases from packet to packet.
        /// Viewers send it back unchanged.
        offset: Bytes,
        /// The index of the packet. With [`IndexStatus::Inactive`], only `end` and `class` are set.
        packet: PacketIndexV1_0,
        /// Whether there is a packet.
        status: IndexStatus,
        /// Bits [`NEW_METADATA`] and [`NEW_STREAMS`].
        flags: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_next_index_return_code`)
    pub IndexStatus {
        /// The index of the next packet.
        Ready = 1,
        /// There is no packet now. Ask again later.
        Retry = 2,
        /// The stream is over, and the viewer has all its packets.
        HungUp = 3,
        /// There is no such stream.
        Failed = 4,
        /// There is no packet now, and no event before `end` will follow.
        Inactive = 5,
        /// Reserved.
        EndOfFile = 6,
    }
}

/// Flag: the trace has new metadata, which must be fetched before further packets are decoded.
pub const NEW_METADATA: u32 = 1;

/// Flag: the sessions that the viewer is attached to have new streams.
pub const NEW_STREAMS: u32 = 2;

impl NextIndex {
    /// A reply without a packet.
    #[must_use]
    pub fn without_packet(status: IndexStatus, flags: u32) -> Self {
        Self {
            offset: Bytes(0),
            packet: PacketIndexV1_0::default(),
            status,
            flags,
        }
    }

    /// A reply that no event of the stream before `until` will follow, in cycles.
    #[must_use]
    pub fn inactive(until: Timestamp, class: ClassId, flags: u32) -> Self {
        let mut index = Self::without_packet(IndexStatus::Inactive, flags);
        index.packet.end = until;
        index.packet.class = class;
        index
    }
}
