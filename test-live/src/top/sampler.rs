//! Rates: what has been counted between two samples. Time comes in as an argument.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use viewer::sink::losses::LossSum;

use super::counts::{CountRow, Counts, SessionCounts, Table};

/// The number of samples that are kept, for sparklines.
pub(super) const MAX_SAMPLES: usize = 32;

/// Time for which a session that has ended is shown. Recordings stay.
const ENDED_RETENTION: Duration = Duration::from_secs(30);

/// Samples all counts from time to time, and knows the rates between.
#[derive(Debug)]
pub(super) struct Sampler {
    counts: Arc<Counts>,
    /// The number of samples over which rates are averaged.
    window: usize,
    sampled_at: Instant,
    sessions: HashMap<u64, SampledSession>,
}

/// A session as it was at the last sample.
#[derive(Debug)]
pub(super) struct SampledSession {
    counts: Arc<SessionCounts>,
    pub(super) events: Sampled,
    pub(super) names: Vec<SampledRow>,
    pub(super) processes: Vec<SampledRow>,
    pub(super) losses: LossSum,
    /// Wall-clock time minus the time of the latest event, in nanoseconds. Absent if the clock of
    /// the trace has no known origin, and for recordings.
    pub(super) lag: Option<i64>,
    /// The time of the first sample at which the session had ended.
    ended_at: Option<Instant>,
}

/// An event name or process as it was at the last sample.
#[derive(Debug)]
pub(super) struct SampledRow {
    row: Arc<CountRow>,
    name: String,
    pub(super) events: Sampled,
}

/// A count and its rates.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub(super) total: u64,
    /// Events per 1000 seconds.
    pub(super) rate: u64,
    /// The rates between samples, the newest last.
    pub(super) history: VecDeque<u64>,
}

/// The time that a sample is over.
#[derive(Debug, Clone, Copy)]
enum Span {
    /// The time since the sample before, in nanoseconds.
    Wall(u64),
    /// The time of a whole recording, in nanoseconds.
    Trace(u64),
}

impl Sampler {
    /// Samples `counts`. A rate is the mean of `window` samples.
    pub(super) fn new(counts: Arc<Counts>, window: usize, now: Instant) -> Self {
        Self {
            counts,
            window,
            sampled_at: now,
            sessions: HashMap::new(),
        }
    }

    /// Samples all counts. `unix_time` is the time in nanoseconds since 1970.
    pub(super) fn sample(&mut self, now: Instant, unix_time: i64) {
        let elapsed = now.saturating_duration_since(self.sampled_at).as_nanos();
        let wall = Span::Wall(u64::try_from(elapsed).unwrap_or(u64::MAX));
        self.sampled_at = now;
        // Sessions that are left in here at the end have been removed.
        let mut before = std::mem::take(&mut self.sessions);
        for counts in self.counts.sessions() {
            let known = before.remove(&counts.id);
            // A session whose counts begin again is sampled anew.
            let known = known.filter(|known| Arc::ptr_eq(&known.counts, &counts));
            let mut session = known.unwrap_or_else(|| SampledSession::new(counts));
            session.sample(wall, self.window, now, unix_time);
            self.sessions.insert(session.counts.id, session);
        }
    }

    /// The sessions that are to be shown, in no order.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &SampledSession> {
        self.sessions
            .values()
            .filter(|session| !session.is_expired(self.sampled_at))
    }

    /// The number of failures to read something, which may have lost more than is known.
    pub(super) fn failures(&self) -> u64 {
        self.counts.failures.get()
    }

    pub(super) fn session(&self, id: u64) -> Option<&SampledSession> {
        self.sessions.get(&id)
    }
}

