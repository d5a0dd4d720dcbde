//! `SEND_INDEX`: the index of a packet, or a beacon.

use bytes::BufMut;
use wire::{DecodeError, Field, PacketIndex, PacketIndexV1_0, SeqNum, StreamId, wire_struct};

use crate::Minor;

wire_struct! {
    /// The index of the packet with the same sequence number; with a packet size of 0, a beacon.
    /// (`SEND_INDEX`, `struct lttcomm_relayd_index`, 2.8)
    #[derive(Copy)]
    pub SendIndex [80 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// Sequence number of the packet. Meaningless in a beacon: that of the last packet, or
        /// None.
        seq: Option<SeqNum>,
        /// Times, sizes and counters of the packet.
        packet: PacketIndex,
    }

    /// `struct lttcomm_relayd_index` of 2.4.
    SendIndexV2_4 [64 bytes] {
        stream: StreamId,
        seq: Option<SeqNum>,
        packet: PacketIndexV1_0,
    }
}

impl SendIndex {
    /// Decodes the form of version `minor`.
    ///
    /// # Errors
    /// If there are too few bytes.
    pub fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        if minor.numbers_packets() {
            return Self::read(&mut from);
        }
        let old = SendIndexV2_4::read(&mut from)?;
        Ok(Self {
            stream: old.stream,
            seq: old.seq,
            packet: old.packet.into(),
        })
    }

    /// Encodes the form of version `minor`. Fields that it does not have are left out.
    pub fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        if minor.numbers_packets() {
            return self.write(to);
        }
        SendIndexV2_4 {
            stream: self.stream,
            seq: self.seq,
            packet: self.packet.into(),
        }
        .write(to);
    }
}
