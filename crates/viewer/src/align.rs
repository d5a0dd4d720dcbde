//! The clocks of several hosts, put into relation by the samples that `consumer` has written as
//! events `clock:sample`.
//!
//! A host's clock is aligned with the time of day of one relay, to which samples lead directly, or
//! by way of hosts that have asked several relays. Where no samples lead, nothing is guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clock_offset::{ClockGraph, ClockOffset, ClockSample};
use ctf::directory::TraceDirectory;
use ctf::metadata::Trace;
use ctf::model::{EnvironmentValue, Uuid};
use ctf::{Event, TimeCorrection, TimeCorrections};

use crate::terminal::printable;

/// The name of the events that are samples.
const SAMPLE: &str = "clock:sample";

/// Difference of two clocks from which on users are told of it, in nanoseconds.
const MIN_REPORTED: u64 = 1_000_000;

/// A monotonic clock: what it counts from, and the host, since containers of one kernel may have
/// clocks of their own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Host { name: String, boot: Uuid },
    Relay { boot: Uuid },
}

/// The clocks of traces, and how they are related.
#[derive(Debug, Default)]
pub struct Alignment {
    graph: ClockGraph<Node>,
    /// The relay whose time of day is the one of all aligned hosts, and by how much that is ahead
    /// of its monotonic clock.
    reference: Option<(Node, i64)>,
    hosts: Vec<HostAlignment>,
}

/// How the clock of a host is aligned. `Display` writes it for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAlignment {
    /// The name of the host.
    pub host: String,
    /// What is added to the times of its events at the last sample, and by how much that may be
    /// wrong. None: the host is unaligned.
    pub offset: Option<ClockOffset>,
    /// The number of samples.
    pub samples: usize,
}

/// The clock of a trace.
struct TraceClock {
    node: Node,
    /// Nanoseconds from 1970 to the zero of the clock.
    offset: i64,
}

impl TraceClock {
    /// None unless the trace names its host, and has one clock in nanoseconds that is identified.
    fn of(trace: &Trace) -> Option<Self> {
        let Some(EnvironmentValue::Text(host)) = trace.environment_value("hostname") else {
            return None;
        };
        let [clock] = trace.clocks() else { return None };
        let seconds = clock.offset_seconds.checked_mul(1_000_000_000)?;
        let rest = i64::try_from(clock.offset_cycles).ok()?;
        (clock.frequency == 1_000_000_000).then_some(())?;
        Some(Self {
            node: Node::Host {
                name: host.to_string(),
                boot: clock.uuid?,
            },
            offset: seconds.checked_add(rest)?,
        })
    }
}

impl Alignment {
    /// Reads the samples of traces, and relates their clocks.
    #[must_use]
    pub fn of_traces(traces: &[TraceDirectory]) -> Self {
        let mut alignment = Self::default();
        // For each pair of a host and a relay.
        let mut samples: BTreeMap<(Node, Node), Vec<ClockSample>> = BTreeMap::new();
        for trace in traces {
            let declared = trace.metadata.trace();
            let Some(clock) = TraceClock::of(declared).filter(|_| has_samples(declared)) else {
                continue;
            };
            let events = trace
                .paths
                .iter()
                .filter_map(|path| ctf::Trace::open(path).ok());
            // What cannot be read is reported when the events are shown.
            let events = events.flat_map(|trace| trace.events()).flatten();
            for (relay, sample) in events.filter_map(|event| read_sample(&event, &clock)) {
                let pair = (clock.node.clone(), relay);
                samples.entry(pair).or_default().push(sample);
            }
        }
        // For each relay the number of its samples, and of the latest its time and time of day.
        let mut relays: BTreeMap<Node, (usize, (i64, i64))> = BTreeMap::new();
        for ((host, relay), samples) in samples {
            alignment.graph.add(&host, &relay, &samples);
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
        let reference = relays.into_iter().max_by_key(|(_, (count, _))| *count);
        alignment.reference = reference.map(|(node, (_, (_, realtime)))| (node, realtime));
        alignment.describe_hosts(traces);
        alignment
    }

    /// The hosts of the traces, in the order of their names. A host whose traces have several
    /// clocks has several entries.
    #[must_use]
    pub fn hosts(&self) -> &[HostAlignment] {
        &self.hosts
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
            return self.hosts.iter().map(ToString::to_string).collect();
        }
        let text = |difference| {
            let difference = Millis(difference);
            format!(
                "the clocks of hosts differ by {difference}, and their events may be in the wrong order; --align corrects the times"
            )
        };
        self.reported_difference().map(text).into_iter().collect()
    }

    /// Corrects the times of all traces whose clocks are known.
    pub fn apply_to(&self, traces: &mut [TraceDirectory]) {
        for trace in traces {
            let Some(clock) = TraceClock::of(trace.metadata.trace()) else {
                continue;
            };
            let corrections = self.corrections(&clock, trace);
            // For as long as the process lives, as the traces that it reads: the conversion of
            // times is copied for each packet, and must not count references.
            let corrections = Box::new(TimeCorrections::new(&corrections));
            trace.metadata.correct_times(Box::leak(corrections));
        }
    }

