//! `SEND_INDEX`: the index of a packet, or a beacon.

use bytes::BufMut;
use wire::{
    DecodeError, Field, Message, PacketIndex, PacketIndexV1_0, SeqNum, StreamId, wire_struct,
};

use crate::Minor;

/// The index of the packet with the same sequence number; with a packet size of 0, a beacon.
/// (`SEND_INDEX`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendIndex {
    /// Id of the stream.
    pub stream: StreamId,
    /// Sequence number of the packet. Meaningless in a beacon: that of the last packet, or None.
    pub seq: Option<SeqNum>,
    /// Times, sizes and counters of the packet. Before 2.8 it has neither instance nor number.
    pub packet: PacketIndex,
}

wire_struct! {
    /// `struct lttcomm_relayd_index` of 2.8.
    SendIndexV2_8 [80 bytes] {
        stream: StreamId,
        seq: Option<SeqNum>,
        packet: PacketIndex,
    }

    /// `struct lttcomm_relayd_index` of 2.4.
    SendIndexV2_4 [64 bytes] {
        stream: StreamId,
        seq: Option<SeqNum>,
        packet: PacketIndexV1_0,
    }
}

impl Message<Minor> for SendIndex {
    const MAX_SIZE: usize = SendIndexV2_8::SIZE;

    fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        // Two tables, because the C struct grew at its end: its form follows from the version.
        if minor.numbers_packets() {
            let new = SendIndexV2_8::read(&mut from)?;
            return Ok(Self {
                stream: new.stream,
                seq: new.seq,
                packet: new.packet,
            });
        }
        let old = SendIndexV2_4::read(&mut from)?;
        Ok(Self {
            stream: old.stream,
            seq: old.seq,
            packet: old.packet.into(),
        })
    }

    fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        if minor.numbers_packets() {
            return SendIndexV2_8 {
                stream: self.stream,
                seq: self.seq,
                packet: self.packet,
            }
            .write(to);
        }
        SendIndexV2_4 {
            stream: self.stream,
            seq: self.seq,
            packet: self.packet.into(),
        }
        .write(to);
    }
}
