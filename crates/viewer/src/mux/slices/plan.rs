//! Where the time of complete traces is cut into slices.

use std::ops::Range;

use ctf::directory::StreamFiles;
use ctf::metadata::Trace;

use super::CompleteTrace;
use crate::attach::MAX_MEMORY_BYTES;
use crate::mux::clocks::Clocks;
use crate::time::Nanoseconds;

/// Fewest bytes of packets for which threads are started.
const MIN_BYTES: u64 = 4 << 20;
/// Fewest bytes of packets of a slice: what a thread has rendered waits in memory until it is
/// shown.
const MIN_SLICE_BYTES: u64 = 2 << 20;
/// Largest number of files that all threads together have open: each thread opens one of each
/// stream.
const MAX_OPEN_FILES: usize = 512;

/// What decides how the time is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SliceRules {
    /// Number of threads, if there are enough files and there is enough memory for them.
    pub(crate) threads: usize,
    /// Whether slices may be so small that threads gain nothing.
    pub(crate) is_forced: bool,
    /// Whether events are rendered, which takes several times as long as to find them.
    pub(crate) are_rendered: bool,
}

/// Slices of traces: the times between which they lie.
#[derive(Debug)]
pub(crate) struct SlicePlan {
    threads: usize,
    /// The time at which each slice but the first begins, in ascending order.
    cuts: Vec<Nanoseconds>,
    streams: Vec<Packets>,
    /// Bytes of the packets that begin in each slice.
    bytes: Vec<u64>,
}

/// The packets of a stream.
#[derive(Debug, Default)]
struct Packets {
    /// The time at which each begins, in ascending order.
    begins: Vec<Nanoseconds>,
    /// For each packet the number of the first one from there on that has events; the number of
    /// packets if none has.
    with_events: Vec<usize>,
}

/// A part of all streams of some traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mux) struct TracePart {
    /// The earliest time that is shown. None: from the begin.
    pub(in crate::mux) begin: Option<Nanoseconds>,
    /// The time from which on nothing is shown. None: to the end.
    pub(in crate::mux) end: Option<Nanoseconds>,
    /// The packets to be read, for each stream of all traces.
    pub(in crate::mux) packets: Vec<Range<usize>>,
    /// Whether an event whose time is not in its packet, or before that of the event before it,
    /// ends the stream.
    pub(in crate::mux) checks_times: bool,
}

impl SlicePlan {
    /// Cuts the time of `traces`. None: they cannot be cut, or are too small.
    pub(crate) fn new(traces: &[CompleteTrace], rules: SliceRules) -> Option<Self> {
        let (mut streams, mut sizes) = (Vec::new(), Vec::new());
        let (mut overlap, mut largest) = (0, 0);
        let mut clocks = Clocks::default();
        for trace in traces {
            if trace.metadata.trace().has_distant_references() {
                return None;
            }
            for stream in &trace.streams {
                let packets = Packets::new(stream, trace.metadata.trace(), &mut clocks)?;
                let bytes = || stream.packet_summaries().map(|packet| packet.bytes);
                // At each cut, about one packet of each stream is read for both slices.
                overlap += bytes().sum::<u64>() / packets.begins.len() as u64;
                largest += bytes().max().unwrap_or(0);
                sizes.extend(packets.begins.iter().copied().zip(bytes()));
                streams.push(packets);
            }
        }
        let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        // With more threads, packets would have to be decoded in small parts.
        let of_memory = MAX_MEMORY_BYTES as u64 / largest.max(1);
        let of_files = MAX_OPEN_FILES / streams.len().max(1);
        let threads = rules
            .threads
            .min(of_files)
            .min(usize::try_from(of_memory).ok()?);
        if threads < 2 || (total < MIN_BYTES && !rules.is_forced) {
            return None;
        }
        // A packet of each stream is read for two slices. Where events are only found, that takes a
        // larger part of the time.
        let overlap = if rules.are_rendered {
            overlap
        } else {
            4 * overlap
        };
        let min_bytes = MIN_SLICE_BYTES.max(overlap);
        let (cuts, bytes) = cut(
            sizes,
            match rules.is_forced {
                // About four slices for each thread, so that none is idle for long at the end.
                true => min_bytes.min(total / (4 * threads as u64)),
                false => min_bytes,
            },
        )?;
        let plan = Self {
            threads,
            cuts,
            streams,
            bytes,
        };
        plan.is_worth_it().then_some(plan)
    }

