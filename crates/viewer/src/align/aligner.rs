//! Traces that are being read are aligned, and aligned again when samples come.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ctf::metadata::Trace;
use ctf::{TimeCorrection, TimeCorrections};
use tokio::time::Instant;

use super::clock::TraceClock;
use super::live::{LatestAlignment, SampleSources};
use super::{Alignment, MAX_CORRECTIONS, TraceAlignment};
use crate::attach::{StreamKey, TraceKey};
use crate::mux::Mux;

/// Longest time for which the events of a host that has appeared wait for its first sample, which
/// its agent normally takes in less than a second.
const MAX_FIRST_SAMPLE_WAIT: Duration = Duration::from_secs(2);
/// Time between two looks whether the first sample of such a host has come.
const SAMPLE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Corrects the times of traces that are being read, as samples come.
pub struct Aligner {
    latest: LatestAlignment,
    traces: HashMap<TraceKey, AlignedTrace>,
    /// When newcomers were held last, after others had not been held for as long.
    hold_begun: Option<Instant>,
}

#[derive(Debug, Default)]
struct AlignedTrace {
    points: Vec<TimeCorrection>,
    /// Absent while the host is unaligned.
    corrections: Option<Arc<TimeCorrections>>,
    /// The time of the last sample that they follow from.
    last_sample: Option<i64>,
    /// The latest time of the trace that has been corrected.
    reached: Option<u64>,
    is_reported: bool,
    /// The time until which newcomers of the trace are held. Absent before the first has come.
    until: Option<Instant>,
    /// Whether newcomers are held.
    is_held: bool,
}

impl Aligner {
    /// Corrects times by what these samples say.
    #[must_use]
    pub fn new(samples: &SampleSources) -> Self {
        Self {
            latest: samples.latest.clone(),
            traces: HashMap::new(),
            hold_begun: None,
        }
    }

    /// Aligns a trace of which a mux has handled metadata, before the mux handles what comes next.
    /// Returns how it is aligned, when that is known first.
    pub fn add_metadata(&mut self, key: TraceKey, mux: &mut Mux) -> Option<TraceAlignment> {
        let trace = self.traces.entry(key).or_default();
        trace.extend(key, &self.latest.known, mux)
    }

    /// Holds a stream that has come after others had begun, until its host has a sample, but not
    /// for long. To be called when a mux has handled it, before anything arrives on it.
    pub fn hold_newcomer(&mut self, stream: StreamKey, trace: TraceKey, mux: &mut Mux) {
        let trace = self.traces.entry(trace).or_default();
        let now = Instant::now();
        // Hosts that appear all the time are held for half of it, because others wait for them.
        let is_recent = |begun: &Instant| now < *begun + 2 * MAX_FIRST_SAMPLE_WAIT;
        let begun = self.hold_begun.filter(is_recent).unwrap_or(now);
        self.hold_begun = Some(begun);
        let until = *trace.until.get_or_insert(begun + MAX_FIRST_SAMPLE_WAIT);
        if trace.corrections.is_none() && now < until {
            trace.is_held = true;
            mux.await_corrections(stream);
        }
    }

    /// Returns when to call [`refresh`](Self::refresh) again, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        let held = self.traces.values().filter(|trace| trace.is_held);
        let until = held.filter_map(|trace| trace.until).min();
        // That samples have come wakes nobody.
        until.map(|until| until.min(Instant::now() + SAMPLE_CHECK_INTERVAL).into_std())
    }

    /// Releases the newcomers of hosts that have a sample by now or have been held for long; and
    /// all, if no more samples can come.
    pub fn release_newcomers(&mut self, mux: &mut Mux, is_end: bool) {
        let now = Instant::now();
        for (key, trace) in &mut self.traces {
            let is_over = is_end || trace.until.is_none_or(|until| until <= now);
            if trace.is_held && (is_over || trace.corrections.is_some()) {
                trace.is_held = false;
                mux.stop_awaiting_corrections(*key);
            }
        }
    }

    /// Takes over samples that have come. To be called with all muxes of aligned traces before they
    /// are run. Returns the traces whose corrections have changed.
    pub fn refresh<'m>(
        &mut self,
        muxes: impl IntoIterator<Item = &'m mut Mux>,
    ) -> Vec<TraceAlignment> {
        let mut changed = Vec::new();
        if !self.latest.refresh() {
            return changed;
        }
        let (alignment, traces) = (&self.latest.known, &mut self.traces);
        let mut known = HashSet::new();
        for mux in muxes {
            mux.correct_traces(|key, declared, reached| {
                known.insert(key);
                let corrections = traces.get_mut(&key)?.update(alignment, declared, reached)?;
                changed.extend(alignment.host(declared).map(|host| TraceAlignment {
                    trace: key,
                    host,
                    corrections: Some(Arc::clone(&corrections)),
                }));
                Some(corrections)
            });
        }
        let is_needed =
            |key: &TraceKey, trace: &mut AlignedTrace| trace.is_held || known.contains(key);
        self.traces.retain(is_needed);
        changed
    }
}

