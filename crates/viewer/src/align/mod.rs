//! The clocks of several hosts, put into relation by the samples that `consumer` has written as
//! events `clock:sample`, or by the TCP packets in their kernel traces.
//!
//! With samples, a host's clock is aligned with the time of day of one relay, to which samples lead
//! directly, or by way of hosts that have asked several relays. Where no samples lead, nothing is
//! guessed.
//!
//! Read in this order: `clock` (which clocks there are), `samples`, this file (how the clocks are
//! related), `live` and `aligner` (the same while samples arrive), `difference`
//! (times that are not corrected); for packets `packets` (events), `matching`
//! (the same packet on two hosts), `network` (how the clocks are related).

pub mod aligner;
mod clock;
pub mod difference;
pub mod live;
mod matching;
mod network;
mod packets;
mod samples;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use clock_offset::{ClockGraph, ClockOffset, ClockSample, ClockTrack};
use ctf::directory::TraceDirectory;
use ctf::metadata::Trace;
use ctf::{TimeCorrection, TimeCorrections};

use self::clock::{Node, TraceClock, host_of};
use self::network::PacketRelations;
use self::samples::{MAX_PAIRS, Samples};
use crate::attach::TraceKey;
use crate::terminal::printable;

/// Difference of two clocks from which on users are told of it, in nanoseconds.
const MIN_REPORTED: u64 = 1_000_000;

/// Largest number of corrections of a trace. Of more, the latest are used.
const MAX_CORRECTIONS: usize = 1 << 16;

/// Times before the first and after the last sample to which offsets are extended, in nanoseconds.
/// Beyond, the correction is that of the last of these times, and its error is not known.
const HORIZONS: [i64; 3] = [60_000_000_000, 3_600_000_000_000, 86_400_000_000_000];

/// What relates the clocks of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlignBy {
    /// The samples that `consumer` has written.
    Samples,
    /// The TCP packets in kernel traces of the hosts.
    Network,
}

impl AlignBy {
    /// What users are told who want to align what is not there as a whole by packets.
    pub const NETWORK_NEEDS: &str = "--align=network needs all packets before the events: it reads only directories that are not being written";
}

/// How clocks are related.
#[derive(Debug, Default)]
pub struct Alignment {
    relations: Relations,
    /// The relay or host whose time of day is the one of all aligned hosts, and by how much that is
    /// ahead of its monotonic clock.
    reference: Option<(Node, i64)>,
}

#[derive(Debug)]
enum Relations {
    Samples {
        graph: ClockGraph<Node>,
        /// Whether samples were left out because they are of too many pairs of hosts and relays.
        has_more_pairs: bool,
    },
    Packets(PacketRelations),
}

impl Default for Relations {
    fn default() -> Self {
        Self::Samples {
            graph: ClockGraph::default(),
            has_more_pairs: false,
        }
    }
}

/// How the clock of a host is aligned. `Display` writes it for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAlignment {
    /// The name of the host.
    pub host: String,
    /// What is added to the times of its events at the last sample or packet, and by how much that
    /// may be wrong. None: the host is unaligned.
    pub offset: Option<ClockOffset>,
    /// The number of samples.
    pub samples: usize,
    /// The number of packets.
    pub packets: usize,
    /// Why no packets align the host, or that its samples may be among those that were left out.
    pub reason: Option<String>,
}

/// How a trace is aligned from now on.
#[derive(Debug)]
pub struct TraceAlignment {
    /// The trace.
    pub trace: TraceKey,
    /// Its host.
    pub host: HostAlignment,
    /// The corrections of its times. Absent while the host is unaligned.
    pub corrections: Option<Arc<TimeCorrections>>,
}

impl Alignment {
    /// Reads the samples of traces, and relates their clocks.
    #[must_use]
    pub fn of_traces(traces: &[TraceDirectory]) -> Self {
        Self::new(&Samples::of_traces(traces), None)
    }

