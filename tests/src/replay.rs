//! Sends the traces of a directory to a relay as a live session, packet by packet in order of time,
//! as the producer that wrote them would have done.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use ctf::decode::PacketHead;
use ctf::directory::{StreamReader, TraceDirectory};
use relay_proto::stream::QuiescentControl;
use relay_proto::{Command, Reply, reply::ReturnCode};
use wire::{Bits, ClassId, PacketIndex, PacketSeqNum, StreamId, Timestamp};

use crate::producer::{Producer, beacon, live_session, packet_of, stream};
use crate::relay::Relay;

/// The host name of all replayed sessions.
pub const HOST: &str = "host";

/// The channel of [`IdleStream::Present`].
const IDLE: &str = "idle_0";

/// The number of packets of other streams after which a stream without packets sends a beacon.
const PACKETS_BETWEEN_BEACONS: u64 = 2;

/// The pieces in which metadata is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataPieces {
    /// All in one command.
    Whole,
    /// One command for each declaration of plain text, or for each metadata packet.
    Many,
}

/// Whether each trace gets one more stream, which never has a packet. `lttng-relayd` 2.13 ignores
/// beacons of such a stream, so that viewers wait for it until the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleStream {
    /// One stream without packets is added.
    Present,
    /// No stream exists but those of the trace.
    Absent,
}

/// A live session whose packets are sent by [`Self::send_packets`].
#[derive(Debug)]
pub struct Replay {
    producer: Producer,
    streams: Vec<ReplayedStream>,
    /// The packets to be sent, in order.
    packets: Vec<Packet>,
}

/// A stream and how many packets of it were sent.
#[derive(Debug)]
struct ReplayedStream {
    stream: StreamId,
    trace: usize,
    class: u64,
    sent: u64,
    /// Packets of other streams of the trace since this one had a packet.
    passed: u64,
}

#[derive(Debug)]
struct Packet {
    time: i64,
    /// The end, in nanoseconds.
    end: Option<i64>,
    /// The length of a cycle at the end, in nanoseconds.
    cycle: Option<i64>,
    /// The index of the stream in [`Replay::streams`].
    stream: usize,
    head: PacketHead,
    bytes: Vec<u8>,
}

impl Replay {
    /// Opens a live session with the streams and the metadata of all traces at or below a
    /// directory, without packets.
    ///
    /// # Panics
    /// If the directory cannot be read, or the relay refuses.
    #[must_use]
    pub fn open(
        relay: &Relay,
        session: &str,
        directory: &Path,
        pieces: MetadataPieces,
        idle: IdleStream,
    ) -> Self {
        let traces = ctf::directory::open(&[directory]).unwrap().traces;
        let mut replay = Self {
            producer: Producer::open(relay, live_session(session)),
            streams: Vec::new(),
            packets: Vec::new(),
        };
        let root = directory.canonicalize().unwrap();
        for (place, trace) in traces.iter().enumerate() {
            replay.add_trace(place, trace, &root, pieces, idle);
        }
        // A stable sort: packets of the same time stay in the order of the streams.
        replay.packets.sort_by_key(|packet| packet.time);
        replay
    }

    /// Opens a session as [`Self::open`] does, with whole metadata and an idle stream.
    ///
    /// # Panics
    /// If the directory cannot be read, or the relay refuses.
    #[must_use]
    pub fn open_with_idle_stream(relay: &Relay, session: &str, directory: &Path) -> Self {
        let (pieces, idle) = (MetadataPieces::Whole, IdleStream::Present);
        Self::open(relay, session, directory, pieces, idle)
    }

    fn add_trace(
        &mut self,
        place: usize,
        trace: &TraceDirectory,
        root: &Path,
        pieces: MetadataPieces,
        idle: IdleStream,
    ) {
        let below = trace.paths[0].strip_prefix(root).unwrap();
        let path = match below.to_str().unwrap() {
            "" => "trace",
            path => path,
        };
        let mut names = BTreeSet::new();
        for stream in &trace.streams {
            let file = stream.files[0].file_name().unwrap().to_str().unwrap();
            let mut name = file.to_owned();
            while !names.insert(name.clone()) {
                name.push('_');
            }
            self.add_stream(place, stream.class, &name, path);
            self.read_packets(trace, StreamReader::new(stream));
        }
        if idle == IdleStream::Present {
            self.add_stream(place, 0, IDLE, path);
        }
        let metadata = self.producer.add_stream(stream("metadata", path));
        self.producer.request(Command::StreamsSent);
        for piece in pieces.of(&trace.metadata_bytes) {
            self.producer.send_metadata(metadata, piece, 0);
            // SEND_METADATA has no reply: that of the next command says that it was processed.
            self.producer
                .request(Command::QuiescentControl(QuiescentControl {
                    stream: metadata,
                }));
        }
    }

    fn add_stream(&mut self, trace: usize, class: u64, name: &str, path: &str) {
        self.streams.push(ReplayedStream {
            stream: self.producer.add_stream(stream(name, path)),
            trace,
            class,
            sent: 0,
            passed: 0,
        });
    }

    /// Reads the packets of the stream added last.
    fn read_packets(&mut self, trace: &TraceDirectory, mut reader: StreamReader) {
        let (declared, mut bytes) = (trace.metadata.trace(), Vec::new());
        let mut time = i64::MIN;
        while reader.next(&mut bytes).unwrap() {
            let head = PacketHead::read(declared, &bytes, bytes.len() as u64).unwrap();
            let class = declared.stream(head.stream_class);
            let scale = class.and_then(|class| class.timescale());
            let at = |cycles: Option<u64>| scale?.nanoseconds(cycles?);
            time = time.max(at(head.begin).unwrap_or(i64::MIN));
            let end = at(head.end);
            let after = at(head.end.and_then(|end| end.checked_add(1)));
            self.packets.push(Packet {
                time,
                end,
                cycle: after.zip(end).map(|(after, end)| after - end),
                stream: self.streams.len() - 1,
                head,
                bytes: bytes.clone(),
            });
        }
    }

