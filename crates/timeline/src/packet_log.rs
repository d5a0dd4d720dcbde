//! The packets of the history, with the metadata to decode them again: for the fields of single
//! events, for filters and for downloads. Those of recordings on disk stay in their files, the
//! others are kept compressed. Bounded in bytes, metadata included: the oldest
//! are dropped, and with its last packet the metadata of a trace that has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ctf::TimeCorrections;
use ctf::directory::DataFile;
use parking_lot::Mutex;
use viewer::attach::{Packet, StreamInfo, TraceInfo, TraceKey};
use zstd::bulk::Compressor;

use super::client_clocks::ClientClocks;
use super::locations::Locations;
use super::row::EventPlace;

/// Larger packets are not kept.
const MAX_PACKET_BYTES: u64 = 16 << 20;
/// Largest metadata of a trace that is kept.
const MAX_METADATA_BYTES: usize = 16 << 20;
/// Memory of a packet besides its bytes, and its part of that of a trace, about.
const PACKET_OVERHEAD: usize = 96;
/// Largest buffer that is kept for the next packet, in bytes.
const MAX_KEPT_BUFFER: usize = 1 << 20;
/// The fastest level of Zstandard: packets are compressed on the thread that decodes them.
const COMPRESSION_LEVEL: i32 = 1;

/// A trace whose packets are kept.
#[derive(Debug)]
pub(super) struct LoggedTrace {
    pub(super) info: TraceInfo,
    metadata: Mutex<Vec<u8>>,
    /// The number of its packets in the log.
    packets: AtomicUsize,
    /// Whether there was no room for more of its metadata: later packets cannot be decoded again,
    /// and are not kept.
    is_cut: AtomicBool,
    /// The last time of an event of the packets that were dropped, in nanoseconds.
    dropped_until: Mutex<Option<i64>>,
    /// The corrections of its times.
    corrections: Mutex<Option<Arc<TimeCorrections>>>,
}

/// A packet that is kept.
#[derive(Debug, Clone)]
pub(super) struct LoggedPacket {
    pub(super) trace: Arc<LoggedTrace>,
    pub(super) stream: Arc<StreamInfo>,
    /// The first and the last time of an event, in nanoseconds. Absent while events are still read.
    pub(super) times: Option<(i64, i64)>,
    content: PacketContent,
    /// The size in bytes before compression.
    pub(super) size: usize,
}

/// Where the bytes of a packet are.
#[derive(Debug, Clone)]
enum PacketContent {
    Compressed(Arc<[u8]>),
    /// At this offset of a file of a recording.
    InFile(Arc<DataFile>, u64),
}

#[derive(Debug, Default)]
struct Packets {
    packets: VecDeque<LoggedPacket>,
    /// The number of the first packet that is kept.
    first: u32,
    /// The bytes of packets, and of the metadata of all traces that are read or have packets.
    bytes: usize,
    /// The bytes of the metadata of traces that are read.
    metadata_bytes: usize,
    /// The traces that are read.
    traces: HashMap<TraceKey, Arc<LoggedTrace>>,
}

impl Packets {
    /// Drops the oldest packets until no more than `max` bytes are left. Traces that are read stay;
    /// returns those of which nothing is left.
    #[must_use]
    fn drop_oldest(&mut self, max: usize) -> Vec<TraceKey> {
        let mut dropped = Vec::new();
        while self.bytes > max {
            let Some(oldest) = self.packets.pop_front() else {
                break;
            };
            self.bytes -= cost(&oldest);
            self.first = self.first.wrapping_add(1);
            let trace = &oldest.trace;
            let mut dropped_until = trace.dropped_until.lock();
            *dropped_until = (*dropped_until).max(oldest.times.map(|(_, last)| last));
            drop(dropped_until);
            let is_last = trace.packets.fetch_sub(1, Ordering::Relaxed) == 1;
            // The metadata of a trace that has ended goes with its last packet.
            if is_last && !self.traces.contains_key(&trace.info.key) {
                self.bytes -= trace.cost();
                dropped.push(trace.info.key);
            }
        }
        dropped
    }
}

