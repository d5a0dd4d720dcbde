//! The packets of traces on disk, merged over all streams in the order of their begin times.
//!
//! A min-heap holds the begin of each stream's next packet; one packet at a time is in memory.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ctf::Timescale;
use ctf::decode::PacketHead;
use ctf::directory::{DirectoryError, OpenedTraces, PacketSummary, StreamReader, TraceDirectory};
use wire::{Bits, ClassId, InstanceId, PacketIndex, PacketSeqNum, Timestamp};

use super::error::ReplayError;
use super::names::{self, TracePaths};
use crate::queue::{Step, TraceKey};

/// The traces, each stream with its read position.
pub(super) struct PacketSource {
    pub(super) traces: Vec<TraceDirectory>,
    pub(super) streams: Vec<SourceStream>,
    /// The begin of each stream's next packet in nanoseconds, and the stream's index.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    /// Faults of files; the packets before a fault have been read. Of a fault of metadata no packet
    /// is read.
    pub(super) broken: Vec<Arc<DirectoryError>>,
}

/// One stream of a trace.
pub(super) struct SourceStream {
    pub(super) trace: usize,
    pub(super) class: u64,
    channel: String,
    reader: StreamReader,
    timescale: Option<Timescale>,
    pub(super) frequency: Option<u64>,
    /// The latest begin of a packet, in nanoseconds.
    time: i64,
}

/// A packet as it is sent.
pub(super) struct SourcePacket {
    /// Index of its stream in [`PacketSource::streams`].
    pub(super) stream: usize,
    /// The packet without the zeros at its end: the relay adds them again.
    pub(super) bytes: Bytes,
    pub(super) index: PacketIndex,
    pub(super) times: PacketTimes,
}

/// When a packet begins and ends; absent if its context has no timestamps.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketTimes {
    /// In nanoseconds since the epoch.
    pub(super) begin: Option<i64>,
    pub(super) end: Option<i64>,
    /// In cycles of the trace's clock.
    pub(super) begin_cycles: Option<u64>,
    pub(super) end_cycles: Option<u64>,
}

impl PacketSource {
    /// Opens all traces at or below the directories. One of several that cannot be read is a fault.
    pub(super) fn open(roots: &[PathBuf]) -> Result<Self, ReplayError> {
        let OpenedTraces {
            traces,
            mut unreadable,
        } = ctf::directory::open(roots)?;
        if let Some(error) = unreadable.pop_if(|_| traces.is_empty()) {
            return Err(error.into());
        }
        let mut source = Self {
            traces,
            streams: Vec::new(),
            next: BinaryHeap::new(),
            broken: unreadable.into_iter().map(Arc::new).collect(),
        };
        for (place, trace) in source.traces.iter().enumerate() {
            let mut taken = BTreeSet::new();
            for files in &trace.streams {
                let class = trace.metadata.trace().stream(files.class);
                let clock = class.and_then(|class| trace.metadata.trace().clock_of(class));
                let first = files.files.first();
                source.streams.push(SourceStream {
                    trace: place,
                    class: files.class,
                    channel: first
                        .map_or_else(String::new, |file| names::stream_name(file, &mut taken)),
                    reader: StreamReader::new(files),
                    timescale: class.and_then(|class| class.timescale().cloned()),
                    frequency: clock.map(|clock| clock.frequency),
                    time: i64::MIN,
                });
            }
        }
        for place in 0..source.streams.len() {
            source.schedule_stream(place);
        }
        Ok(source)
    }

    /// Returns the number of packets of all streams.
    pub(super) fn packets(&self) -> u64 {
        let streams = self.traces.iter().flat_map(|trace| &trace.streams);
        streams.map(|files| files.packets()).sum::<usize>() as u64
    }

    pub(super) fn is_ctf_2(&self) -> bool {
        self.traces.iter().any(|trace| trace.metadata.is_json())
    }

    /// Returns the steps that a session with these traces begins with: traces, streams, metadata.
    pub(super) fn announcement(&self, roots: &[PathBuf]) -> Vec<Step> {
        let roots = roots.iter().filter_map(|root| root.canonicalize().ok());
        let mut paths = TracePaths::new(roots.collect());
        let mut steps = Vec::new();
        for trace in &self.traces {
            let path = trace
                .paths
                .first()
                .map_or_else(String::new, |path| paths.unique_path(path));
            steps.push(Step::AddTrace { path });
        }
        steps.extend(self.streams.iter().map(|stream| Step::AddStream {
            trace: trace_key(stream.trace),
            channel: stream.channel.clone(),
            class: ClassId(stream.class),
        }));
        steps.extend(self.traces.iter().enumerate().map(|(place, trace)| {
            let bytes = Bytes::copy_from_slice(&trace.metadata_bytes);
            let trace = trace_key(place);
            Step::Metadata { trace, bytes }
        }));
        steps
    }

    /// Reads the next packet in the order of begin times; none after the last.
    pub(super) fn next_packet(&mut self) -> Option<SourcePacket> {
        // A fault ends its stream only; the other streams of the trace go on.
        while let Some(Reverse((_, place))) = self.next.pop() {
            let packet = self.read_packet(place);
            self.schedule_stream(place);
            match packet {
                Ok(Some(packet)) => return Some(packet),
                Ok(None) => {}
                Err(broken) => self.broken.push(broken),
            }
        }
        None
    }