    /// Sends all packets, and beacons of streams that have none.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn send_packets(&mut self) {
        let packets = std::mem::take(&mut self.packets);
        for packet in &packets {
            self.send(packet);
            let Some(begin) = packet.head.begin else {
                continue;
            };
            let trace = self.streams[packet.stream].trace;
            self.send_due_beacons(trace, packet.stream, begin);
        }
        self.send_final_beacons(&packets);
    }

    /// Sends a beacon of every stream for the end of the last packet of all, so that viewers can
    /// show everything.
    fn send_final_beacons(&mut self, packets: &[Packet]) {
        let Some(last) = packets.iter().filter_map(|packet| packet.end).max() else {
            return;
        };
        let mut until = BTreeMap::new();
        for packet in packets {
            let (Some(end), Some(cycles)) = (packet.end, packet.head.end) else {
                continue;
            };
            // Only for clocks of 1 GHz does the end of another trace's packet convert to cycles
            // exactly; otherwise the beacon is for the end of the trace's own packets.
            let missing = match packet.cycle {
                Some(1) => u64::try_from(last - end).unwrap(),
                _ => 0,
            };
            let known = until.entry(self.streams[packet.stream].trace).or_insert(0);
            *known = (cycles + missing + 1).max(*known);
        }
        for place in 0..self.streams.len() {
            let ReplayedStream { stream, sent, .. } = self.streams[place];
            if let Some(last) = sent.checked_sub(1) {
                // Relays ignore a beacon while a packet of the stream is pending; a tracer would
                // send another later.
                self.producer.wait_while_pending(stream, last);
            }
            if let Some(until) = until.get(&self.streams[place].trace) {
                self.send_beacon(place, *until);
            }
        }
    }

    fn send(&mut self, packet: &Packet) {
        let stream = &mut self.streams[packet.stream];
        let head = &packet.head;
        let index = PacketIndex {
            packet_size: Bits(head.packet_bits),
            content_size: Bits(head.content_bits),
            begin: Timestamp(head.begin.unwrap_or(0)),
            end: Timestamp(head.end.unwrap_or(0)),
            events_discarded: head.discarded.map_or(0, |counter| counter.value),
            class: ClassId(stream.class),
            instance: None,
            packet_seq: head.sequence.map(|counter| PacketSeqNum(counter.value)),
        };
        let bytes = packet_of(stream.stream, stream.sent, &packet.bytes, 0);
        self.producer.data.write_all(&bytes).unwrap();
        let reply = self.producer.send_index(stream.stream, stream.sent, index);
        assert_eq!(reply, Reply::Ended(ReturnCode::OK));
        stream.sent += 1;
        stream.passed = 0;
    }

    /// Sends beacons of the other streams of the trace that have had no packet for a while. `until`
    /// is the begin of the packet of stream `active`, in cycles.
    fn send_due_beacons(&mut self, trace: usize, active: usize, until: u64) {
        for place in 0..self.streams.len() {
            let stream = &mut self.streams[place];
            if place == active || stream.trace != trace {
                continue;
            }
            stream.passed += 1;
            if stream.passed.is_multiple_of(PACKETS_BETWEEN_BEACONS) {
                self.send_beacon(place, until);
            }
        }
    }

    fn send_beacon(&mut self, place: usize, until: u64) {
        let stream = &self.streams[place];
        let reply = self
            .producer
            .send_index(stream.stream, stream.sent, beacon(until));
        assert_eq!(reply, Reply::Ended(ReturnCode::OK));
    }

    /// Closes all streams and then the session.
    ///
    /// # Panics
    /// If the relay refuses.
    pub fn close(mut self) {
        for stream in &self.streams {
            let last = stream.sent.checked_sub(1);
            let reply = self.producer.close_stream(stream.stream, last);
            assert_eq!(reply, Reply::Ended(ReturnCode::OK));
        }
        self.producer.disconnect();
    }
}

impl MetadataPieces {
    fn of(self, bytes: &[u8]) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        let mut left = bytes;
        while !left.is_empty() {
            let length = match self {
                Self::Whole => left.len(),
                Self::Many => packet_length(left).unwrap_or_else(|| declaration_length(left)),
            };
            let (piece, rest) = left.split_at(length.min(left.len()));
            pieces.push(piece);
            left = rest;
        }
        pieces
    }
}

/// Returns the length of the metadata packet at the front of `bytes`; `None` for plain text.
fn packet_length(bytes: &[u8]) -> Option<usize> {
    const MAGIC: u32 = 0x75D1_1D57;
    // The field `packet_size`, after magic, UUID, checksum and content size.
    const PACKET_SIZE: usize = 4 + 16 + 4 + 4;
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok();
    let bits = match word(0)? {
        magic if u32::from_le_bytes(magic) == MAGIC => u32::from_le_bytes(word(PACKET_SIZE)?),
        magic if u32::from_be_bytes(magic) == MAGIC => u32::from_be_bytes(word(PACKET_SIZE)?),
        _ => return None,
    };
    Some(bits as usize / 8)
}

/// Returns the length of plain text up to the end of its first declaration.
fn declaration_length(bytes: &[u8]) -> usize {
    const END: &[u8] = b"\n};\n";
    let end = bytes.windows(END.len()).position(|window| window == END);
    end.map_or(bytes.len(), |at| at + END.len())
}