/// Compresses packets. What it needs is kept from packet to packet: many packets are small.
struct PacketCompressor {
    /// The state of Zstandard. Absent until the first packet.
    zstd: Option<Compressor<'static>>,
    packet: Vec<u8>,
    compressed: Vec<u8>,
}

impl std::fmt::Debug for PacketCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PacketCompressor").finish_non_exhaustive()
    }
}

impl PacketCompressor {
    /// The compressed bytes of a packet and its size before. `None` if it cannot be read.
    fn compress(&mut self, packet: &Packet) -> Option<(Arc<[u8]>, usize)> {
        let bytes = &mut self.packet;
        bytes.clear();
        // A packet that lies in a file comes in pieces, but is compressed as a whole.
        let copied = packet.each_piece(|piece| {
            bytes.extend_from_slice(piece);
            Ok::<(), ()>(())
        });
        copied.ok()?.ok()?;
        let zstd = match &mut self.zstd {
            Some(zstd) => zstd,
            none => none.insert(Compressor::new(COMPRESSION_LEVEL).ok()?),
        };
        self.compressed.clear();
        self.compressed
            .reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        // This does not enlarge the buffer, which has room for the worst case.
        zstd.compress_to_buffer(bytes, &mut self.compressed).ok()?;
        let compressed = self.compressed.as_slice().into();
        let size = bytes.len();
        for buffer in [&mut self.packet, &mut self.compressed] {
            buffer.clear();
            buffer.shrink_to(MAX_KEPT_BUFFER);
        }
        Some((compressed, size))
    }
}

/// The packets of the history.
#[derive(Debug)]
pub(super) struct PacketLog {
    max_bytes: usize,
    packets: Mutex<Packets>,
    compressor: Mutex<PacketCompressor>,
    /// The clocks of clients, to find the events of a packet that are at a time of the timeline.
    pub(super) clocks: Arc<ClientClocks>,
    /// What the addresses in events are, of all traces that are read or have packets.
    pub(super) locations: Arc<Locations>,
}

impl LoggedTrace {
    fn cost(&self) -> usize {
        self.metadata.lock().len()
    }

    /// The corrections of the times of the trace.
    pub(super) fn corrections(&self) -> Option<Arc<TimeCorrections>> {
        self.corrections.lock().clone()
    }

    /// The metadata from this byte on.
    pub(super) fn metadata_from(&self, begin: usize) -> Vec<u8> {
        let metadata = self.metadata.lock();
        metadata.get(begin..).unwrap_or_default().to_vec()
    }
}

impl LoggedPacket {
    /// The packet as it came.
    ///
    /// # Errors
    /// If its bytes in memory have changed, or its file has changed or gone.
    pub(super) fn bytes(&self) -> std::io::Result<Vec<u8>> {
        match &self.content {
            PacketContent::Compressed(bytes) => zstd::bulk::decompress(bytes, self.size),
            PacketContent::InFile(file, offset) => file.read_again(*offset, self.size),
        }
    }
}

impl PacketLog {
    /// An empty log for this many bytes of compressed packets.
    pub(super) fn new(max_bytes: usize, locations: Arc<Locations>) -> Self {
        Self {
            max_bytes,
            packets: Mutex::default(),
            compressor: Mutex::new(PacketCompressor {
                zstd: None,
                packet: Vec::new(),
                compressed: Vec::new(),
            }),
            clocks: Arc::default(),
            locations,
        }
    }