    /// Relates the clocks that were compared. All hosts are aligned with `reference`, or else with
    /// the relay that has the most samples.
    fn new(samples: &Samples, reference: Option<(Node, i64)>) -> Self {
        let mut graph = ClockGraph::default();
        // For each relay the number of its samples, and of the latest its time and time of day.
        let mut relays: BTreeMap<&Node, (usize, (i64, i64))> = BTreeMap::new();
        for ((host, relay), samples) in samples.pairs() {
            graph.add(host, relay, samples);
            let at = |sample: &ClockSample| {
                let there = sample.time.saturating_add(sample.ahead);
                (there, sample.other_realtime)
            };
            let Some(last) = samples.iter().map(at).max() else {
                continue;
            };
            let (count, latest) = relays.entry(relay).or_insert((0, last));
            *count += samples.len();
            *latest = last.max(*latest);
        }
        let most = relays.into_iter().max_by_key(|(_, (count, _))| *count);
        let most = most.map(|(node, (_, (_, realtime)))| (node.clone(), realtime));
        Self {
            relations: Relations::Samples {
                graph,
                has_more_pairs: samples.has_more_pairs,
            },
            reference: reference.or(most),
        }
    }

    /// Reads the packets of kernel traces, and relates the clocks of their hosts.
    #[must_use]
    pub fn of_packets(traces: &[TraceDirectory]) -> Self {
        let relations = PacketRelations::of_traces(traces);
        Self {
            reference: relations.reference(traces),
            relations: Relations::Packets(relations),
        }
    }

    /// How the host of a trace is aligned. None if the trace does not name it.
    #[must_use]
    pub fn host(&self, trace: &Trace) -> Option<HostAlignment> {
        let host = host_of(trace)?.to_owned();
        let clock = TraceClock::of(trace);
        let offset = clock.as_ref().and_then(|clock| {
            let last = self.last_comparison(clock)?;
            self.offset(clock, last)
        });
        let node = clock.as_ref().map(|clock| &clock.node);
        let (mut samples, mut packets) = (0, 0);
        let reason = match &self.relations {
            Relations::Samples {
                graph,
                has_more_pairs,
            } => {
                let tracks = node.into_iter().flat_map(|node| graph.tracks_of(node));
                samples = tracks.map(|(_, track)| track.samples().count()).sum();
                let may_be_left_out = *has_more_pairs && node.is_some() && samples == 0;
                may_be_left_out.then(|| {
                    format!("only the samples of {MAX_PAIRS} pairs of a host and a relay are used")
                })
            }
            Relations::Packets(relations) => {
                packets = node.map_or(0, |node| relations.packets_of(node));
                offset.is_none().then(|| relations.reason(node))
            }
        };
        Some(HostAlignment {
            host,
            offset,
            samples,
            packets,
            reason,
        })
    }

    /// Returns what there is to say of all hosts together.
    fn remarks(&self) -> Vec<String> {
        match &self.relations {
            Relations::Samples { .. } => Vec::new(),
            Relations::Packets(relations) => relations.remarks(self.reference.as_ref()),
        }
    }

    /// Returns the corrections of the times of a trace. None if its host is unaligned.
    #[must_use]
    pub fn corrections(&self, trace: &Trace) -> Option<Arc<TimeCorrections>> {
        let clock = TraceClock::of(trace)?;
        let points = self.points(&clock, i64::MIN, i64::MIN)?;
        Some(Arc::new(TimeCorrections::new(&points)))
    }

    /// Returns the corrections of a trace after a time of its clock, such that no time before
    /// `last` results, and that times do not go back. None if its host is unaligned.
    fn points(&self, clock: &TraceClock, after: i64, mut last: i64) -> Option<Vec<TimeCorrection>> {
        let bends = match &self.relations {
            Relations::Samples { graph, .. } => bends_of(graph, &clock.node),
            Relations::Packets(relations) => bends_of(relations.graph(), &clock.node),
        };
        let (first, end) = (*bends.iter().min()?, *bends.iter().max()?);
        let outside =
            HORIZONS.map(|horizon| [first.saturating_sub(horizon), end.saturating_add(horizon)]);
        let later = bends.into_iter().chain(outside.into_iter().flatten());
        let later = later.filter(|time| *time > after);
        // What comes next is corrected by what is known now.
        let next = after.checked_add(1).filter(|_| after > i64::MIN);
        let mut times: Vec<i64> = later.chain(next).collect();
        times.sort_unstable();
        times.dedup();
        times.drain(..times.len().saturating_sub(MAX_CORRECTIONS));
        let mut points: Vec<TimeCorrection> = Vec::new();
        // What the point before says of the times from it on: its time, offset and hold.
        let mut before: Option<(i64, ClockOffset, u64)> = None;
        for time in times {
            let offset = self.offset(clock, time)?;
            let shown = time.checked_add(clock.offset)?;
            // Where the clock of the relay had stopped, the offset falls faster than time passes.
            let estimate = shown.checked_add(offset.ahead)?;
            last = last.max(estimate);
            let held_back = last.abs_diff(estimate);
            if let (Some((from, begin, held)), Some(point)) = (before, points.last_mut()) {
                let middle = self.offset(clock, from.midpoint(time))?;
                let hold = held.max(held_back);
                point.error = largest_error(begin, middle, offset).saturating_add(hold);
            }
            before = Some((time, offset, held_back));
            points.push(TimeCorrection {
                time: shown,
                ahead: last.checked_sub(shown)?,
                error: 0,
            });
        }
        Some(points).filter(|points| !points.is_empty())
    }

