//! Traces that can be decoded, of any size: their packets are generated as they are read.

use viewer_proto::index::{IndexStatus, NextIndex};
use wire::{Bits, Bytes, Timestamp};

/// Packet header and context.
const HEAD: u64 = 48;

/// An event without its bytes: class, time, number, how many bytes.
const EVENT: u64 = 20;

const CLASSES: &str = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = false; } := u64;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { u32 magic; u32 stream_id; }; };
stream { id = 0;
    packet.context := struct { u64 timestamp_begin; u64 timestamp_end; u64 content_size;
        u64 packet_size; u64 cpu_id; };
    event.header := struct { u32 id; u64 timestamp; }; };
event { name = \"tick\"; id = 0; stream_id = 0;
    fields := struct { u32 number; u32 length; u8 bytes[length]; }; };
event { name = \"bulk\"; id = 1; stream_id = 0;
    fields := struct { u32 number; u32 length; u8 bytes[length]; }; };
";

/// One of several streams that take turns: each event is a tick, whose number is its time, and one
/// of the same time with many bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tracefile {
    /// The number of this stream, from 0.
    pub(crate) stream: u64,
    /// The number of streams.
    pub(crate) streams: u64,
    pub(crate) packets: u64,
    /// The number of events of each kind in a packet.
    pub(crate) ticks: u64,
    /// The number of bytes in an event of the second kind.
    pub(crate) bulk: u64,
}

/// The metadata of such streams, with `further` event classes more.
pub(crate) fn metadata(further: usize) -> String {
    let mut text = CLASSES.to_owned();
    for number in 0..further {
        let id = number + 2;
        text.push_str(&format!(
            "event {{ name = \"provider:event_{number}\"; id = {id}; stream_id = 0; \
             fields := struct {{ u32 first_field; u64 second_field; string third_field; }}; }};\n"
        ));
    }
    text
}

impl Tracefile {
    /// The size of a packet in bytes.
    pub(crate) fn packet_size(&self) -> u64 {
        HEAD + self.ticks * self.turn()
    }

    /// The size in bytes of a tick and the event that follows it.
    fn turn(&self) -> u64 {
        2 * EVENT + self.bulk
    }

    /// The time of a tick of a packet.
    fn time(&self, packet: u64, tick: u64) -> u64 {
        (packet * self.ticks + tick) * self.streams + self.stream
    }

    pub(crate) fn indexes(self) -> impl Iterator<Item = NextIndex> {
        (0..self.packets).map(move |packet| {
            let mut index = NextIndex::without_packet(IndexStatus::Ready, 0);
            index.offset = Bytes(packet * self.packet_size());
            index.packet.packet_size = Bits(8 * self.packet_size());
            index.packet.content_size = index.packet.packet_size;
            index.packet.begin = Timestamp(self.time(packet, 0));
            index.packet.end = Timestamp(self.time(packet, self.ticks - 1));
            index
        })
    }

    /// The `len` bytes from `offset` on.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < offset + len {
            let (packet, within) = (at / self.packet_size(), at % self.packet_size());
            // The part that is encoded, then filler.
            let (written, skipped, size) = if within < HEAD {
                (self.head(packet), within, HEAD)
            } else {
                let (tick, skipped) =
                    ((within - HEAD) / self.turn(), (within - HEAD) % self.turn());
                (self.events(packet, tick), skipped, self.turn())
            };
            let here = (offset + len - at).min(size - skipped);
            let end = bytes.len() + usize::try_from(here).unwrap();
            let written = written.into_iter().skip(usize::try_from(skipped).unwrap());
            bytes.extend(written.take(usize::try_from(here).unwrap()));
            bytes.resize(end, 0x5A);
            at += here;
        }
        bytes
    }

    fn head(&self, packet: u64) -> Vec<u8> {
        let mut head = Vec::new();
        head.extend(0xC1FC_1FC1_u32.to_le_bytes());
        head.extend(0_u32.to_le_bytes());
        let bits = 8 * self.packet_size();
        let (begin, end) = (self.time(packet, 0), self.time(packet, self.ticks - 1));
        for number in [begin, end, bits, bits, self.stream] {
            head.extend(number.to_le_bytes());
        }
        head
    }

    fn events(&self, packet: u64, tick: u64) -> Vec<u8> {
        let time = self.time(packet, tick);
        let mut events = Vec::new();
        for (class, length) in [(0_u32, 0), (1, self.bulk)] {
            events.extend(class.to_le_bytes());
            events.extend(time.to_le_bytes());
            for number in [time, length] {
                events.extend(u32::try_from(number).unwrap().to_le_bytes());
            }
        }
        events
    }
}