    /// Adds metadata of a trace. Half of the log is for that of all traces that are read; of one
    /// that finds no room, no further packets are kept.
    pub(super) fn add_metadata(&self, bytes: &[u8], trace: &TraceInfo) {
        let mut packets = self.packets.lock();
        let log = &mut *packets;
        let known = log.traces.entry(trace.key).or_insert_with(|| {
            Arc::new(LoggedTrace {
                info: trace.clone(),
                metadata: Mutex::default(),
                packets: AtomicUsize::new(0),
                is_cut: AtomicBool::new(false),
                dropped_until: Mutex::default(),
                corrections: Mutex::default(),
            })
        });
        let known = Arc::clone(known);
        if known.is_cut.load(Ordering::Relaxed) {
            return;
        }
        let length = known.metadata.lock().len() + bytes.len();
        if length > MAX_METADATA_BYTES || log.metadata_bytes + bytes.len() > self.max_bytes / 2 {
            known.is_cut.store(true, Ordering::Relaxed);
            return;
        }
        known.metadata.lock().extend_from_slice(bytes);
        log.metadata_bytes += bytes.len();
        log.bytes += bytes.len();
        let dropped = log.drop_oldest(self.max_bytes);
        drop(packets);
        self.forget(&dropped);
    }

    /// Sets the corrections of the times of a trace.
    pub(super) fn set_corrections(&self, trace: TraceKey, new: Option<Arc<TimeCorrections>>) {
        if let Some(trace) = self.packets.lock().traces.get(&trace) {
            *trace.corrections.lock() = new;
        }
    }

    /// Adds a packet, and returns its number. `None` if it is not kept.
    pub(super) fn add_packet(
        &self,
        packet: &Packet,
        trace: TraceKey,
        stream: &Arc<StreamInfo>,
    ) -> Option<u32> {
        if packet.len() > MAX_PACKET_BYTES {
            return None;
        }
        let is_kept = |trace: &&Arc<LoggedTrace>| !trace.is_cut.load(Ordering::Relaxed);
        let trace = self
            .packets
            .lock()
            .traces
            .get(&trace)
            .filter(is_kept)
            .cloned()?;
        let (content, size) = match packet.data_file() {
            Some((file, offset)) => (
                PacketContent::InFile(Arc::clone(file), *offset),
                usize::try_from(packet.len()).ok()?,
            ),
            None => {
                // The log is not locked meanwhile: pages read it while a packet is compressed.
                let (compressed, size) = self.compressor.lock().compress(packet)?;
                (PacketContent::Compressed(compressed), size)
            }
        };
        let mut log = self.packets.lock();
        trace.packets.fetch_add(1, Ordering::Relaxed);
        let logged = LoggedPacket {
            trace,
            stream: Arc::clone(stream),
            times: None,
            content,
            size,
        };
        log.bytes += cost(&logged);
        log.packets.push_back(logged);
        let dropped = log.drop_oldest(self.max_bytes);
        let count = u32::try_from(log.packets.len()).unwrap_or(u32::MAX);
        let number = log.first.wrapping_add(count).wrapping_sub(1);
        drop(log);
        self.forget(&dropped);
        Some(number)
    }

    /// Forgets what was mapped in the processes of traces. The log is not locked meanwhile: what an
    /// address is may take long to find.
    fn forget(&self, traces: &[TraceKey]) {
        for trace in traces {
            self.locations.forget_trace(*trace);
        }
    }

    /// Says between which times the events of a packet are.
    pub(super) fn set_times(&self, number: u32, times: (i64, i64)) {
        let mut log = self.packets.lock();
        let place = number.wrapping_sub(log.first);
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if let Some(packet) = log.packets.get_mut(place) {
            packet.times = Some(times);
        }
    }

    /// The packet of an event, unless it has been dropped.
    pub(super) fn packet(&self, place: EventPlace) -> Option<LoggedPacket> {
        let log = self.packets.lock();
        let place = usize::try_from(place.packet.wrapping_sub(log.first)).ok()?;
        log.packets.get(place).cloned()
    }

