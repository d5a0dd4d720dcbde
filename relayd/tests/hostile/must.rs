//! Invariants for any bytes on a data connection that need no file. Used by the tests here and by
//! the fuzz target.
#![allow(unreachable_pub, reason = "the fuzz target uses it too")]

use std::collections::BTreeMap;

use relay_proto::{DataDecoder, DataEvent, DataHeader};
use relayd::ingest::reorder::{EarlyPacket, LostPackets, Reorder, ReorderWindow, Turn};
use wire::{Bytes, Field, SeqNum, StreamId};

/// A small window, which fills after few packets.
const WINDOW: ReorderWindow = ReorderWindow {
    packets: 4,
    bytes: Bytes(100),
};

/// Decodes these bytes, at once and in pieces of `cut` bytes, and reorders the packets of each
/// stream. Checks the invariants of both steps.
pub fn receive(cut: u8, bytes: &[u8]) {
    let whole = packets(std::iter::once(bytes));
    let pieces = packets(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces, "packets depend on the split");
    let mut streams = BTreeMap::new();
    for (header, payload) in whole {
        // Few streams, so that many packets are of the same one.
        let stream = header.stream.0 % 4;
        let order = streams.entry(stream).or_insert_with(Order::new);
        order.arrive(header.seq, payload);
    }
    streams.into_values().for_each(Order::end);
}

/// Decodes the complete packets.
fn packets<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(DataHeader, Vec<u8>)> {
    let mut decoder = DataDecoder::default();
    let (mut kept, mut packets) = (Vec::new(), Vec::new());
    let mut incomplete: Option<(DataHeader, Vec<u8>)> = None;
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut input = &kept[..];
        while let Some(event) = decoder.next(&mut input) {
            match event {
                DataEvent::Begin(header) => {
                    assert!(incomplete.is_none(), "a packet begins in another");
                    incomplete = Some((header, Vec::new()));
                }
                DataEvent::Payload { bytes, last } => {
                    let (header, payload) = incomplete.as_mut().expect("bytes of a packet");
                    payload.extend_from_slice(bytes);
                    let is_whole = payload.len() as u64 == u64::from(header.data_size);
                    assert_eq!(is_whole, last);
                    assert!(!bytes.is_empty() || header.data_size == 0);
                    if last {
                        packets.extend(incomplete.take());
                    }
                }
            }
            assert_eq!(decoder.in_packet(), incomplete.is_some());
        }
        assert!(
            input.len() < DataHeader::SIZE,
            "a complete event was not decoded"
        );
        kept = input.to_vec();
    }
    packets
}

/// Checks the order of one stream.
struct Order {
    reorder: Reorder,
    /// Sequence number of the next packet that passes or is lost. None before the first packet.
    at: Option<u64>,
    /// Bytes of the early packets that are buffered.
    waiting: u64,
}

impl Order {
    fn new() -> Self {
        Self {
            reorder: Reorder::new(WINDOW),
            at: None,
            waiting: 0,
        }
    }

    fn arrive(&mut self, seq: SeqNum, payload: Vec<u8>) {
        // On the wire, this number stands for "none": the relay rejects it before packets are
        // reordered.
        if seq.0 == u64::MAX {
            return;
        }
        match self.reorder.turn(seq) {
            Turn::Over => return,
            Turn::Now => self.pass(seq),
            Turn::Early => {
                self.waiting += payload.len() as u64;
                let padding = 0;
                self.reorder.keep_packet(EarlyPacket {
                    seq,
                    payload: payload.into(),
                    padding,
                });
            }
        }
        self.take_waiting();
        while self.reorder.is_full(0) {
            let Some(lost) = self.reorder.give_up_missing(None) else {
                break;
            };
            self.lose(lost);
        }
        assert!(!self.reorder.is_full(0), "the window is exceeded");
        assert!(self.waiting <= WINDOW.bytes.0);
    }

    /// Ends the stream: no more packets arrive.
    fn end(mut self) {
        while let Some(lost) = self.reorder.give_up_missing(None) {
            self.lose(lost);
        }
        assert!(self.reorder.is_empty());
        assert_eq!(self.waiting, 0);
    }

    fn pass(&mut self, seq: SeqNum) {
        // Every number from the first on passes or is lost, in order.
        assert!(self.at.is_none_or(|at| at == seq.0));
        self.at = Some(seq.0 + 1);
        self.reorder.advance_past(seq);
    }

    fn lose(&mut self, lost: LostPackets) {
        assert_eq!(self.at, Some(lost.first.0));
        assert!(lost.first <= lost.last);
        self.at = Some(lost.last.0 + 1);
        self.take_waiting();
    }

    fn take_waiting(&mut self) {
        while let Some(early) = self.reorder.take_ready_packet() {
            self.waiting -= early.payload.len() as u64;
            self.pass(early.seq);
        }
    }
}

/// Appends a packet with its header.
pub fn put(stream: u8, seq: u64, payload: &[u8], to: &mut Vec<u8>) {
    DataHeader {
        circuit: 0,
        stream: StreamId(u64::from(stream)),
        seq: SeqNum(seq),
        data_size: u32::try_from(payload.len()).expect("a short packet"),
        padding_size: 0,
    }
    .write(to);
    to.extend_from_slice(payload);
}
