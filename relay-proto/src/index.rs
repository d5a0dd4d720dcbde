//! The index of a packet.

use bytes::BufMut;
use wire::{DecodeError, Field, PacketIndex, PacketIndexV1_0, SeqNum, StreamId, wire_struct};

use crate::Minor;

wire_struct! {
    /// Where the packet of the same number belongs in time; or, with a packet size of 0, a beacon.
    /// (`SEND_INDEX`, `struct lttcomm_relayd_index`, 2.8)
    #[derive(Copy)]
    pub SendIndex [80 bytes] {
        /// The stream.
        stream: StreamId,
        /// The packet. In a beacon without meaning: the last one sent, or none.
        seq: Option<SeqNum>,
        /// What it says of the packet.
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
    /// Reads the form that `minor` calls for.
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

    /// Appends the form that `minor` calls for. What that form has no room for is left out.
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
