//! The stage after the mux that counts events, by session, name and process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::tef::Record;
use ::tef::ctf::{Decoded, RecordDecoder};
use ::tef::event::OwnerId;
use ctf::decode::Event;
use ctf::metadata::Trace;
use parking_lot::Mutex;
use viewer::attach::{Packet, TraceInfo, TraceKey};
use viewer::filter::{Filter, UndeclaredNames};
use viewer::interpret::environment::Environment;
use viewer::interpret::event_name::{counted_name, shortened};
use viewer::interpret::process_context::ProcessContext;
use viewer::interpret::process_names::ProcessNames;
use viewer::mux::{Stage, is_since_1970};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::slots::Slots;
use viewer::sources::SessionStage;
use viewer::time::Nanoseconds;

use super::counts::{CountRow, Counts, MAX_SESSIONS, OTHER, SessionCounts, Table};
use super::messages::{Messages, Severity};

/// Largest number of names of processes of all sessions.
const MAX_PROCESS_NAMES: usize = 1 << 16;

/// Sessions that have ended and are kept. Of more, those that ended first are removed.
const MAX_ENDED_SESSIONS: usize = 64;

/// The session of a trace that names none.
const UNNAMED: &str = "<unnamed>";

/// A filter that users have asked for while events are counted.
#[derive(Debug, Default)]
pub(super) struct FilterRequest {
    /// The number of requests so far.
    generation: AtomicU64,
    filter: Mutex<Option<Filter>>,
}