    /// Returns the header of a stream's next packet, which is not read yet.
    pub(super) fn peek(&self, place: usize) -> Option<PacketSummary> {
        self.streams.get(place)?.reader.peek()
    }

    /// Adds a stream's next packet to the heap, or records the fault of its file.
    fn schedule_stream(&mut self, place: usize) {
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        match stream.reader.peek() {
            Some(next) => {
                let time = stream.nanoseconds(next.begin).unwrap_or(stream.time);
                // Packets of one stream stay in the order of the file, whatever their times are.
                stream.time = stream.time.max(time);
                self.next.push(Reverse((stream.time, place)));
            }
            None => {
                // Also at the end of the stream: then reading returns no packet and no fault.
                if let Err(broken) = stream.reader.next(&mut Vec::new()) {
                    self.broken.push(broken);
                }
            }
        }
    }

    fn read_packet(&mut self, place: usize) -> Result<Option<SourcePacket>, Arc<DirectoryError>> {
        let Some(stream) = self.streams.get_mut(place) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        if !stream.reader.next(&mut bytes)? {
            return Ok(None);
        }
        let Some(trace) = self.traces.get(stream.trace) else {
            return Ok(None);
        };
        let length = bytes.len() as u64;
        let head = match PacketHead::read(trace.metadata.trace(), &bytes, length) {
            Ok(head) => head,
            Err(source) => {
                let (path, offset) = stream.reader.place().unwrap_or((Path::new(""), 0));
                let path = path.to_owned();
                return Err(Arc::new(DirectoryError::Packet {
                    path,
                    offset,
                    source,
                }));
            }
        };
        Ok(Some(SourcePacket {
            stream: place,
            index: packet_index(&head),
            times: PacketTimes {
                begin: stream.nanoseconds(head.begin),
                end: stream.nanoseconds(head.end),
                begin_cycles: head.begin,
                end_cycles: head.end,
            },
            bytes: strip_padding(bytes, &head),
        }))
    }
}

impl SourceStream {
    fn nanoseconds(&self, cycles: Option<u64>) -> Option<i64> {
        self.timescale.as_ref()?.nanoseconds(cycles?)
    }
}

fn trace_key(place: usize) -> TraceKey {
    TraceKey(u32::try_from(place).unwrap_or(u32::MAX))
}

fn packet_index(head: &PacketHead) -> PacketIndex {
    PacketIndex {
        packet_size: Bits(head.packet_bits),
        content_size: Bits(head.content_bits),
        begin: Timestamp(head.begin.unwrap_or(0)),
        end: Timestamp(head.end.unwrap_or(0)),
        events_discarded: head.discarded.map_or(0, |counter| counter.value),
        class: ClassId(head.stream_class),
        instance: head.stream_id.map(InstanceId),
        packet_seq: head.sequence.map(|counter| PacketSeqNum(counter.value)),
    }
}

/// Removes the padding at the end of a packet if it is all zeros: the relay adds them again.
fn strip_padding(mut bytes: Vec<u8>, head: &PacketHead) -> Bytes {
    let content = usize::try_from(head.content_bits.div_ceil(8)).unwrap_or(usize::MAX);
    // The uplink refuses a packet without a byte.
    let content = content.max(1);
    match bytes.get(content..) {
        Some(padding) if padding.iter().all(|byte| *byte == 0) => {}
        _ => return Bytes::from(bytes),
    }
    // The queue counts the bytes without padding, so the memory of long padding must be released.
    if content < bytes.len() / 2 {
        return Bytes::copy_from_slice(bytes.get(..content).unwrap_or_default());
    }
    bytes.truncate(content);
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(content_bits: u64, packet_bits: u64) -> PacketHead {
        let metadata = ctf::Metadata::read(
            b"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
            stream { packet.context := struct {
                integer { size = 16; } content_size; integer { size = 16; } packet_size; }; };",
        );
        let mut bytes = u16::try_from(content_bits).unwrap().to_le_bytes().to_vec();
        bytes.extend(u16::try_from(packet_bits).unwrap().to_le_bytes());
        let available = packet_bits / 8;
        PacketHead::read(metadata.unwrap().trace(), &bytes, available).unwrap()
    }

    #[test]
    fn only_zero_padding_is_left_to_the_relay() {
        let packet = |content, padding: &[u8]| [vec![7; content], padding.to_vec()].concat();
        for (content_bits, bytes, want) in [
            (80, packet(10, &[0; 6]), 10),
            (80, packet(10, &[0, 0, 1]), 13),
            (80, packet(10, &[0; 100]), 10),
            (80, packet(10, &[]), 10),
            // The last bits of a byte that is half used are padding as well, and stay.
            (73, packet(10, &[0]), 10),
        ] {
            let head = head(content_bits, bytes.len() as u64 * 8);
            let sent = strip_padding(bytes.clone(), &head);
            assert_eq!(sent, bytes[..want]);
        }
    }
}
