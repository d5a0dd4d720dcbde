//! What must hold of any bytes on a data connection, as far as no file is needed for it. Used by the
//! tests here and by the fuzz target.
#![allow(unreachable_pub, reason = "the fuzz target uses it too")]

use std::collections::BTreeMap;

use relay_proto::{DataDecoder, DataEvent, DataHeader};
use relayd::ingest::reorder::{EarlyPacket, LostPackets, Reorder, ReorderWindow, Turn};
use wire::{Bytes, Field, SeqNum, StreamId};

/// Small, so that it is full soon.
const WINDOW: ReorderWindow = ReorderWindow {
    packets: 4,
    bytes: Bytes(100),
};

/// Takes packets out of the bytes, whole and in pieces of `cut` bytes, and puts those of each stream
/// in order.
pub fn receive(cut: u8, bytes: &[u8]) {
    let whole = packets(std::iter::once(bytes));
    let pieces = packets(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces, "the cuts make a difference");
    let mut streams = BTreeMap::new();
    for (header, payload) in whole {
        // More would only make them meet less often.
        let stream = header.stream.0 % 4;
        let order = streams.entry(stream).or_insert_with(Order::new);
        order.arrive(header.seq, payload);
    }
    streams.into_values().for_each(Order::end);
}

/// The packets that are whole.
fn packets<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(DataHeader, Vec<u8>)> {
    let mut decoder = DataDecoder::default();
    let (mut kept, mut packets) = (Vec::new(), Vec::new());
    let mut under_way: Option<(DataHeader, Vec<u8>)> = None;
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut input = &kept[..];
        while let Some(event) = decoder.next(&mut input) {
            match event {
                DataEvent::Begin(header) => {
                    assert!(under_way.is_none(), "a packet begins in another");
                    under_way = Some((header, Vec::new()));
                }
                DataEvent::Payload { bytes, last } => {
                    let (header, payload) = under_way.as_mut().expect("bytes of a packet");
                    payload.extend_from_slice(bytes);
                    let is_whole = payload.len() as u64 == u64::from(header.data_size);
                    assert_eq!(is_whole, last);
                    assert!(!bytes.is_empty() || header.data_size == 0);
                    if last {
                        packets.extend(under_way.take());
                    }
                }
            }
            assert_eq!(decoder.in_packet(), under_way.is_some());
        }
        assert!(
            input.len() < DataHeader::SIZE,
            "what could be taken is kept"
        );
        kept = input.to_vec();
    }
    packets
}

/// One stream, and what has come of the numbers before `at`.
struct Order {
    reorder: Reorder,
    at: Option<u64>,
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
        // It says "none" and is refused before.
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
        assert!(!self.reorder.is_full(0), "more waits than may");
        assert!(self.waiting <= WINDOW.bytes.0);
    }

    /// Nothing more comes.
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