impl SampledSession {
    fn new(counts: Arc<SessionCounts>) -> Self {
        Self {
            counts,
            events: Sampled::default(),
            names: Vec::new(),
            processes: Vec::new(),
            losses: LossSum::default(),
            lag: None,
            ended_at: None,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.counts.id
    }

    pub(super) fn name(&self) -> &str {
        &self.counts.name
    }

    /// Whether the session is a recording: its rates are per second of the trace.
    pub(super) fn is_recording(&self) -> bool {
        self.counts.is_recording
    }

    pub(super) fn is_kernel(&self) -> bool {
        self.counts.is_kernel()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended_at.is_some()
    }

    fn is_expired(&self, now: Instant) -> bool {
        let is_old = |ended_at| now.saturating_duration_since(ended_at) > ENDED_RETENTION;
        !self.is_recording() && self.ended_at.is_some_and(is_old)
    }

    fn sample(&mut self, wall: Span, window: usize, now: Instant, unix_time: i64) {
        let counts = &self.counts;
        let span = match counts.is_recording {
            true => Span::Trace(counts.trace_time()),
            false => wall,
        };
        self.events.sample(counts.events.get(), span, window);
        for (rows, table) in [
            (&mut self.names, &counts.names),
            (&mut self.processes, &counts.processes),
        ] {
            sample_rows(rows, table, span, window);
        }
        self.losses = counts.losses();
        let last = counts.last_unix_time().filter(|_| !counts.is_recording);
        self.lag = last.map(|last| unix_time.saturating_sub(last));
        self.ended_at = match self.counts.is_ended() {
            true => self.ended_at.or(Some(now)),
            false => None,
        };
    }
}

fn sample_rows(rows: &mut Vec<SampledRow>, table: &Table, span: Span, window: usize) {
    let mut new = Vec::new();
    table.rows_from(rows.len(), &mut new);
    rows.extend(new.into_iter().map(|row| SampledRow {
        row,
        name: String::new(),
        events: Sampled::default(),
    }));
    for SampledRow { row, name, events } in rows {
        *name = row.name();
        events.sample(row.events.get(), span, window);
    }
}

impl SampledRow {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Sampled {
    fn sample(&mut self, total: u64, span: Span, window: usize) {
        let new = total.saturating_sub(self.total);
        self.total = total;
        let nanoseconds = match span {
            Span::Wall(nanoseconds) => nanoseconds,
            // A recording is read as fast as can be: only its own time says how often events came.
            Span::Trace(nanoseconds) => {
                self.rate = per_kilosecond(total, nanoseconds);
                return;
            }
        };
        if self.history.len() >= MAX_SAMPLES {
            self.history.pop_front();
        }
        self.history.push_back(per_kilosecond(new, nanoseconds));
        let recent = self.history.iter().rev().take(window);
        let sum = recent
            .clone()
            .fold(0, |sum: u64, rate| sum.saturating_add(*rate));
        self.rate = sum.checked_div(recent.count() as u64).unwrap_or(0);
    }
}

/// Events per 1000 seconds; 0 if no time has passed.
fn per_kilosecond(events: u64, nanoseconds: u64) -> u64 {
    // In 64 bits, 19 million events would overflow.
    let scaled = u128::from(events) * 1_000_000_000_000;
    let rate = scaled.checked_div(u128::from(nanoseconds)).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn rate_is_the_mean_of_the_last_samples() {
        let counts = Arc::new(Counts::default());
        let session = counts.add_session(7, "h/s", false);
        let mut now = Instant::now();
        let mut sampler = Sampler::new(Arc::clone(&counts), 2, now);
        let mut rates = Vec::new();
        for events in [10, 20, 0, 0] {
            session.events.add(events);
            now += 2 * SECOND;
            sampler.sample(now, 0);
            rates.push(sampler.session(7).unwrap().events.rate);
        }
        assert_eq!(rates, [5000, 7500, 5000, 0]);
        let events = &sampler.session(7).unwrap().events;
        assert_eq!(events.total, 30);
        assert_eq!(events.history, [5000, 10_000, 0, 0]);
    }

    #[test]
    fn rate_of_a_recording_is_per_second_of_the_trace() {
        let counts = Arc::new(Counts::default());
        let session = counts.add_session(7, "recording", true);
        session.add_event(Some(1_000_000_000), true);
        session.add_event(Some(5_000_000_000), true);
        let now = Instant::now();
        let mut sampler = Sampler::new(counts, 2, now);
        sampler.sample(now + SECOND, 0);
        let sampled = sampler.session(7).unwrap();
        assert_eq!((sampled.events.rate, sampled.lag), (500, None));
    }

    #[test]
    fn lag_is_the_age_of_the_latest_event_if_the_clock_counts_from_1970() {
        let counts = Arc::new(Counts::default());
        let session = counts.add_session(7, "h/s", false);
        let mut sampler = Sampler::new(Arc::clone(&counts), 2, Instant::now());
        let mut lag = || {
            sampler.sample(Instant::now(), 1000);
            sampler.session(7).unwrap().lag
        };
        assert_eq!(lag(), None);
        session.add_event(Some(400), true);
        assert_eq!(lag(), Some(600));
    }

    #[test]
    fn ended_session_is_hidden_after_a_while_and_a_recording_is_not() {
        let counts = Arc::new(Counts::default());
        counts.add_session(0, "live", false).set_ended(true);
        counts.add_session(1, "recording", true).set_ended(true);
        let now = Instant::now();
        let mut sampler = Sampler::new(counts, 2, now);
        sampler.sample(now, 0);
        assert_eq!(sampler.sessions().count(), 2);
        sampler.sample(now + 2 * ENDED_RETENTION, 0);
        let names: Vec<_> = sampler.sessions().map(SampledSession::name).collect();
        assert_eq!(names, ["recording"]);
    }

    #[test]
    fn rows_that_appear_later_are_sampled_from_then_on() {
        let counts = Arc::new(Counts::default());
        let session = counts.add_session(7, "h/s", false);
        let now = Instant::now();
        let mut sampler = Sampler::new(Arc::clone(&counts), 1, now);
        for number in 0..2 {
            let row = session.add_row(&session.names, &format!("e{number}"));
            row.unwrap().events.add(number + 1);
            sampler.sample(now + SECOND, 0);
        }
        let names = &sampler.session(7).unwrap().names;
        let totals: Vec<_> = names
            .iter()
            .map(|row| (row.name(), row.events.total))
            .collect();
        assert_eq!(totals, [("e0", 1), ("e1", 2)]);
    }
}
