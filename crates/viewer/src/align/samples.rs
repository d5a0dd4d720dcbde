//! Samples are read from events.

use std::collections::BTreeMap;

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
/// Largest number of pairs of a host and a relay: traces may name any, and the way from each host
/// to the others is searched among them.
pub(super) const MAX_PAIRS: usize = 1024;
/// Largest number of samples of all pairs that are read before the events: a year of them of one
/// host. With what follows from them they need some 250 MB.
const MAX_SAMPLES: usize = 1 << 20;
/// Largest number of a sample that is used, of nanoseconds: 73 years. Sums of some do not overflow.
const MAX_NANOSECONDS: u64 = 1 << 61;

/// The samples of each pair of a host and a relay.
#[derive(Debug)]
pub(super) struct Samples {
    pairs: BTreeMap<(Node, Node), Vec<ClockSample>>,
    count: usize,
    /// Largest number of samples of all pairs. With more, the pair that has most keeps every second
    /// one, so that no host takes the place of others: the offset between is known less exactly.
    pub(super) max: usize,
    /// Whether samples were left out because they are of too many pairs.
    pub(super) has_more_pairs: bool,
    /// Whether a sample has come since this was reset.
    pub(super) are_new: bool,
    /// Whether one of them is the first of its host and relay.
    pub(super) are_first: bool,
}

impl Samples {
    /// No samples, and at most so many to come.
    pub(super) fn with_max(max: usize) -> Self {
        Self {
            pairs: BTreeMap::new(),
            count: 0,
            max,
            has_more_pairs: false,
            are_new: false,
            are_first: false,
        }
    }

    /// Reads the samples of traces.
    pub(super) fn of_traces(traces: &[TraceDirectory]) -> Self {
        let mut samples = Self::with_max(MAX_SAMPLES);
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
            count: samples.len(),
            pairs: [(pair, samples)].into(),
            ..Self::with_max(MAX_SAMPLES)
        }
    }

    /// The samples of each pair.
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
            if self.pairs.len() >= MAX_PAIRS {
                self.has_more_pairs = true;
                return;
            }
            self.are_first = true;
        }
        if self.count >= self.max
            && let Some(most) = self.pairs.values_mut().max_by_key(|samples| samples.len())
        {
            self.count -= thin_out(most);
        }
        self.count += 1;
        let samples = self.pairs.entry(pair).or_default();
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

/// Removes every second sample, but neither the first nor the latest: of late times, which matter
/// most while samples come, more are left than of early ones. Returns how many.
fn thin_out(samples: &mut Vec<ClockSample>) -> usize {
    samples.sort_unstable_by_key(|sample| sample.time);
    let before = samples.len();
    let mut left = before;
    samples.retain(|_| {
        left -= 1;
        left.is_multiple_of(2) || left + 1 == before
    });
    // The next pair that has most needs the memory.
    samples.shrink_to_fit();
    before - samples.len()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: i64) -> ClockSample {
        ClockSample {
            time,
            ahead: 0,
            error: 1,
            realtime: 0,
            other_realtime: 0,
        }
    }

    fn pair(host: usize) -> (Node, Node) {
        let boot = Uuid([1; 16]);
        let name = format!("host-{host}");
        (Node::Host { name, boot }, Node::Relay { boot })
    }

    #[test]
    fn many_samples_of_one_host_leave_those_of_others_and_its_own_first_and_latest() {
        let mut samples = Samples::with_max(100);
        for time in 0..30 {
            samples.add(pair(1), sample(time));
        }
        for time in 0..10_000 {
            samples.add(pair(2), sample(time));
            let all: usize = samples.pairs().map(|(_, samples)| samples.len()).sum();
            assert!(all <= 100 && all == samples.count, "{all}");
        }
        let times = |host| -> Vec<_> {
            let samples = &samples.pairs[&pair(host)];
            samples.iter().map(|sample| sample.time).collect()
        };
        assert_eq!(times(1), (0..30).collect::<Vec<_>>());
        let times = times(2);
        assert_eq!([times[0], times[times.len() - 1]], [0, 9_999]);
        assert!(times.is_sorted() && times.len() > 30, "{times:?}");
    }

    #[test]
    fn samples_of_too_many_pairs_are_left_out() {
        let mut samples = Samples::of_pair(pair(0), vec![sample(0)]);
        for host in 1..MAX_PAIRS {
            samples.add(pair(host), sample(0));
        }
        assert!(!samples.has_more_pairs);
        samples.add(pair(MAX_PAIRS), sample(0));
        assert!(samples.has_more_pairs);
        assert_eq!(samples.pairs().count(), MAX_PAIRS);
    }
}
