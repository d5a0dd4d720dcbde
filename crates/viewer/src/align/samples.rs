//! Samples are read from events.

use std::collections::{BTreeMap, BTreeSet};

use clock_offset::ClockSample;
use ctf::decode::{Event, NumberFormat, Visitor};
use ctf::directory::TraceDirectory;
use ctf::metadata::Trace;
use ctf::model::{Scope, Uuid};

use super::clock::{Node, TraceClock};
use crate::attach::{Packet, TraceInfo, TraceKey};
use crate::mux::{Mux, Stage};
use crate::sink::{Loss, Origin, SinkError};
use crate::time::Nanoseconds;

/// The name of the events that are samples.
const SAMPLE: &str = "clock:sample";
/// Largest numbers of pairs of a host and a relay, and of relays: traces may name any, and the way
/// from each host to the others is searched among them.
const MAX_PAIRS: usize = 1024;
const MAX_RELAYS: usize = 16;
/// Largest number of a sample that is used, of nanoseconds: 73 years. Sums of some do not overflow.
const MAX_NANOSECONDS: u64 = 1 << 61;

/// The samples of each pair of a host and a relay.
#[derive(Debug)]
pub(super) struct Samples {
    pairs: BTreeMap<(Node, Node), Vec<ClockSample>>,
    /// Largest number of samples of a pair: the latest are kept.
    pub(super) max_of_pair: usize,
    /// Whether a sample has come since this was reset.
    pub(super) are_new: bool,
    /// Whether one of them is the first of its host and relay.
    pub(super) are_first: bool,
}

impl Samples {
    /// Reads the samples of traces.
    pub(super) fn of_traces(traces: &[TraceDirectory]) -> Self {
        let mut samples = Self {
            pairs: BTreeMap::new(),
            max_of_pair: usize::MAX,
            are_new: false,
            are_first: false,
        };
        let mut mux = Mux::new();
        mux.set_unordered();
        for trace in traces.iter().filter(|trace| has_samples(trace)) {
            // What cannot be read is reported when the events are shown.
            let opened = ctf::directory::open(&trace.paths);
            for trace in opened.into_iter().flat_map(|opened| opened.traces) {
                let _ = mux.add_directory(TraceKey::fresh(), trace, &mut samples);
            }
        }
        let _ = mux.run(&mut samples, &|| false);
        samples
    }

    /// Samples of a host and a relay.
    #[cfg(test)]
    pub(super) fn of_pair(pair: (Node, Node), samples: Vec<ClockSample>) -> Self {
        Self {
            pairs: [(pair, samples)].into(),
            max_of_pair: usize::MAX,
            are_new: false,
            are_first: false,
        }
    }

    /// The samples of each pair, each pair in the order of their events.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&(Node, Node), &Vec<ClockSample>)> {
        self.pairs.iter()
    }

    /// Adds the sample that an event is.
    pub(super) fn add_event(&mut self, event: &Event<'_>) {
        if let Some(clock) = TraceClock::of(event.trace())
            && let Some((relay, sample)) = read_sample(event, &clock)
        {
            self.add((clock.node, relay), sample);
        }
    }

    fn add(&mut self, pair: (Node, Node), sample: ClockSample) {
        if !self.pairs.contains_key(&pair) {
            let relays: BTreeSet<&Node> = self.pairs.keys().map(|(_, relay)| relay).collect();
            let is_new_relay = !relays.contains(&pair.1);
            if self.pairs.len() >= MAX_PAIRS || is_new_relay && relays.len() >= MAX_RELAYS {
                return;
            }
            self.are_first = true;
        }
        let samples = self.pairs.entry(pair).or_default();
        if samples.len() >= self.max_of_pair {
            // Half at once, so that this is rare.
            samples.sort_unstable_by_key(|sample| sample.time);
            samples.drain(..samples.len() / 2);
        }
        samples.push(sample);
        self.are_new = true;
    }
}

impl Stage for Samples {
    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        _origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        if is_sample(event) {
            self.add_event(event);
        }
        Ok(true)
    }

    fn packet(&mut self, _packet: &Packet, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _bytes: &[u8], _trace: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn report_failure(&mut self, _what: &str) {}

    fn report_warning(&mut self, _what: &str) {}
}

/// Whether an event says that it is a sample.
#[inline]
pub(super) fn is_sample(event: &Event<'_>) -> bool {
    event.class().name() == Some(SAMPLE)
}

fn has_samples(trace: &TraceDirectory) -> bool {
    let declared: &Trace = trace.metadata.trace();
    let mut classes = declared.streams().flat_map(|stream| stream.events());
    classes.any(|class| class.name() == Some(SAMPLE))
}

/// Reads a sample: the clock of the relay's host, and how far it was ahead of that of the trace.
fn read_sample(event: &Event<'_>, clock: &TraceClock) -> Option<(Node, ClockSample)> {
    let mut fields = SampleFields::default();
    event.visit_fields(&mut fields).ok()?;
    let relay_realtime = fields.relay_realtime?;
    let time_of_day = clock.offset.checked_add(fields.ahead?)?;
    let sample = ClockSample {
        time: i64::try_from(event.cycles()).ok()?,
        ahead: time_of_day.checked_sub(relay_realtime)?,
        error: u64::try_from(fields.error?).ok()?,
        realtime: clock.offset.checked_add(fields.realtime?)?,
        other_realtime: relay_realtime,
    };
    let numbers = [sample.ahead, sample.realtime, sample.other_realtime].map(i64::unsigned_abs);
    let are_small = numbers.iter().all(|number| *number <= MAX_NANOSECONDS);
    let is_used = are_small && sample.error <= MAX_NANOSECONDS && event.cycles() <= MAX_NANOSECONDS;
    is_used.then_some(())?;
    // A relay whose system does not tell the id has zeros.
    let boot = fields.relay_boot.filter(|boot| boot.0 != [0; 16])?;
    Some((Node::Relay { boot }, sample))
}

/// The fields of the payload of a sample.
#[derive(Default)]
struct SampleFields {
    is_payload: bool,
    member: Option<Member>,
    ahead: Option<i64>,
    error: Option<i64>,
    realtime: Option<i64>,
    relay_realtime: Option<i64>,
    relay_boot: Option<Uuid>,
}

#[derive(Clone, Copy)]
enum Member {
    Ahead,
    Error,
    Realtime,
    RelayRealtime,
    RelayBoot,
}

impl Visitor for SampleFields {
    fn begin_scope(&mut self, scope: Scope) {
        self.is_payload = scope == Scope::Payload;
    }

    fn member(&mut self, name: &str) {
        self.member = match name {
            _ if !self.is_payload => None,
            "ahead" => Some(Member::Ahead),
            "error" => Some(Member::Error),
            "realtime" => Some(Member::Realtime),
            "relay_realtime" => Some(Member::RelayRealtime),
            "relay_boot" => Some(Member::RelayBoot),
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        if let Ok(value) = i64::try_from(value) {
            self.signed(value, format);
        }
    }

    fn signed(&mut self, value: i64, _format: NumberFormat<'_>) {
        let field = match self.member {
            Some(Member::Ahead) => &mut self.ahead,
            Some(Member::Error) => &mut self.error,
            Some(Member::Realtime) => &mut self.realtime,
            Some(Member::RelayRealtime) => &mut self.relay_realtime,
            Some(Member::RelayBoot) | None => return,
        };
        *field = Some(value);
    }

    fn text(&mut self, bytes: &[u8]) {
        if let Some(Member::RelayBoot) = self.member {
            self.relay_boot = std::str::from_utf8(bytes).ok().and_then(Uuid::parse);
        }
    }
}
