//! Bytes to be written to a relay, for both connections. Packets are not copied: they are written with
//! vectored writes.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use relay_proto::DataHeader;
use wire::Field;

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
    /// Headers and packets in turn; the first may have been written in part.
    pieces: VecDeque<Bytes>,
    /// Spare memory for headers.
    headers: BytesMut,
    /// Bytes in `pieces`.
    bytes: usize,
}

impl PacketQueue {
    pub(super) fn push(&mut self, header: &DataHeader, packet: &Bytes) {
        header.write(&mut self.headers);
        self.bytes += DataHeader::SIZE + packet.len();
        self.pieces.push_back(self.headers.split().freeze());
        self.pieces.push_back(packet.clone());
    }

    /// Returns the number of bytes that are to be written.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Fills `slices` from the front of the queue, for one vectored write. Returns how many are filled.
    pub(super) fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    /// Removes the bytes that have been written from the front.
    pub(super) fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() > written {
                piece.advance(written);
                return;
            }
            written -= piece.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{SeqNum, StreamId};

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
            pieces.push(&header, &packet);
            header.write(&mut want);
            want.extend_from_slice(&packet);
        }
        for step in [1, 31, 33, 7] {
            let mut left = want.clone();
            let mut pieces = PacketQueue {
                pieces: pieces.pieces.clone(),
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