    /// The last time of an event of the packets that have been dropped, in nanoseconds, of traces
    /// that are still read or have other packets.
    pub(super) fn dropped_until(&self) -> Option<i64> {
        let log = self.packets.lock();
        let kept = log.packets.iter().map(|packet| &packet.trace);
        let traces = log.traces.values().chain(kept);
        traces.filter_map(|trace| *trace.dropped_until.lock()).max()
    }

    /// The packets that may have events between two times, in the order in which they came; `None`
    /// if they have more than `max` bytes.
    pub(super) fn packets_between(
        &self,
        (from, to): (i64, i64),
        max: usize,
    ) -> Option<Vec<LoggedPacket>> {
        let log = self.packets.lock();
        let overlaps = |packet: &&LoggedPacket| {
            packet
                .times
                .is_none_or(|(first, last)| first <= to && last >= from)
        };
        let mut bytes = 0_usize;
        let packets = log.packets.iter().filter(overlaps).map(|packet| {
            bytes = bytes.saturating_add(packet.size);
            (bytes <= max).then(|| packet.clone())
        });
        packets.collect()
    }

    /// The packets from this number on, at most so many, and the number of the first.
    pub(super) fn packets_from(&self, number: u32, max: usize) -> (u32, Vec<LoggedPacket>) {
        let log = self.packets.lock();
        let place = usize::try_from(number.wrapping_sub(log.first)).unwrap_or(usize::MAX);
        // A number before the first packet that is kept becomes one far after the end.
        let (number, place) = match place <= log.packets.len() {
            true => (number, place),
            false => (log.first, 0),
        };
        let packets = log.packets.iter().skip(place).take(max).cloned();
        (number, packets.collect())
    }

    /// Forgets a trace that has ended; its packets keep what they need of it.
    pub(super) fn end_trace(&self, trace: TraceKey) {
        let mut log = self.packets.lock();
        if let Some(ended) = log.traces.remove(&trace) {
            log.metadata_bytes -= ended.metadata.lock().len();
            // Packets that are kept need the metadata: it is dropped with the last of them.
            if ended.packets.load(Ordering::Relaxed) > 0 {
                return;
            }
            log.bytes -= ended.cost();
        }
        drop(log);
        self.forget(&[trace]);
    }
}