    /// Returns the corrections of a trace, such that its times do not go back.
    fn corrections(&self, clock: &TraceClock, trace: &TraceDirectory) -> Vec<TimeCorrection> {
        let tracks = self.graph.tracks_of(&clock.node);
        let mut times: BTreeSet<i64> = tracks.flat_map(|(_, track)| track.bends()).collect();
        for (begin, end) in trace.streams.iter().filter_map(|stream| stream.span()) {
            times.extend([begin, end].map(|cycles| i64::try_from(cycles).unwrap_or(i64::MAX)));
        }
        let mut last = i64::MIN;
        let points = times.into_iter().filter_map(|time| {
            let offset = self.offset(clock, time)?;
            let time = time.checked_add(clock.offset)?;
            // Where the clock of the relay had stopped, the offset falls faster than time passes.
            last = last.max(time.checked_add(offset.ahead)?);
            let ahead = last.checked_sub(time)?;
            Some(TimeCorrection { time, ahead })
        });
        points.collect()
    }

    /// Returns what is to be added to times of a trace, at a time of its monotonic clock.
    fn offset(&self, clock: &TraceClock, time: i64) -> Option<ClockOffset> {
        let (reference, realtime) = self.reference.as_ref()?;
        let offset = self.graph.offset(&clock.node, time, reference)?;
        let since_1970 = offset.ahead.checked_add(*realtime)?;
        Some(ClockOffset {
            ahead: since_1970.checked_sub(clock.offset)?,
            ..offset
        })
    }

    fn describe_hosts(&mut self, traces: &[TraceDirectory]) {
        for trace in traces {
            let Some(clock) = TraceClock::of(trace.metadata.trace()) else {
                self.add_unidentified(trace.metadata.trace());
                continue;
            };
            let Node::Host { name, .. } = &clock.node else {
                continue;
            };
            let tracks = || self.graph.tracks_of(&clock.node).map(|(_, track)| track);
            let last = tracks().filter_map(|track| track.samples().next_back());
            let last = last.map(|sample| sample.time).max();
            self.add_host(HostAlignment {
                host: name.clone(),
                offset: last.and_then(|last| self.offset(&clock, last)),
                samples: tracks().map(|track| track.samples().count()).sum(),
            });
        }
        self.hosts.sort_by(|a, b| a.host.cmp(&b.host));
    }

    fn add_unidentified(&mut self, trace: &Trace) {
        if let Some(EnvironmentValue::Text(host)) = trace.environment_value("hostname") {
            self.add_host(HostAlignment {
                host: host.to_string(),
                offset: None,
                samples: 0,
            });
        }
    }

    fn add_host(&mut self, found: HostAlignment) {
        // The offset of each trace is measured, with some microseconds of error.
        let is_like = |known: &HostAlignment| {
            let is_near = match (known.offset, found.offset) {
                (Some(one), Some(other)) => one.ahead.abs_diff(other.ahead) < MIN_REPORTED,
                (one, other) => one == other,
            };
            known.host == found.host && is_near
        };
        if !self.hosts.iter().any(is_like) {
            self.hosts.push(found);
        }
    }
}

impl fmt::Display for HostAlignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names come from traces: no character of theirs may control the terminal.
        let host: String = printable(&self.host).collect();
        let Some(ClockOffset { ahead, error }) = self.offset else {
            return write!(f, "{host}: unaligned");
        };
        let sign = if ahead < 0 { '-' } else { '+' };
        let (ahead, error) = (Millis(ahead.unsigned_abs()), Millis(error));
        let samples = self.samples;
        let plural = if samples == 1 { "" } else { "s" };
        write!(
            f,
            "{host}: {sign}{ahead} ± {error} ({samples} sample{plural})"
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

fn has_samples(trace: &Trace) -> bool {
    let mut classes = trace.streams().flat_map(|stream| stream.events());
    classes.any(|class| class.name() == Some(SAMPLE))
}

/// Reads a sample: the clock of the relay's host, and how far it was ahead of that of the trace.
fn read_sample(event: &Event, clock: &TraceClock) -> Option<(Node, ClockSample)> {
    if &*event.name != SAMPLE {
        return None;
    }
    let number = |name: &str| event.field(name)?.as_i64();
    let relay_realtime = number("relay_realtime")?;
    let time_of_day = clock.offset.checked_add(number("ahead")?)?;
    let sample = ClockSample {
        time: i64::try_from(event.cycles.0).ok()?,
        ahead: time_of_day.checked_sub(relay_realtime)?,
        error: event.field("error")?.as_u64()?,
        realtime: clock.offset.checked_add(number("realtime")?)?,
        other_realtime: relay_realtime,
    };
    let boot = Uuid::parse(event.field("relay_boot")?.as_str()?);
    // A relay whose system does not tell the id has zeros.
    let boot = boot.filter(|boot| boot.0 != [0; 16])?;
    Some((Node::Relay { boot }, sample))
}
