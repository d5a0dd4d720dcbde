//! Where a stream's next packet lies, or that there is none.

use wire::{Bits, Bytes, ClassId, PacketIndexV1_0, Timestamp, wire_enum, wire_struct};

wire_struct! {
    /// Answers `GET_NEXT_INDEX`. (`struct lttng_viewer_index`)
    #[derive(Copy)]
    pub NextIndex [64 bytes] {
        /// Where the packet begins. In its tracefile, says LTTng; ours counts from the first byte of
        /// the stream, so that it grows from packet to packet. Viewers hand it back as it is.
        offset: Bytes,
        /// What the index says of it. In [`IndexStatus::Inactive`], only end and class count.
        packet: PacketIndexV1_0,
        /// Whether there is one.
        status: IndexStatus,
        /// [`NEW_METADATA`] and [`NEW_STREAMS`].
        flags: u32,
    }
}

wire_enum! {
    /// (`enum lttng_viewer_next_index_return_code`)
    pub IndexStatus {
        /// Here it is.
        Ready = 1,
        /// None now. Ask again.
        Retry = 2,
        /// The viewer has had them all. Never ask again.
        HungUp = 3,
        /// There is no such stream.
        Failed = 4,
        /// None now, and no event before the given end will come.
        Inactive = 5,
        /// Reserved.
        EndOfFile = 6,
    }
}

/// Flag: metadata is waiting that must be fetched before the trace is decoded any further.
pub const NEW_METADATA: u32 = 1;

/// Flag: streams are waiting that this viewer has not been told of.
pub const NEW_STREAMS: u32 = 2;

impl NextIndex {
    /// A reply that says no more than its status.
    #[must_use]
    pub fn bare(status: IndexStatus, flags: u32) -> Self {
        Self {
            offset: Bytes(0),
            packet: PacketIndexV1_0 {
                packet_size: Bits(0),
                content_size: Bits(0),
                begin: Timestamp(0),
                end: Timestamp(0),
                events_discarded: 0,
                class: ClassId(0),
            },
            status,
            flags,
        }
    }

    /// Nothing of this stream will come from before `until`.
    #[must_use]
    pub fn inactive(until: Timestamp, class: ClassId, flags: u32) -> Self {
        let mut index = Self::bare(IndexStatus::Inactive, flags);
        index.packet.end = until;
        index.packet.class = class;
        index
    }
}