    /// Returns the time of the last sample or packet of a clock.
    fn last_comparison(&self, clock: &TraceClock) -> Option<i64> {
        let graph = match &self.relations {
            Relations::Samples { graph, .. } => graph,
            Relations::Packets(relations) => return relations.last_packet(&clock.node),
        };
        let tracks = graph.tracks_of(&clock.node);
        let last = tracks.filter_map(|(_, track)| track.samples().next_back());
        last.map(|sample| sample.time).max()
    }

    /// Returns what is to be added to times of a trace, at a time of its monotonic clock.
    fn offset(&self, clock: &TraceClock, time: i64) -> Option<ClockOffset> {
        let (reference, realtime) = self.reference.as_ref()?;
        let offset = match &self.relations {
            Relations::Samples { graph, .. } => graph.offset(&clock.node, time, reference)?,
            Relations::Packets(relations) => {
                relations.graph().offset(&clock.node, time, reference)?
            }
        };
        let since_1970 = offset.ahead.checked_add(*realtime)?;
        Some(ClockOffset {
            ahead: since_1970.checked_sub(clock.offset)?,
            ..offset
        })
    }
}

/// By how much a line between two offsets may be wrong, if the middle one is that of the time in
/// the middle: the errors are at most quadratic functions of the time, as in `clock_offset`.
fn largest_error(begin: ClockOffset, middle: ClockOffset, end: ClockOffset) -> u64 {
    let bulge = middle.error.saturating_sub(begin.error.midpoint(end.error));
    let beside = middle.ahead.abs_diff(begin.ahead.midpoint(end.ahead));
    let ends = begin.error.max(end.error);
    ends.saturating_add(bulge)
        .saturating_add(beside)
        .saturating_add(2)
}

/// Returns the times at which the offsets of a clock from others bend, in any order.
fn bends_of<T: ClockTrack>(graph: &ClockGraph<Node, T>, node: &Node) -> Vec<i64> {
    let tracks = graph.tracks_of(node);
    tracks.flat_map(|(_, track)| track.bends()).collect()
}

/// Corrects the times of a trace in directories. Returns the corrections, unless its host is
/// unaligned.
fn correct_directory(
    trace: &mut TraceDirectory,
    alignment: &Alignment,
) -> Option<Arc<TimeCorrections>> {
    let corrections = alignment.corrections(trace.metadata.trace())?;
    trace.metadata.correct_times(Arc::clone(&corrections));
    Some(corrections)
}

/// Corrects the times of a trace in directories. None if it does not name its host.
pub(crate) fn align_directory(
    key: TraceKey,
    trace: &mut TraceDirectory,
    alignment: &Alignment,
) -> Option<TraceAlignment> {
    let corrections = correct_directory(trace, alignment);
    Some(TraceAlignment {
        trace: key,
        host: alignment.host(trace.metadata.trace())?,
        corrections,
    })
}

/// The clocks of the hosts of several traces.
#[derive(Debug, Default)]
pub struct AlignedHosts {
    hosts: Vec<HostAlignment>,
    remarks: Vec<String>,
}

