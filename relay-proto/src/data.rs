//! The data connection: packets with a header each, without replies.

use wire::{Field, SeqNum, StreamId, wire_struct};

wire_struct! {
    /// The header of every packet. (`struct lttcomm_relayd_data_hdr`)
    #[derive(Copy)]
    pub DataHeader [32 bytes] {
        /// 0; ignored.
        circuit: u64,
        /// Id of the packet's stream.
        stream: StreamId,
        /// Sequence number of the packet in its stream.
        seq: SeqNum,
        /// Bytes of the packet that follow this header.
        data_size: u32,
        /// Zero bytes at the end of the packet. They are not sent; the relay appends them.
        padding_size: u32,
    }
}

impl DataHeader {
    /// Size of the packet in its tracefile, in bytes: data and padding.
    #[must_use]
    pub fn packet_bytes(&self) -> u64 {
        u64::from(self.data_size) + u64::from(self.padding_size)
    }
}

/// A decoded piece of a data connection.
#[derive(Debug, PartialEq, Eq)]
pub enum DataEvent<'a> {
    /// The next packet begins, with this header.
    Begin(DataHeader),
    /// The next bytes of the packet.
    Payload {
        /// At least one byte, unless the packet is empty.
        bytes: &'a [u8],
        /// Whether they are the last bytes of the packet.
        last: bool,
    },
}

/// A packet of which all bytes are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholePacket<'a> {
    /// The header of the packet.
    pub header: DataHeader,
    /// The bytes of the packet, without padding.
    pub payload: &'a [u8],
}

/// Decodes the bytes of a data connection, however they are split. Buffers none of them: packets of
/// any size pass through in pieces.
#[derive(Debug, Default)]
pub struct DataDecoder {
    /// Bytes of the current packet that are still to arrive. None between packets.
    packet: Option<u32>,
}

impl DataDecoder {
    /// Takes the next event off the front of `input`. None if more bytes are needed. Headers are
    /// only taken when they are complete: the rest of `input` must be passed again, with the bytes
    /// that follow.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<DataEvent<'a>> {
        // Only here a header may begin: within a packet any bytes are its own.
        let Some(left) = self.packet else {
            // A header has no invalid values: an error means that it is incomplete.
            let header = DataHeader::read(input).ok()?;
            self.packet = Some(header.data_size);
            return Some(DataEvent::Begin(header));
        };
        // A packet without bytes ends without further input.
        if left > 0 && input.is_empty() {
            return None;
        }
        let (bytes, rest) = input.split_at(input.len().min(left as usize));
        *input = rest;
        let here = u32::try_from(bytes.len()).expect("no more than is left of a packet");
        self.packet = (here < left).then_some(left - here);
        Some(DataEvent::Payload {
            bytes,
            last: here == left,
        })
    }

    /// Takes a packet off the front of `input` if all of it is there. None if it is not, or if
    /// another packet is incomplete: then [`next`](Self::next) takes the pieces.
    pub fn whole_packet<'a>(&self, input: &mut &'a [u8]) -> Option<WholePacket<'a>> {
        if self.in_packet() {
            return None;
        }
        // `input` stays as it is unless all of the packet is there.
        let mut rest = *input;
        let header = DataHeader::read(&mut rest).ok()?;
        let (payload, rest) = rest.split_at_checked(header.data_size as usize)?;
        *input = rest;
        Some(WholePacket { header, payload })
    }

    /// Takes `len` bytes of the current packet that were received and are not passed to the
    /// decoder, at most those that are [left](Self::left). Returns the event of the packet's end,
    /// without bytes, if they are its last.
    pub fn skip(&mut self, len: u32) -> Option<DataEvent<'static>> {
        let left = self.packet?.saturating_sub(len);
        self.packet = (left > 0).then_some(left);
        let end = DataEvent::Payload {
            bytes: &[],
            last: true,
        };
        self.packet.is_none().then_some(end)
    }

    /// Bytes of the current packet that are still to arrive.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.packet.unwrap_or(0)
    }

    /// Whether a packet is incomplete.
    #[must_use]
    pub fn in_packet(&self) -> bool {
        self.packet.is_some()
    }
}