fn cost(packet: &LoggedPacket) -> usize {
    let bytes = match &packet.content {
        PacketContent::Compressed(bytes) => bytes.len(),
        PacketContent::InFile(..) => 0,
    };
    bytes + PACKET_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::attach::{MemoryBudget, Reservation};
    use viewer::test_support::TestOrigin;

    fn packet(bytes: Vec<u8>) -> Packet {
        Packet::in_memory(bytes, Reservation::none(&MemoryBudget::default()))
    }

    #[test]
    fn packets_are_found_by_number_and_time_until_they_are_dropped() {
        let log = PacketLog::new(1 << 20, Arc::default());
        let origin = TestOrigin::new("t", "s");
        let stream = Arc::new(origin.stream.clone());
        let key = origin.trace.key;
        assert_eq!(log.add_packet(&packet(vec![1]), key, &stream), None);
        log.add_metadata(b"meta", &origin.trace);
        log.add_metadata(b"data", &origin.trace);
        for number in 0..3_u8 {
            let added = log.add_packet(&packet(vec![number; 100]), key, &stream);
            assert_eq!(added, Some(number.into()));
            log.set_times(
                number.into(),
                (i64::from(number) * 10, i64::from(number) * 10 + 9),
            );
        }
        let place = |packet| EventPlace { packet, event: 0 };
        let found = log.packet(place(1)).unwrap();
        assert_eq!(found.bytes().unwrap(), [1; 100]);
        assert_eq!(found.trace.metadata_from(0), b"metadata");
        assert!(log.packet(place(3)).is_none());
        let between = log.packets_between((9, 15), usize::MAX).unwrap();
        let times: Vec<_> = between.iter().map(|packet| packet.times).collect();
        assert_eq!(times, [Some((0, 9)), Some((10, 19))]);
    }

    #[test]
    fn metadata_of_traces_that_have_ended_counts_until_their_last_packet_is_dropped() {
        const MAX_BYTES: usize = 1 << 20;
        let log = PacketLog::new(MAX_BYTES, Arc::default());
        let mut first = None;
        for _ in 0..100 {
            let origin = TestOrigin::new("t", "s");
            let stream = Arc::new(origin.stream.clone());
            log.add_metadata(&[b' '; 100 << 10], &origin.trace);
            let added = log.add_packet(&packet(vec![1]), origin.trace.key, &stream);
            let trace = Arc::downgrade(&log.packets.lock().packets.back().unwrap().trace);
            first.get_or_insert(trace);
            assert!(added.is_some());
            log.end_trace(origin.trace.key);
            let kept = log.packets.lock();
            assert!(kept.bytes <= MAX_BYTES && kept.metadata_bytes == 0);
            assert!(kept.packets.len() <= 10);
        }
        assert_eq!(first.unwrap().strong_count(), 0);
        // Without a packet nothing of it is kept.
        let origin = TestOrigin::new("t", "s");
        let before = log.packets.lock().bytes;
        log.add_metadata(b"meta", &origin.trace);
        log.end_trace(origin.trace.key);
        assert_eq!(log.packets.lock().bytes, before);
    }

    #[test]
    fn metadata_of_traces_that_are_read_leaves_room_for_packets() {
        let log = PacketLog::new(1 << 20, Arc::default());
        let origins: Vec<_> = (0..8).map(|_| TestOrigin::new("t", "s")).collect();
        let mut kept = 0;
        for origin in &origins {
            log.add_metadata(&[b' '; 100 << 10], &origin.trace);
            let stream = Arc::new(origin.stream.clone());
            let added = log.add_packet(&packet(vec![1]), origin.trace.key, &stream);
            kept += usize::from(added.is_some());
        }
        assert_eq!(
            kept, 5,
            "of the others the metadata would take more than half"
        );
        assert_eq!(log.packets.lock().packets.len(), 5);
        assert!(log.packets.lock().bytes <= 1 << 20);
    }

    #[test]
    fn oldest_packets_are_dropped_when_the_log_is_full() {
        const MAX_BYTES: usize = 1 << 20;
        let log = PacketLog::new(MAX_BYTES, Arc::default());
        let origin = TestOrigin::new("t", "s");
        let stream = Arc::new(origin.stream.clone());
        log.add_metadata(b"m", &origin.trace);
        let mut random = 1_u64;
        let mut noise = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random.to_le_bytes()[7]
        };
        let bytes: Vec<u8> = (0..64 << 10).map(|_| noise()).collect();
        for number in 0..40 {
            let added = log.add_packet(&packet(bytes.clone()), origin.trace.key, &stream);
            assert_eq!(added, Some(number));
            let begin = i64::from(number) * 10;
            log.set_times(number, (begin, begin + 9));
        }
        assert!(log.packets.lock().bytes <= MAX_BYTES);
        let place = |packet| EventPlace { packet, event: 0 };
        assert!(log.packet(place(0)).is_none());
        assert!(log.packet(place(39)).is_some());
        let (first, packets) = log.packets_from(0, 1000);
        assert!(first > 20 && packets.len() < 20, "{first}");
        assert_eq!(log.dropped_until(), Some(i64::from(first) * 10 - 1));
        assert_eq!(log.packets_from(38, 1).0, 38);
        assert!(log.packets_from(40, 1).1.is_empty());
        let large = packet(vec![0; 17 << 20]);
        assert_eq!(log.add_packet(&large, origin.trace.key, &stream), None);
        // A file of another trace is complete.
        log.end_trace(origin.trace.key);
        log.packets.lock().packets.clear();
        assert_eq!(log.dropped_until(), None);
    }
}
