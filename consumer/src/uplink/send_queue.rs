//! Bytes to be written to a relay, for both connections. Packets are not copied: they are written
//! with vectored writes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use relay_proto::DataHeader;
use wire::{Field, SeqNum};

use crate::queue::StreamKey;

/// The bytes that are to be written to a relay.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// Commands and metadata, for the control connection.
    pub(super) control: BytesMut,
    /// Packets, for the data connection.
    pub(super) data: PacketQueue,
}

/// Data headers and packets, in the order in which they are written.
#[derive(Debug, Default)]
pub(super) struct PacketQueue {
    /// The first may have been written in part.
    packets: VecDeque<QueuedPacket>,
    /// Spare memory for headers.
    headers: BytesMut,
    /// Bytes of headers and packets that are to be written.
    bytes: usize,
}

/// A packet that is to be written.
#[derive(Debug, Clone)]
pub(super) struct QueuedPacket {
    pub(super) header: DataHeader,
    /// The encoded header, or what is left of it.
    pub(super) head: Bytes,
    /// The packet, or what is left of it.
    pub(super) bytes: Bytes,
    pub(super) origin: PacketOrigin,
}

/// Where a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketOrigin {
    pub(super) stream: StreamKey,
    /// The packet's number in its stream, from 0.
    pub(super) seq: u64,
    /// The relay's number of the packet (`net_seq_num`).
    pub(super) relay_seq: SeqNum,
    /// When the packet was queued for the relay.
    pub(super) cut_at: Instant,
}

impl PacketQueue {
    pub(super) fn push(&mut self, header: &DataHeader, packet: &Bytes, origin: PacketOrigin) {
        header.write(&mut self.headers);
        self.bytes += DataHeader::SIZE + packet.len();
        self.packets.push_back(QueuedPacket {
            header: *header,
            // Headers share blocks of memory, so that not each of them needs one.
            head: self.headers.split().freeze(),
            bytes: packet.clone(),
            origin,
        });
    }

    /// Returns the number of bytes that are to be written.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Fills `slices` from the front of the queue, for one vectored write. Returns how many are
    /// filled.
    pub(super) fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        let pieces = self
            .packets
            .iter()
            .flat_map(|packet| [&packet.head, &packet.bytes]);
        let pieces = pieces.filter(|piece| !piece.is_empty());
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    /// Removes the bytes that have been written from the front.
    pub(super) fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(packet) = self.packets.front_mut() {
            for piece in [&mut packet.head, &mut packet.bytes] {
                let here = written.min(piece.len());
                piece.advance(here);
                written -= here;
            }
            // Every packet has at least one byte, and its header is written before.
            if !packet.bytes.is_empty() {
                return;
            }
            self.packets.pop_front();
        }
    }

    /// Returns the first packet. Absent if the queue is empty.
    pub(super) fn front(&self) -> Option<&QueuedPacket> {
        self.packets.front()
    }

    /// Takes the first packet, of which nothing has been written.
    pub(super) fn pop_front(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.head.len() + packet.bytes.len();
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use wire::StreamId;

    use super::*;

    #[test]
    fn partial_writes_keep_packets_after_their_headers() {
        let mut pieces = PacketQueue::default();
        let mut want = Vec::new();
        for (number, size) in [(0, 5u32), (1, 1), (2, 40)] {
            let header = DataHeader {
                circuit: 0,
                stream: StreamId(7),
                seq: SeqNum(number),
                data_size: size,
                padding_size: 3,
            };
            let packet = Bytes::from(vec![9; size as usize]);
            let origin = PacketOrigin {
                stream: StreamKey(0),
                seq: number,
                relay_seq: SeqNum(number),
                cut_at: Instant::now(),
            };
            pieces.push(&header, &packet, origin);
            header.write(&mut want);
            want.extend_from_slice(&packet);
        }
        for step in [1, 31, 33, 7] {
            let mut left = want.clone();
            let mut pieces = PacketQueue {
                packets: pieces.packets.clone(),
                headers: BytesMut::new(),
                bytes: pieces.bytes,
            };
            while !pieces.is_empty() {
                let mut slices = [IoSlice::new(&[]); 3];
                let filled = pieces.fill_slices(&mut slices);
                let shown: Vec<&[u8]> = slices[..filled].iter().map(|slice| &**slice).collect();
                let shown = shown.concat();
                let now = step.min(shown.len());
                assert_eq!(shown[..now], left[..now]);
                left.drain(..now);
                pieces.advance(now);
            }
            assert!(left.is_empty());
        }
    }
}