impl AlignedHosts {
    /// Aligns traces in directories, and corrects their times if that is wanted. `alignment` says
    /// how clocks are related; if it is absent, these traces do.
    pub fn of_traces(
        traces: &mut [TraceDirectory],
        alignment: Option<&Alignment>,
        by: Option<AlignBy>,
    ) -> Self {
        let own = alignment.is_none().then(|| match by {
            Some(AlignBy::Network) => Alignment::of_packets(traces),
            Some(AlignBy::Samples) | None => Alignment::of_traces(traces),
        });
        let Some(alignment) = alignment.or(own.as_ref()) else {
            return Self::default();
        };
        let mut hosts = Self {
            hosts: Vec::new(),
            remarks: alignment.remarks(),
        };
        for trace in traces {
            if let Some(host) = alignment.host(trace.metadata.trace()) {
                hosts.add(host);
            }
            if by.is_some() {
                correct_directory(trace, alignment);
            }
        }
        hosts
    }

    /// Adds what is known of the host of a trace. Returns whether it is new.
    pub fn add(&mut self, found: HostAlignment) -> bool {
        // The offset of each trace is measured, with some microseconds of error.
        let is_like = |known: &HostAlignment| {
            let is_near = match (known.offset, found.offset) {
                (Some(one), Some(other)) => one.ahead.abs_diff(other.ahead) < MIN_REPORTED,
                (one, other) => one == other,
            };
            known.host == found.host && is_near
        };
        if self.hosts.iter().any(is_like) {
            return false;
        }
        let place = self.hosts.partition_point(|known| known.host <= found.host);
        self.hosts.insert(place, found);
        true
    }

    /// The hosts, in the order of their names. A host whose traces have several clocks has several
    /// entries.
    #[must_use]
    pub fn hosts(&self) -> &[HostAlignment] {
        &self.hosts
    }

    /// What there is to say of all hosts together.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// By how much the clocks of two hosts differ at least, in nanoseconds, if users should know.
    fn reported_difference(&self) -> Option<u64> {
        let known = || {
            let offsets = self.hosts.iter().map(|host| (&host.host, host.offset));
            offsets.filter_map(|(host, offset)| Some((host, offset?)))
        };
        let pairs = known().flat_map(|one| known().map(move |other| (one, other)));
        let pairs = pairs.filter(|((one, _), (other, _))| one != other);
        let least = |((_, one), (_, other)): ((_, ClockOffset), (_, ClockOffset))| {
            let difference = one.ahead.abs_diff(other.ahead);
            difference.saturating_sub(one.error.saturating_add(other.error))
        };
        let largest = pairs.map(least).max();
        largest.filter(|difference| *difference > MIN_REPORTED)
    }

    /// Returns what users should know: how each host is aligned, or, if times are shown as they
    /// are, that this may be misleading.
    #[must_use]
    pub fn notices(&self, is_aligned: bool) -> Vec<String> {
        if is_aligned {
            let hosts = self.hosts.iter().map(ToString::to_string);
            return hosts.chain(self.remarks.iter().cloned()).collect();
        }
        let text = |difference| {
            let difference = Millis(difference);
            format!(
                "the clocks of hosts differ by {difference}, and their events may be in the wrong order; --align corrects the times"
            )
        };
        self.reported_difference().map(text).into_iter().collect()
    }
}

impl fmt::Display for HostAlignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from traces: no character of theirs may control the terminal.
        let host: String = printable(&self.host).collect();
        let Some(ClockOffset { ahead, error }) = self.offset else {
            write!(f, "{host}: unaligned")?;
            let mut reason = self.reason.iter();
            return reason.try_for_each(|reason| write!(f, ": {reason}"));
        };
        let sign = if ahead < 0 { '-' } else { '+' };
        let (ahead, error) = (Millis(ahead.unsigned_abs()), Millis(error));
        let (count, what) = match self.packets {
            0 => (self.samples, "sample"),
            packets => (packets, "packet"),
        };
        let plural = if count == 1 { "" } else { "s" };
        write!(
            f,
            "{host}: {sign}{ahead} ± {error} ({count} {what}{plural})"
        )
    }
}

/// Nanoseconds that are shown as milliseconds, rounded up: an error must not be larger than what is
/// shown.
struct Millis(u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.div_ceil(1000);
        write!(f, "{}.{:03} ms", micros / 1000, micros % 1000)
    }
}
