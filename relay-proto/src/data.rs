//! The data connection: packets one after the other, each behind a header, never a reply.

use wire::{Field, SeqNum, StreamId, wire_struct};

wire_struct! {
    /// Stands before every packet. (`struct lttcomm_relayd_data_hdr`)
    #[derive(Copy)]
    pub DataHeader [32 bytes] {
        /// 0; not looked at.
        circuit: u64,
        /// The stream that the packet belongs to.
        stream: StreamId,
        /// The packet's place in its stream.
        seq: SeqNum,
        /// Bytes of the packet that follow this header.
        data_size: u32,
        /// Zero bytes that the packet ends in. They are not sent; the relay appends them.
        padding_size: u32,
    }
}

impl DataHeader {
    /// Bytes of the whole packet, as it will lie in its file.
    #[must_use]
    pub fn packet_bytes(&self) -> u64 {
        u64::from(self.data_size) + u64::from(self.padding_size)
    }
}

/// What the next bytes of a data connection are.
#[derive(Debug, PartialEq, Eq)]
pub enum DataEvent<'a> {
    /// A packet begins.
    Begin(DataHeader),
    /// The next bytes of the packet.
    Payload {
        /// At least one, but for a packet that has none.
        bytes: &'a [u8],
        /// Whether they are the last.
        last: bool,
    },
}

/// Takes a data connection's bytes apart, however they were cut on the way. Holds none of them:
/// a packet of any size passes through in pieces.
#[derive(Debug, Default)]
pub struct DataDecoder {
    /// Bytes of the packet that are still to come.
    packet: Option<u32>,
}

impl DataDecoder {
    /// Takes the next event off the front of `input`; `None` if more bytes must come first. A
    /// header is only taken whole: what is left of `input` must be shown again with what follows.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<DataEvent<'a>> {
        let Some(left) = self.packet else {
            // No field of a header can be wrong in itself: if it cannot be read, it is not all
            // there.
            let header = DataHeader::read(input).ok()?;
            self.packet = Some(header.data_size);
            return Some(DataEvent::Begin(header));
        };
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

    /// Bytes that are still to come of the packet that has begun.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.packet.unwrap_or(0)
    }

    /// Whether a packet has begun and not ended.
    #[must_use]
    pub fn in_packet(&self) -> bool {
        self.packet.is_some()
    }
}