impl AlignedTrace {
    /// Aligns the trace if its clock is declared by now. Returns how, once.
    fn extend(
        &mut self,
        key: TraceKey,
        alignment: &Alignment,
        mux: &mut Mux,
    ) -> Option<TraceAlignment> {
        mux.correct_trace(key, |declared| self.update(alignment, declared, None));
        let declared = mux.declared(key)?;
        // Tracers declare the host and the clock before the first stream.
        let is_declared = declared.streams().next().is_some();
        let is_new = is_declared && !std::mem::replace(&mut self.is_reported, is_declared);
        let host = alignment.host(declared).filter(|_| is_new)?;
        Some(TraceAlignment {
            trace: key,
            host,
            corrections: self.corrections.clone(),
        })
    }

    /// Returns the corrections, if another sample of the host is known. They are those of before up
    /// to `reached`, the latest time of the trace in cycles that has been corrected.
    fn update(
        &mut self,
        alignment: &Alignment,
        trace: &Trace,
        reached: Option<u64>,
    ) -> Option<Arc<TimeCorrections>> {
        self.reached = self.reached.max(reached);
        let clock = TraceClock::of(trace)?;
        let last_sample = alignment.last_comparison(&clock);
        if last_sample == self.last_sample {
            return None;
        }
        let (mut after, mut last) = (i64::MIN, i64::MIN);
        let mut points = Vec::new();
        // Events before the first sample have been shown with their own times.
        if let (Some(corrections), Some(reached)) = (&self.corrections, self.reached) {
            after = i64::try_from(reached).ok()?;
            let time = after.checked_add(clock.offset)?;
            last = corrections.corrected(time)?;
            let before = self.points.iter().filter(|point| point.time < time);
            points.extend(before.copied());
            points.push(TimeCorrection {
                time,
                ahead: last.checked_sub(time)?,
                error: corrections.error(time).unwrap_or(u64::MAX),
            });
        }
        points.extend(alignment.points(&clock, after, last)?);
        points.drain(..points.len().saturating_sub(MAX_CORRECTIONS));
        self.last_sample = last_sample;
        self.points = points;
        let corrections = Arc::new(TimeCorrections::new(&self.points));
        self.corrections = Some(Arc::clone(&corrections));
        Some(corrections)
    }
}

#[cfg(test)]
mod tests {
    use clock_offset::ClockSample;
    use ctf::Metadata;
    use ctf::decode::Event;
    use ctf::model::Uuid;
    use tokio::runtime::Builder;
    use tokio::sync::watch;

    use super::super::clock::Node;
    use super::super::samples::Samples;
    use super::*;
    use crate::attach::{Backlog, MemoryBudget, Packet, TraceInfo};
    use crate::mux::Stage;
    use crate::sink::{Loss, Origin, SinkError};
    use crate::time::Nanoseconds;

