//! Where the time of complete traces is cut into slices.

use std::ops::Range;

use ctf::directory::StreamFiles;
use ctf::metadata::Trace;

use super::CompleteTrace;
use crate::mux::clocks::Clocks;

/// Fewest bytes of packets for which threads are started.
const MIN_BYTES: u64 = 4 << 20;
/// Fewest bytes of packets of a slice: what a thread has rendered waits in memory until it is shown.
const MIN_SLICE_BYTES: u64 = 2 << 20;
/// Largest number of files that all threads together have open: each thread opens one of each stream.
const MAX_OPEN_FILES: usize = 512;

/// What decides how the time is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) threads: usize,
    /// Whether slices may be so small that threads gain nothing.
    pub(crate) is_forced: bool,
    /// Whether events are rendered, which takes several times as long as to find them.
    pub(crate) are_rendered: bool,
}

/// Slices of traces: the times between which they lie.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The time at which each slice but the first begins, in ascending order.
    cuts: Vec<i64>,
    /// Of each stream of all traces: the time at which each of its packets begins.
    streams: Vec<Vec<i64>>,
    /// Bytes of the packets that begin in each slice.
    bytes: Vec<u64>,
}

/// A part of all streams of some traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mux) struct Part {
    /// The earliest time that is shown. None: from the begin.
    pub(in crate::mux) begin: Option<i64>,
    /// The time from which on nothing is shown. None: to the end.
    pub(in crate::mux) end: Option<i64>,
    /// Of each stream of all traces: the packets to be read.
    pub(in crate::mux) packets: Vec<Range<usize>>,
    /// Whether an event whose time is not in its packet, or before that of the event before it, ends the stream.
    pub(in crate::mux) is_strict: bool,
}

impl Plan {
    /// Cuts the time of `traces`. None: they cannot be cut, or are too small.
    pub(crate) fn new(traces: &[CompleteTrace], rules: Rules) -> Option<Self> {
        let Rules {
            threads,
            is_forced,
            are_rendered,
        } = rules;
        let (mut streams, mut packets, mut overlap) = (Vec::new(), Vec::new(), 0);
        let mut clocks = Clocks::default();
        for trace in traces {
            for stream in &trace.streams {
                let begins = begins_of(stream, trace.metadata.trace(), &mut clocks)?;
                overlap += stream.bytes() / begins.len() as u64;
                let sizes = stream.packet_heads().map(|packet| packet.bytes);
                packets.extend(begins.iter().copied().zip(sizes));
                streams.push(begins);
            }
        }
        let total: u64 = packets.iter().map(|(_, bytes)| bytes).sum();
        // A packet of each stream is read for two slices. Where events are only found, that takes a larger part of the time.
        let min_bytes = match (is_forced, are_rendered) {
            (true, _) => total / (4 * threads as u64),
            (false, true) => MIN_SLICE_BYTES.max(overlap),
            (false, false) => MIN_SLICE_BYTES.max(4 * overlap),
        };
        let is_worth_it = is_forced || total >= MIN_BYTES;
        if !is_worth_it || threads < 2 || streams.len() * threads > MAX_OPEN_FILES {
            return None;
        }
        packets.sort_unstable();
        let (mut cuts, mut bytes) = (Vec::new(), vec![0]);
        let mut last = packets.first()?.0;
        for (begin, size) in packets {
            let of_slice = bytes.last_mut()?;
            if *of_slice >= min_bytes && begin > last {
                cuts.push(begin);
                bytes.push(size);
                last = begin;
            } else {
                *of_slice += size;
            }
        }
        (!cuts.is_empty()).then_some(Self {
            cuts,
            streams,
            bytes,
        })
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
    pub(super) fn part(&self, slice: usize) -> Option<Part> {
        if slice >= self.slices() {
            return None;
        }
        let begin = slice
            .checked_sub(1)
            .and_then(|before| self.cuts.get(before));
        let (begin, end) = (begin.copied(), self.cuts.get(slice).copied());
        let packets = self.streams.iter().map(|begins| {
            let before = |time: i64| begins.partition_point(|begin| *begin < time);
            // The packet before may have events behind the begin; with its end, what was lost behind it is known.
            let first = begin.map_or(0, |begin| before(begin).saturating_sub(1));
            // What was lost before the next packet may have been lost in this slice.
            let behind = end.map_or(begins.len(), |end| (before(end) + 1).min(begins.len()));
            first..behind
        });
        Some(Part {
            begin,
            end,
            packets: packets.collect(),
            is_strict: true,
        })
    }
}

impl Part {
    /// The part with all that follows it, whatever times that has.
    pub(super) fn with_rest(self, plan: &Plan) -> Self {
        let lengths = plan.streams.iter().map(Vec::len);
        let packets = self.packets.into_iter().zip(lengths);
        Self {
            end: None,
            packets: packets.map(|(range, length)| range.start..length).collect(),
            is_strict: false,
            ..self
        }
    }
}

/// The times at which the packets of a stream begin. None if packets have no times, or overlap, or if there is none.
fn begins_of(stream: &StreamFiles, trace: &Trace, clocks: &mut Clocks) -> Option<Vec<i64>> {
    let class = trace.stream(stream.class)?;
    let scale = class.timescale()?;
    if clocks.differ(trace, class) {
        return None;
    }
    let mut begins = Vec::with_capacity(stream.packets());
    let mut last = i64::MIN;
    for packet in stream.packet_heads() {
        let begin = scale.nanoseconds(packet.begin?)?;
        let end = scale.nanoseconds(packet.end?)?;
        if begin < last || end < begin {
            return None;
        }
        begins.push(begin);
        last = end;
    }
    (!begins.is_empty()).then_some(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two streams with a packet each 10 and each 40 nanoseconds, cut at 20 and at 60.
    fn plan() -> Plan {
        Plan {
            cuts: vec![20, 60],
            streams: vec![(0..8).map(|packet| packet * 10).collect(), vec![5, 45, 85]],
            bytes: vec![3, 5, 3],
        }
    }

    #[test]
    fn a_slice_begins_with_the_packet_before_it_and_ends_with_the_one_behind() {
        let parts: Vec<_> = (0..4).map(|slice| plan().part(slice)).collect();
        let part = |begin, end, packets: [Range<usize>; 2]| {
            Some(Part {
                begin,
                end,
                packets: packets.into(),
                is_strict: true,
            })
        };
        assert_eq!(
            parts,
            [
                part(None, Some(20), [0..3, 0..2]),
                part(Some(20), Some(60), [1..7, 0..3]),
                part(Some(60), None, [5..8, 1..3]),
                None,
            ]
        );
        let rest = plan().part(1).unwrap().with_rest(&plan());
        assert_eq!(rest.packets, [1..8, 0..3]);
        assert_eq!(
            (rest.begin, rest.end, rest.is_strict),
            (Some(20), None, false)
        );
    }
}
