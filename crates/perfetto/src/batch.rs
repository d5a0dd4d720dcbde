//! Packets that are put in order of time before they are written.

use std::cmp::Reverse;
use std::ops::Range;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};

use crate::message::TracePacket;

/// Number of bytes of a batch from which it is written.
const MAX_BYTES: usize = 4 << 20;
/// Number of packets of a batch from which it is written.
const MAX_PACKETS: usize = 1 << 16;

/// The place of a packet among those of the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A slice ends that began earlier.
    End,
    /// A slice begins that ends later: the longest first.
    Begin(Reverse<i64>),
    /// A point in time, or a slice without a duration.
    Instant,
}

/// The packets of one batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    packets: Vec<(i64, Rank, usize, Range<usize>)>,
    number: u64,
}

impl Batch {
    /// The number of the batch, from 0.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a packet, which is written in order of time and rank.
    pub(crate) fn add(&mut self, time: i64, rank: Rank, packet: &TracePacket) {
        let begin = self.bytes.len();
        write_packet(packet, &mut self.bytes);
        let arrival = self.packets.len();
        // Of slices with the same times, the one that ends last in the input is the outer one.
        let arrival = match rank {
            Rank::Begin(_) => usize::MAX - arrival,
            _ => arrival,
        };
        let packet = (time, rank, arrival, begin..self.bytes.len());
        self.packets.push(packet);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= MAX_BYTES || self.packets.len() >= MAX_PACKETS
    }

    /// Appends all packets to `out`; the next batch begins.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        self.packets
            .sort_unstable_by_key(|(time, rank, arrival, _)| (*time, *rank, *arrival));
        for (.., range) in self.packets.drain(..) {
            out.extend_from_slice(self.bytes.get(range).unwrap_or_default());
        }
        self.bytes.clear();
        self.number += 1;
    }
}

/// The number of the field `packet` of the message `Trace`.
const PACKET: u32 = 1;

/// Appends a packet as a field of a trace.
pub(crate) fn write_packet(packet: &TracePacket, out: &mut Vec<u8>) {
    message::encode(PACKET, packet, out);
}

/// Appends a packet with one more field: a message, of which some fields are encoded already.
pub(crate) fn write_packet_with(
    packet: &TracePacket,
    field: u32,
    message: &impl Message,
    encoded: &[u8],
    out: &mut Vec<u8>,
) {
    let len = message.encoded_len() + encoded.len();
    let field_len = key_len(field) + encoded_len_varint(len as u64) + len;
    encode_key(PACKET, WireType::LengthDelimited, out);
    encode_varint((packet.encoded_len() + field_len) as u64, out);
    packet.encode_raw(out);
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(len as u64, out);
    message.encode_raw(out);
    out.extend_from_slice(encoded);
}