    /// Whether packets without events are not so many that most of the work would be to read them
    /// for several slices.
    fn is_worth_it(&self) -> bool {
        let packets: usize = self
            .streams
            .iter()
            .map(|packets| packets.begins.len())
            .sum();
        let parts = (0..self.slices()).filter_map(|slice| self.part(slice));
        let read = parts.map(|part| part.packets.iter().map(Range::len).sum::<usize>());
        let spare = 4 * self.slices() * self.streams.len();
        read.sum::<usize>() <= 2 * packets + spare
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The number of slices.
    pub(super) fn slices(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the packets that begin in a slice.
    pub(super) fn bytes(&self, slice: usize) -> u64 {
        self.bytes.get(slice).copied().unwrap_or(0)
    }

    /// The slice with this number.
    pub(super) fn part(&self, slice: usize) -> Option<TracePart> {
        if slice >= self.slices() {
            return None;
        }
        let begin = slice
            .checked_sub(1)
            .and_then(|before| self.cuts.get(before));
        let (begin, end) = (begin.copied(), self.cuts.get(slice).copied());
        let packets = self.streams.iter().map(|packets| {
            let before = |time: Nanoseconds| packets.begins.partition_point(|begin| *begin < time);
            // The packet before may have events after the begin; with its end, what was lost after
            // it is known.
            let first = begin.map_or(0, |begin| before(begin).saturating_sub(1));
            // What was lost before the next packet may have been lost in this slice, and packets
            // without events are passed as soon as the events before them have been shown.
            let next = end.and_then(|end| packets.with_events.get(before(end)));
            first..next.map_or(packets.begins.len(), |next| {
                packets.begins.len().min(next + 1)
            })
        });
        Some(TracePart {
            begin,
            end,
            packets: packets.collect(),
            checks_times: true,
        })
    }
}

impl TracePart {
    /// The part with all that follows it, whatever times that has.
    pub(super) fn with_rest(self, plan: &SlicePlan) -> Self {
        let lengths = plan.streams.iter().map(|packets| packets.begins.len());
        let packets = self.packets.into_iter().zip(lengths);
        Self {
            end: None,
            packets: packets.map(|(range, length)| range.start..length).collect(),
            checks_times: false,
            ..self
        }
    }
}

/// Cuts packets, with their begins and sizes, into slices of at least `min_bytes`. Returns the
/// cuts, and the bytes of each slice; none if the packets cannot be cut.
fn cut(
    mut packets: Vec<(Nanoseconds, u64)>,
    min_bytes: u64,
) -> Option<(Vec<Nanoseconds>, Vec<u64>)> {
    packets.sort_unstable();
    let (mut cuts, mut bytes) = (Vec::new(), vec![0]);
    let mut last = packets.first()?.0;
    for (begin, size) in packets {
        let of_slice = bytes.last_mut()?;
        // Packets that begin at the same time stay together: no cut in time lies between them.
        if *of_slice >= min_bytes && begin > last {
            cuts.push(begin);
            bytes.push(size);
            last = begin;
        } else {
            *of_slice += size;
        }
    }
    (!cuts.is_empty()).then_some((cuts, bytes))
}

impl Packets {
    /// The packets of a stream. None if they have no times, or overlap, or differ in class or
    /// number, or if there is none.
    fn new(stream: &StreamFiles, trace: &Trace, clocks: &mut Clocks) -> Option<Self> {
        let class = trace.stream(stream.class)?;
        let scale = class.timescale()?;
        if clocks.differ(trace, class) || !stream.is_uniform() {
            return None;
        }
        let mut begins = Vec::with_capacity(stream.packets());
        let mut last = None;
        for packet in stream.packet_summaries() {
            let begin = Nanoseconds::of_cycles(scale, packet.begin?)?;
            let end = Nanoseconds::of_cycles(scale, packet.end?)?;
            if Some(begin) < last || end < begin {
                return None;
            }
            begins.push(begin);
            last = Some(end);
        }
        let mut with_events = vec![begins.len(); begins.len()];
        let mut next = begins.len();
        let packets = stream.packet_summaries().zip(&mut with_events).enumerate();
        // From the end, because each packet takes the answer from the one after it.
        for (number, (packet, with_events)) in packets.rev() {
            if packet.has_events {
                next = number;
            }
            *with_events = next;
        }
        (!begins.is_empty()).then_some(Self {
            begins,
            with_events,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two streams with a packet each 10 and each 40 nanoseconds, cut at 20 and at 60.
    fn plan() -> SlicePlan {
        let time = |number| Nanoseconds::new(number).unwrap();
        let packets = |begins: Vec<i64>| Packets {
            with_events: (0..begins.len()).collect(),
            begins: begins.into_iter().map(time).collect(),
        };
        SlicePlan {
            threads: 2,
            cuts: vec![time(20), time(60)],
            streams: vec![
                packets((0..8).map(|packet| packet * 10).collect()),
                packets(vec![5, 45, 85]),
            ],
            bytes: vec![3, 5, 3],
        }
    }

    #[test]
    fn a_slice_begins_with_the_packet_before_it_and_ends_with_the_one_behind() {
        let parts: Vec<_> = (0..4).map(|slice| plan().part(slice)).collect();
        let part = |begin, end, packets: [Range<usize>; 2]| {
            Some(TracePart {
                begin,
                end,
                packets: packets.into(),
                checks_times: true,
            })
        };
        let cut = [20, 60].map(Nanoseconds::new);
        assert_eq!(
            parts,
            [
                part(None, cut[0], [0..3, 0..2]),
                part(cut[0], cut[1], [1..7, 0..3]),
                part(cut[1], None, [5..8, 1..3]),
                None,
            ]
        );
        let rest = plan().part(1).unwrap().with_rest(&plan());
        assert_eq!(rest.packets, [1..8, 0..3]);
        assert_eq!(
            (rest.begin, rest.end, rest.checks_times),
            (cut[0], None, false)
        );
    }

    #[test]
    fn a_slice_ends_behind_the_packets_without_events_that_follow_it() {
        let mut plan = plan();
        // The packets from 20 to 50 have none, and neither have the last two.
        plan.streams[0].with_events = vec![0, 1, 6, 6, 6, 6, 8, 8];
        let ranges = [0..7, 1..8, 5..8];
        for (slice, range) in ranges.into_iter().enumerate() {
            assert_eq!(plan.part(slice).unwrap().packets[0], range, "{slice}");
        }
    }
}