impl FilterRequest {
    /// Requests that only events that match `filter` are counted from now on, from zero.
    pub(super) fn set(&self, filter: Option<Filter>) {
        // Before the generation, so that the stage that sees the new one finds the filter.
        *self.filter.lock() = filter;
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Counts the events that a filter lets through.
pub(super) struct CountingStage {
    counts: Arc<Counts>,
    messages: Messages,
    filter: Option<Filter>,
    request: Arc<FilterRequest>,
    generation: u64,
    /// The names in the first filter that no trace has declared, until the first event.
    undeclared: UndeclaredNames,
    sessions: HashMap<u64, SessionState>,
    next_session: u64,
    by_name: HashMap<String, u64>,
    /// Sessions without traces, the one that ended first in front. One that has begun again may be
    /// among them.
    ended: VecDeque<u64>,
    traces: HashMap<TraceKey, u64>,
    classes: Slots<ClassState>,
    by_class: HashMap<ClassKey, usize>,
    /// The class and the process of the event before: many come in a row.
    last_class: Option<(ClassKey, usize)>,
    last_process: Option<LastProcess>,
    context: ProcessContext,
    decoder: RecordDecoder,
    process_names: ProcessNames,
    /// The number of names that the sessions have.
    known_names: usize,
}

/// Session, process and its row.
type LastProcess = (u64, OwnerId<'static>, Arc<CountRow>);

/// Trace, stream class and event class.
type ClassKey = (TraceKey, u64, u64);

struct SessionState {
    counts: Arc<SessionCounts>,
    names: HashMap<Box<str>, Arc<CountRow>>,
    processes: HashMap<OwnerId<'static>, Arc<CountRow>>,
    /// The names of processes that events have told, also of those that have no row yet.
    process_names: HashMap<OwnerId<'static>, String>,
    /// The number of traces that have not ended.
    traces: usize,
}

/// What is the same for all events of a class.
struct ClassState {
    session: Arc<SessionCounts>,
    /// The row of the name of the class. Absent if the events were sent in Trace Event Format, with
    /// names of their own.
    row: Option<Arc<CountRow>>,
    has_context: bool,
    is_unix_time: bool,
    /// The process of all events of the trace, as its environment says.
    process: Option<(i64, String)>,
}

impl CountingStage {
    pub(super) fn new(
        counts: Arc<Counts>,
        filter: Option<Filter>,
        request: Arc<FilterRequest>,
        messages: Messages,
    ) -> Self {
        let undeclared = filter.as_ref().map(Filter::undeclared_names);
        Self {
            counts,
            messages,
            filter,
            request,
            generation: 0,
            undeclared: undeclared.unwrap_or_default(),
            sessions: HashMap::new(),
            next_session: 0,
            by_name: HashMap::new(),
            ended: VecDeque::new(),
            traces: HashMap::new(),
            classes: Slots::default(),
            by_class: HashMap::new(),
            last_class: None,
            last_process: None,
            context: ProcessContext::default(),
            decoder: RecordDecoder::default(),
            process_names: ProcessNames::default(),
            known_names: 0,
        }
    }

    /// The number of failures that were reported.
    pub(super) fn failures(&self) -> u64 {
        self.counts.failures.get()
    }

    /// Whether there has been a session.
    pub(super) fn has_sessions(&self) -> bool {
        self.next_session > 0
    }

    fn add_session(&mut self, name: &str, is_recording: bool) -> u64 {
        let id = self.next_session;
        self.next_session += 1;
        self.by_name.insert(name.to_owned(), id);
        let name = if name.is_empty() { UNNAMED } else { name };
        let state = SessionState {
            counts: self.counts.add_session(id, name, is_recording),
            names: HashMap::new(),
            processes: HashMap::new(),
            process_names: HashMap::new(),
            traces: 0,
        };
        self.sessions.insert(id, state);
        id
    }

    /// Begins to count from zero if another filter has been requested.
    #[inline]
    pub(super) fn apply_filter_request(&mut self) {
        let generation = self.request.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.filter = self.request.filter.lock().take();
        // Names are only looked up for the first filter: traces do not declare theirs again.
        self.undeclared = UndeclaredNames::default();
        for state in self.sessions.values_mut() {
            state.counts = self.counts.restart_session(&state.counts);
            state.names.clear();
            state.processes.clear();
        }
        // Their rows are of the counts that have been replaced.
        self.classes = Slots::default();
        self.by_class.clear();
        (self.last_class, self.last_process) = (None, None);
    }

    /// Keeps the name of a process that an event tells.
    fn name_process(&mut self, trace: TraceKey, process: OwnerId<'static>, name: String) {
        let session = self.traces.get(&trace);
        let Some(session) = session.and_then(|id| self.sessions.get_mut(id)) else {
            return;
        };
        match session.process_names.get_mut(&process) {
            Some(known) if *known == name => return,
            Some(known) => known.clone_from(&name),
            None if self.known_names >= MAX_PROCESS_NAMES => return,
            None => {
                self.known_names += 1;
                session.process_names.insert(process.clone(), name.clone());
            }
        }
        if let Some(row) = session.processes.get(&process) {
            row.rename(&format!("{process} {name}"));
        }
    }

    fn count(&mut self, event: &Event<'_>, origin: Origin<'_>) {
        let class = event.class();
        let key = (origin.trace.key, event.stream_class().id(), class.id());
        let place = match self.last_class {
            Some((last, place)) if last == key => place,
            _ => self.class_place(key, event, origin),
        };
        self.last_class = Some((key, place));
        let Some(state) = self.classes.get(place) else {
            return;
        };
        let session = &state.session;
        session.add_event(event.time(), state.is_unix_time);
        // An event whose fields cannot be read is counted as well as is possible.
        let Some(row) = &state.row else {
            self.decoder.clear();
            let _ = event.visit_fields(&mut self.decoder);
            let class = class.name().unwrap_or_default();
            let record = self.decoder.decode(class);
            let Some(of_session) = self.sessions.get_mut(&session.id) else {
                return;
            };
            let (name, pid) = match &record {
                Some(Decoded::Record {
                    record: Record::Event(sent),
                    ..
                }) => (counted_name(sent), sent.process()),
                Some(Decoded::Client(client)) => {
                    let pid = client.pid.map(|pid| OwnerId::Number(pid.into()));
                    (None, pid)
                }
                _ => (None, None),
            };
            of_session.name_row(name.unwrap_or(class)).events.add(1);
            if let Some(pid) = pid {
                count_process(&mut self.last_process, of_session, pid, b"");
            }
            return;
        };
        row.events.add(1);
        self.context.clear();
        if state.has_context {
            let _ = event.visit_contexts(&mut self.context);
        }
        let (pid, name) = match (&state.process, self.context.pid) {
            (Some((pid, name)), _) => (*pid, name.as_bytes()),
            (None, Some(pid)) => (pid, &self.context.name[..]),
            (None, None) => return,
        };
        if let Some(of_session) = self.sessions.get_mut(&session.id) {
            let pid = OwnerId::Number(pid);
            count_process(&mut self.last_process, of_session, pid, name);
        }
    }

    /// The place of a class, which is added if it is a new one.
    fn class_place(&mut self, key: ClassKey, event: &Event<'_>, origin: Origin<'_>) -> usize {
        if let Some(place) = self.by_class.get(&key) {
            return *place;
        }
        if !self.traces.contains_key(&origin.trace.key) {
            // A source announces its traces: only a defect leads here.
            self.add_trace(origin.trace.key, &origin.trace.name, false);
        }
        let id = self.traces.get(&origin.trace.key).copied().unwrap_or(0);
        let Some(session) = self.sessions.get_mut(&id) else {
            return usize::MAX;
        };
        let class = event.class();
        let name = class.name().unwrap_or("<unknown>");
        let trace = event.trace();
        let environment = Environment::of(trace);
        let process_name = environment.process_name.unwrap_or_default();
        if environment.is_kernel {
            session.counts.set_kernel();
        }
        let is_sent = RecordDecoder::is_known_class(name);
        let stream = event.stream_class();
        let state = ClassState {
            session: Arc::clone(&session.counts),
            row: (!is_sent).then(|| session.name_row(name)),
            has_context: stream.event_context().is_some() || class.context().is_some(),
            is_unix_time: is_since_1970(trace, stream),
            process: environment
                .process
                .map(|pid| (pid, process_name.to_owned())),
        };
        let place = self.classes.insert(state);
        self.by_class.insert(key, place);
        place
    }

    fn session_of(&self, trace: TraceKey) -> Option<&SessionState> {
        self.sessions.get(self.traces.get(&trace)?)
    }

    fn remove_oldest_ended_session(&mut self) {
        let Some(id) = self.ended.pop_front() else {
            return;
        };
        let has_traces = |state: &SessionState| state.traces > 0;
        // The session has begun again since it was put here.
        if self.sessions.get(&id).is_none_or(has_traces) {
            return;
        }
        if let Some(removed) = self.sessions.remove(&id) {
            self.known_names -= removed.process_names.len();
        }
        self.by_name.retain(|_, session| *session != id);
        self.counts.remove_session(id);
        self.last_process = None;
    }
}

impl SessionState {
    fn name_row(&mut self, name: &str) -> Arc<CountRow> {
        let name = shortened(name);
        if let Some(row) = self.names.get(name) {
            return Arc::clone(row);
        }
        let counts = &self.counts;
        if let Some(row) = counts.add_row(&counts.names, name) {
            self.names.insert(name.into(), Arc::clone(&row));
            return row;
        }
        let others = self.names.entry(OTHER.into());
        Arc::clone(others.or_insert_with(|| new_other_row(counts, &counts.names)))
    }

    fn process_row(&mut self, pid: OwnerId<'static>, name: &[u8]) -> Arc<CountRow> {
        if let Some(row) = self.processes.get(&pid) {
            return Arc::clone(row);
        }
        let counts = &self.counts;
        let name = match self.process_names.get(&pid) {
            Some(told) => told.into(),
            None => String::from_utf8_lossy(name),
        };
        let text = format!("{pid} {name}");
        if let Some(row) = counts.add_row(&counts.processes, text.trim_end()) {
            self.processes.insert(pid, Arc::clone(&row));
            return row;
        }
        let others = self.processes.entry(OwnerId::Text(OTHER.into()));
        Arc::clone(others.or_insert_with(|| new_other_row(counts, &counts.processes)))
    }
}

fn new_other_row(counts: &SessionCounts, table: &Table) -> Arc<CountRow> {
    let row = counts.add_row(table, OTHER);
    row.unwrap_or_else(|| Arc::new(CountRow::new(OTHER)))
}

#[inline]
fn count_process(
    last: &mut Option<LastProcess>,
    session: &mut SessionState,
    pid: OwnerId<'_>,
    name: &[u8],
) {
    let id = session.counts.id;
    // Many events in a row are of one process: these need no table.
    if let Some((session, process, row)) = last
        && *session == id
        && *process == pid
    {
        return row.events.add(1);
    }
    let pid = pid.into_owned();
    let row = session.process_row(pid.clone(), name);
    row.events.add(1);
    *last = Some((id, pid, row));
}

impl SessionStage for CountingStage {
    fn add_trace(&mut self, trace: TraceKey, session: &str, is_recording: bool) {
        let name = match self.by_name.len() < MAX_SESSIONS || self.by_name.contains_key(session) {
            true => session,
            false => OTHER,
        };
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => self.add_session(name, is_recording),
        };
        if let Some(state) = self.sessions.get_mut(&id) {
            state.traces += 1;
            // A session of this name may have ended, and begins again.
            state.counts.set_ended(false);
        }
        self.traces.insert(trace, id);
    }
}

impl Stage for CountingStage {
    #[inline]
    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        self.apply_filter_request();
        // Before the filter, which is about what is counted.
        if let Some((process, name)) = self.process_names.read(event) {
            self.name_process(origin.trace.key, process, name);
        }
        if let Some(filter) = &mut self.filter {
            for description in self.undeclared.take_descriptions() {
                self.messages
                    .add(Severity::Warning, &format!("--filter: {description}"));
            }
            if !filter.matches(event, origin) {
                return Ok(true);
            }
        }
        self.count(event, origin);
        Ok(true)
    }

    fn packet(&mut self, _packet: &Packet, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _bytes: &[u8], _trace: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn declared(&mut self, trace: &Trace) {
        self.undeclared.add_declarations(trace);
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        if let Some(session) = self.session_of(origin.trace.key) {
            session.counts.add_loss(loss);
        }
        Ok(())
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        // The place of the class may be given to another one.
        self.last_class = None;
        let classes = &mut self.classes;
        self.by_class.retain(|(of, ..), place| {
            let is_kept = *of != trace;
            if !is_kept {
                classes.remove(*place);
            }
            is_kept
        });
        let Some(id) = self.traces.remove(&trace) else {
            return;
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.traces = session.traces.saturating_sub(1);
        if session.traces == 0 {
            session.counts.set_ended(true);
            // A session may end several times: the last time counts.
            self.ended.retain(|ended| *ended != id);
            self.ended.push_back(id);
            if self.ended.len() > MAX_ENDED_SESSIONS {
                self.remove_oldest_ended_session();
            }
        }
    }

    fn report_failure(&mut self, what: &str) {
        self.counts.failures.add(1);
        self.messages.add(Severity::Error, what);
    }

    fn report_warning(&mut self, what: &str) {
        self.messages.add(Severity::Warning, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage() -> CountingStage {
        let counts = Arc::new(Counts::default());
        CountingStage::new(counts, None, Arc::default(), Messages::for_screen())
    }

    #[test]
    fn session_ends_with_its_last_trace_and_begins_again_with_the_next() {
        let mut stage = stage();
        let traces: Vec<TraceKey> = (0..3).map(|_| TraceKey::fresh()).collect();
        stage.add_trace(traces[0], "h/s", false);
        stage.add_trace(traces[1], "h/s", false);
        let session = stage.counts.sessions().remove(0);
        stage.trace_ended(traces[0]);
        assert!(!session.is_ended());
        stage.trace_ended(traces[1]);
        assert!(session.is_ended());
        stage.add_trace(traces[2], "h/s", false);
        assert!(!session.is_ended());
        assert_eq!(stage.counts.sessions().len(), 1);
    }

    #[test]
    fn number_of_ended_and_of_all_sessions_is_bounded() {
        let mut stage = stage();
        for number in 0..2 * MAX_ENDED_SESSIONS {
            let trace = TraceKey::fresh();
            stage.add_trace(trace, &format!("h/ended-{number}"), false);
            stage.trace_ended(trace);
        }
        assert_eq!(stage.counts.sessions().len(), MAX_ENDED_SESSIONS);
        assert_eq!(stage.by_name.len(), MAX_ENDED_SESSIONS);
        for number in 0..MAX_SESSIONS {
            stage.add_trace(TraceKey::fresh(), &format!("h/{number}"), false);
        }
        let sessions = stage.counts.sessions();
        assert_eq!(sessions.len(), MAX_SESSIONS + 1);
        assert_eq!(sessions[MAX_SESSIONS].name, OTHER);
    }

    #[test]
    fn names_and_processes_beyond_the_limits_are_counted_as_others() {
        let mut stage = stage();
        stage.add_trace(TraceKey::fresh(), "h/s", false);
        let session = stage.sessions.get_mut(&0).unwrap();
        for number in 0..3000 {
            session.name_row(&format!("e{number}")).events.add(1);
            let pid = OwnerId::Number(number);
            session.process_row(pid, b"p").events.add(1);
        }
        for (table, own) in [
            (&session.counts.names, "e0"),
            (&session.counts.processes, "0 p"),
        ] {
            let mut rows = Vec::new();
            table.rows_from(0, &mut rows);
            assert_eq!(rows.len(), 1025);
            assert_eq!((&*rows[0].name(), rows[0].events.get()), (own, 1));
            let others = rows.last().unwrap();
            assert_eq!((&*others.name(), others.events.get()), (OTHER, 1976));
        }
    }

    #[test]
    fn name_of_a_process_may_be_told_before_and_after_its_first_event() {
        let mut stage = stage();
        let trace = TraceKey::fresh();
        stage.add_trace(trace, "h/s", false);
        let pid = |number| OwnerId::Number(number);
        let rows = |stage: &mut CountingStage| {
            let session = stage.sessions.get_mut(&0).unwrap();
            [7, 8].map(|number| session.process_row(pid(number), b"").name())
        };
        stage.name_process(trace, pid(7), "early".to_owned());
        assert_eq!(rows(&mut stage), ["7 early", "8"]);
        stage.name_process(trace, pid(8), "la\nte".to_owned());
        assert_eq!(rows(&mut stage), ["7 early", "8 la\\u{a}te"]);
        // The counts begin again, and the names are known.
        stage.request.set(None);
        stage.apply_filter_request();
        assert_eq!(rows(&mut stage), ["7 early", "8 la\\u{a}te"]);
    }

    #[test]
    fn another_filter_counts_from_zero() {
        let mut stage = stage();
        stage.add_trace(TraceKey::fresh(), "h/s", false);
        stage.sessions[&0].counts.add_event(None, false);
        stage.request.set(Some(Filter::parse("a > 1").unwrap()));
        stage.apply_filter_request();
        assert!(stage.filter.is_some());
        assert_eq!(stage.counts.sessions()[0].events.get(), 0);
    }
}
