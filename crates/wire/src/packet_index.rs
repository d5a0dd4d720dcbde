use crate::{Bits, ClassId, InstanceId, PacketSeqNum, Timestamp};

wire_struct! {
    /// The index of a packet, as it is stored after the stream and sequence number in a producer's
    /// `SEND_INDEX`, and after the offset in an index file.
    ///
    /// `struct lttcomm_relayd_index` (LTTng 2.8) and `struct ctf_packet_index` 1.1.
    #[derive(Copy, Default)]
    pub PacketIndex [64 bytes] {
        /// The size of the packet, padding included.
        packet_size: Bits,
        /// The part of the packet that holds data.
        content_size: Bits,
        /// Time at which the packet was opened.
        begin: Timestamp,
        /// Time at which the packet was closed. No later event is in it.
        end: Timestamp,
        /// Events lost for want of room since the stream began, not since the last packet.
        events_discarded: u64,
        /// The id of the stream class.
        class: ClassId,
        /// Instance of the stream, if known.
        instance: Option<InstanceId>,
        /// The tracer's own number for the packet, if known.
        packet_seq: Option<PacketSeqNum>,
    }

    /// [`PacketIndex`] as it was before LTTng 2.8 and as index files 1.0 hold it.
    #[derive(Copy, Default)]
    pub PacketIndexV1_0 [48 bytes] {
        /// The size of the packet, padding included.
        packet_size: Bits,
        /// The part of the packet that holds data.
        content_size: Bits,
        /// Time at which the packet was opened.
        begin: Timestamp,
        /// Time at which the packet was closed.
        end: Timestamp,
        /// Events lost since the stream began.
        events_discarded: u64,
        /// The id of the stream class.
        class: ClassId,
    }
}

impl PacketIndex {
    /// Whether this is a beacon instead of a packet's index: a live producer announces that no
    /// event of the stream before `end` follows.
    ///
    /// Only the packet size distinguishes the two: the other fields of a beacon repeat old values
    /// or none.
    #[must_use]
    pub fn is_beacon(&self) -> bool {
        // No packet is empty, so that none has this size.
        self.packet_size == Bits(0)
    }
}

impl From<PacketIndexV1_0> for PacketIndex {
    fn from(old: PacketIndexV1_0) -> Self {
        Self {
            packet_size: old.packet_size,
            content_size: old.content_size,
            begin: old.begin,
            end: old.end,
            events_discarded: old.events_discarded,
            class: old.class,
            instance: None,
            packet_seq: None,
        }
    }
}

impl From<PacketIndex> for PacketIndexV1_0 {
    fn from(index: PacketIndex) -> Self {
        Self {
            packet_size: index.packet_size,
            content_size: index.content_size,
            begin: index.begin,
            end: index.end,
            events_discarded: index.events_discarded,
            class: index.class,
        }
    }
}