    const SECOND: i64 = 1_000_000_000;
    const METADATA: &[u8] = b"/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        env { hostname = \"h\"; };
        clock { name = c; uuid = \"00000000-0000-0000-0000-000000000007\"; freq = 1000000000; };
        stream { event.header := struct {
            integer { size = 64; align = 8; map = clock.c.value; } timestamp;
        }; };
        event { name = e; };";

    /// By how much the clock of the relay is ahead at a time: it drifts, more and more.
    fn ahead(time: i64) -> i64 {
        let milliseconds = time / 1_000_000;
        5 * SECOND + 40 * milliseconds - milliseconds * milliseconds / 20_000
    }

    /// The host of the metadata, and a relay.
    fn pair() -> (Node, Node) {
        let mut host = [0; 16];
        host[15] = 7;
        let host = Node::Host {
            name: "h".to_owned(),
            boot: Uuid(host),
        };
        let boot = Uuid([7; 16]);
        (host, Node::Relay { boot })
    }

    /// Remembers the times of events, in nanoseconds.
    #[derive(Default)]
    struct Times(Vec<i64>);

    impl Stage for Times {
        fn event(
            &mut self,
            _event: &Event<'_>,
            time: Option<Nanoseconds>,
            _origin: Origin<'_>,
        ) -> Result<bool, SinkError> {
            self.0.extend(time.map(Nanoseconds::get));
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

        fn report_failure(&mut self, what: &str) {
            panic!("{what}");
        }

        fn report_warning(&mut self, what: &str) {
            panic!("{what}");
        }
    }

    /// Hands over a trace with one stream that has come late and has ended, with one event at one
    /// second.
    fn add_newcomer(mux: &mut Mux, aligner: &mut Aligner, shown: &mut Times) {
        let (trace, stream) = (TraceKey::fresh(), StreamKey::fresh());
        mux.add_trace(trace, "t".to_owned());
        mux.extend_metadata(trace, METADATA, shown).unwrap();
        aligner.add_metadata(trace, mux);
        mux.add_stream(stream, trace, "s".to_owned(), Backlog::default());
        aligner.hold_newcomer(stream, trace, mux);
        let reservation = MemoryBudget::default().reserve(8).unwrap();
        let packet = Packet::in_memory(SECOND.to_le_bytes().to_vec(), reservation);
        mux.push_packet(stream, packet, shown);
        mux.end_stream(stream);
        mux.end_trace(trace);
    }

    #[test]
    fn host_that_appears_is_shown_when_it_has_a_sample_or_none_comes() {
        // Time stands still.
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let _entered = runtime.enter();
        let unaligned = Arc::new(Alignment::default());
        let (publisher, receiver) = watch::channel(Arc::clone(&unaligned));
        let latest = LatestAlignment {
            receiver,
            known: unaligned,
        };
        let mut aligner = Aligner {
            latest,
            traces: HashMap::new(),
            hold_begun: None,
        };
        let (mut mux, mut shown) = (Mux::new(), Times::default());
        let show = |mux: &mut Mux, aligner: &mut Aligner, shown: &mut Times, is_end| {
            aligner.refresh([&mut *mux]);
            aligner.release_newcomers(mux, is_end);
            mux.run(shown, &|| false).unwrap();
        };

        // No sample comes: the event has its own time.
        add_newcomer(&mut mux, &mut aligner, &mut shown);
        show(&mut mux, &mut aligner, &mut shown, false);
        assert!(shown.0.is_empty());
        assert!(aligner.deadline().is_some());
        show(&mut mux, &mut aligner, &mut shown, true);
        assert_eq!(shown.0, [SECOND]);
        assert!(aligner.deadline().is_none());

        add_newcomer(&mut mux, &mut aligner, &mut shown);
        show(&mut mux, &mut aligner, &mut shown, false);
        assert_eq!(shown.0.len(), 1);
        let sample = ClockSample {
            time: SECOND,
            ahead: ahead(SECOND),
            error: 100_000,
            realtime: 0,
            other_realtime: 0,
        };
        let samples = Samples::of_pair(pair(), vec![sample]);
        publisher.send_replace(Arc::new(Alignment::new(&samples, None)));
        show(&mut mux, &mut aligner, &mut shown, false);
        assert_eq!(shown.0[1..], [SECOND + ahead(SECOND)]);
        assert!(aligner.deadline().is_none());
    }

    #[test]
    fn an_unaligned_host_says_whether_samples_were_left_out() {
        let mut metadata = Metadata::new();
        metadata.extend(METADATA).unwrap();
        let mut samples = Samples::with_max(1);
        for (has_more_pairs, shown) in [
            (false, "h: unaligned"),
            (
                true,
                "h: unaligned: only the samples of 1024 pairs of a host and a relay are used",
            ),
        ] {
            samples.has_more_pairs = has_more_pairs;
            let host = Alignment::new(&samples, None).host(metadata.trace());
            assert_eq!(host.unwrap().to_string(), shown);
        }
    }

    #[test]
    fn times_are_as_exact_as_is_said_and_stay_what_they_were_when_samples_come() {
        let mut metadata = Metadata::new();
        metadata.extend(METADATA).unwrap();
        let mut trace = AlignedTrace::default();
        // Of each step: the time that has been reached, the corrected time there, and the error.
        let mut shown: Vec<(i64, i64)> = Vec::new();
        let mut reference = None;
        for count in 1..40_i64 {
            let samples = (0..count).map(|number| {
                let time = number * 30 * SECOND;
                // Wrong by less than their errors, to either side.
                let wrong = (number % 3 - 1) * 90_000;
                ClockSample {
                    time,
                    ahead: ahead(time) + wrong,
                    error: 100_000,
                    realtime: 0,
                    other_realtime: 0,
                }
            });
            let samples = Samples::of_pair(pair(), samples.collect());
            let alignment = Alignment::new(&samples, reference.clone());
            reference.clone_from(&alignment.reference);
            let last = (count - 1) * 30 * SECOND;
            // A trace goes on after a sample, before the next one comes.
            let reached = u64::try_from(last - 5 * SECOND).ok();
            let corrections = trace.update(&alignment, metadata.trace(), reached).unwrap();
            for (time, was) in &shown {
                assert!(corrections.corrected(*time).unwrap().abs_diff(*was) <= 1);
            }
            let mut latest = i64::MIN;
            let until = last + 25 * SECOND;
            for time in (last - 5 * SECOND..until).step_by(100_000_007) {
                let corrected = corrections.corrected(time).unwrap();
                let error = corrections.error(time).unwrap();
                let wrong = corrected.abs_diff(time + ahead(time));
                // Times that are held back, so that they do not go back, are known to be.
                assert!(wrong <= error, "{count} {time}: {wrong} {error}");
                assert!(error < 40_000_000, "{count} {time}: {error}");
                assert!(corrected >= latest);
                latest = corrected;
                if shown.last().is_none_or(|(last, _)| *last < time) {
                    shown.push((time, corrected));
                }
            }
            assert!(
                trace
                    .update(&alignment, metadata.trace(), reached)
                    .is_none()
            );
        }
    }
}
