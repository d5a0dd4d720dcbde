//! The stage after the mux that turns events into rows of the timeline, as `--sink tef` turns them
//! into records: which of them begin and end spans is decided in the same place.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use ctf::decode::{Event, FieldError};
use ctf::metadata::Trace;
use daemon::output::print_message;
use viewer::align::TraceAlignment;
use viewer::attach::{Packet, StreamKey, TraceInfo, TraceKey};
use viewer::filter::{Filter, UndeclaredNames};
use viewer::interpret::calls::{CallRecord, Recordings};
use viewer::interpret::debug_info::EventLocations;
use viewer::interpret::environment::Environment;
use viewer::interpret::flows::Flow;
use viewer::interpret::interpreted_fields::InterpretedFields;
use viewer::interpret::name_numbers::shortened;
use viewer::keys::{KeyMap, RecentMap};
use viewer::mux::Stage;
use viewer::sink::{Loss, Origin, SinkError};
use viewer::sources::SessionStage;
use viewer::terminal::printable;
use viewer::time::Nanoseconds;

use super::apply::apply;
use super::arrows::ArrowEnd;
use super::kernel::{KernelEvent, KernelOutput, Kernels};
use super::kernel_class::KernelClass;
use super::packet_log::PacketLog;
use super::row::{Action, EventPlace};
use super::sent::{SentAction, SentEvents};
use super::span_log::{SpanFieldsEvent, SpanKey};
use super::stage_state::{ClassState, EventOwner, Place, SessionState, StreamState, TraceState};
use super::store::{Session, Store, Track};
use super::thread_tracks::{Id, Owner, ThreadTracks, TrackOf};

/// The times that a program sends extend the timeline if they are no farther than this from the
/// arrival of their event, in nanoseconds: a day. One wrong time must not hide all others.
const MAX_SENT_DISTANCE: u64 = 86_400_000_000_000;

/// Adds the events that a filter lets through to a store.
pub(super) struct TimelineStage {
    store: Arc<Store>,
    log: Arc<PacketLog>,
    filter: Option<Filter>,
    /// The names in the filter that no trace has declared, until the first event.
    undeclared: UndeclaredNames,
    sessions: HashMap<String, SessionState>,
    traces: KeyMap<TraceKey, TraceState>,
    streams: RecentMap<StreamState>,
    tracks: ThreadTracks,
    /// The event classes of traces that have not ended, by their ordinals.
    classes: RecentMap<Rc<ClassState>>,
    recordings: Recordings,
    kernels: Kernels,
    sent: SentEvents,
    fields: InterpretedFields,
    failures: u64,
}

impl TimelineStage {
    pub(super) fn new(store: Arc<Store>, log: Arc<PacketLog>, filter: Option<Filter>) -> Self {
        let sent = SentEvents::new(Arc::clone(&log.clocks));
        let undeclared = filter.as_ref().map(Filter::undeclared_names);
        Self {
            store,
            log,
            filter,
            undeclared: undeclared.unwrap_or_default(),
            sessions: HashMap::new(),
            traces: KeyMap::default(),
            streams: RecentMap::default(),
            tracks: ThreadTracks::default(),
            classes: RecentMap::default(),
            recordings: Recordings::default(),
            kernels: Kernels::default(),
            sent,
            fields: InterpretedFields::default(),
            failures: 0,
        }
    }

    /// The number of failures that were reported.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether there has been a session.
    pub(super) fn has_sessions(&self) -> bool {
        !self.store.sessions().is_empty()
    }

    /// Adds to the bytes of packets of a recording, of which a trace has been added.
    pub(super) fn add_recording_bytes(&self, trace: TraceKey, bytes: u64) {
        if let Some(trace) = self.traces.get(&trace) {
            trace.session.add_bytes(bytes);
        }
    }

    /// Shows an event with what its addresses are.
    fn show_located(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        place: EventPlace,
        is_shown: bool,
    ) -> Result<(), SinkError> {
        let (locations, warnings) = self.log.locations.learn(event, origin)?;
        for warning in warnings {
            self.report_warning(&warning);
        }
        let origin = Origin {
            locations: locations.as_ref(),
            ..origin
        };
        self.show(event, origin, place, is_shown)
    }

    fn show(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        place: EventPlace,
        is_shown: bool,
    ) -> Result<(), SinkError> {
        let Some(state) = self.traces.get(&origin.trace.key) else {
            return Ok(());
        };
        // Cloned, because the stage changes while the session is in use.
        let session = Arc::clone(&state.session);
        let Some(class) = self.class(event, origin.trace.key) else {
            return Ok(());
        };
        if is_shown {
            session.add_event(event.time(), class.is_unix);
        }
        let Some(time) = event.time() else {
            return Ok(());
        };
        if let Some(sent) = self.sent.record(event, origin.trace.key, &self.store)? {
            if let Some(time) = sent.time()
                && let Some(stream) = self.stream(origin.stream.key)
            {
                stream.add_time(time);
            }
            if is_shown {
                let is_near = |sent: &i64| sent.abs_diff(time) <= MAX_SENT_DISTANCE;
                let shown = sent.time().filter(is_near).unwrap_or(time);
                self.store.count_event(shown);
                let end = sent.end().filter(is_near).unwrap_or(shown);
                self.store.extend(&session, end);
            }
            self.apply_sent(&sent, &session, origin, place, is_shown);
            return Ok(());
        }
        if is_shown {
            self.store.count_event(time);
        }
        let call = self.recordings.record(event, origin.trace.key)?;
        if matches!(call, Some(CallRecord::None)) {
            return Ok(());
        }
        let function = origin.locations.and_then(EventLocations::function_name);
        self.visit_fields(event, origin, &class)?;
        if class.kernel.is_some() {
            self.show_kernel(&class, event, &session, origin, place, is_shown);
            return Ok(());
        }
        if let Some(is_new) = class.span_fields.filter(|_| is_shown)
            && let Some(span) = SpanKey::of(&self.fields, origin.trace.key)
        {
            self.store.spans.add(SpanFieldsEvent {
                span,
                is_new,
                parent: self.fields.parent,
                name: self.store.name(&String::from_utf8_lossy(&self.fields.name)),
                time,
                place,
            });
        }
        let found = self.place_of(event, &session, origin);
        let Place {
            track, is_thread, ..
        } = found;
        let action = match &call {
            Some(CallRecord::Begin(name, _)) => Action::Begin(self.store.name(name)),
            Some(CallRecord::End(name, _)) => Action::End(Some(self.store.name(name))),
            _ => {
                let fits = class.kind.fits(is_thread, false);
                class.action(&self.fields, fits, function, time, &self.store)
            }
        };
        apply(&self.store, &track, action, time, place, is_shown);
        Ok(())
    }

    /// Shows an event of a kernel.
    fn show_kernel(
        &mut self,
        class: &ClassState,
        event: &Event<'_>,
        session: &Arc<Session>,
        origin: Origin<'_>,
        place: EventPlace,
        is_shown: bool,
    ) {
        let Some((kernel, time)) = class.kernel.zip(event.time()) else {
            return;
        };
        let event = KernelEvent {
            class: kernel,
            kind: &class.kind,
            name: event.class().name().unwrap_or_default(),
            span: class.span,
            fields: &self.fields,
            time,
            place,
            is_shown,
        };
        let output = KernelOutput {
            store: &self.store,
            tracks: &mut self.tracks,
            session,
        };
        let (cpu, found) = self.kernels.show(&event, output);
        if let Some(stream) = self.stream(origin.stream.key) {
            stream.add_track(cpu);
            stream.has_switches |= matches!(kernel, KernelClass::Switch { .. });
            if let Some(found) = found.as_ref().filter(|found| !found.is_thread) {
                stream.add_track(Arc::clone(&found.track));
            }
        }
        if let Some(found) = found {
            let fits = class.kind.fits(found.is_thread, true);
            let action = found.action;
            let action =
                action.unwrap_or_else(|| class.action(&self.fields, fits, None, time, &self.store));
            apply(&self.store, &found.track, action, time, place, is_shown);
        }
    }

    fn stream(&mut self, stream: StreamKey) -> Option<&mut StreamState> {
        self.streams.get_or_insert(stream.0, StreamState::default)
    }

    /// What is known of the class of an event. Found anew when there are more classes.
    fn class(&mut self, event: &Event<'_>, trace: TraceKey) -> Option<Rc<ClassState>> {
        let ordinal = event.class().ordinal() as u64;
        let store = &self.store;
        let new = || Rc::new(ClassState::new(event, trace, store));
        let class = self.classes.get_or_insert(ordinal, new)?;
        if class.declared != event.stream_class().events().len() {
            *class = Rc::new(ClassState::new(event, trace, store));
        }
        Some(Rc::clone(class))
    }

    /// Decodes the fields of an event that count here.
    fn visit_fields(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        class: &ClassState,
    ) -> Result<(), FieldError> {
        let stream = self
            .streams
            .get_or_insert(origin.stream.key.0, StreamState::default);
        let Some(stream) = stream else {
            return Ok(());
        };
        // Once for all events of a packet.
        if stream.packet != event.packet() {
            stream.packet_fields.clear();
            event.visit_packet_context(&mut stream.packet_fields)?;
            stream.packet = event.packet();
        }
        self.fields.begin_event(&stream.packet_fields);
        // Nothing in the payload of other events counts here: not decoding it saves most of the
        // time.
        match class.needs_payload {
            true => event.visit_fields(&mut self.fields),
            false if class.has_contexts => event.visit_contexts(&mut self.fields),
            false => Ok(()),
        }
    }

    /// The track of an event that says by its contexts whose it is. Losses of its stream are shown
    /// there, too.
    fn place_of(&mut self, event: &Event<'_>, session: &Arc<Session>, origin: Origin<'_>) -> Place {
        let fields = &self.fields;
        let owner = (fields.process(), fields.thread(), fields.cpu);
        let stream = self
            .streams
            .get_or_insert(origin.stream.key.0, StreamState::default);
        let last = stream.and_then(|stream| stream.place.as_ref());
        let is_same = |place: &&Place| place.owner == owner && !place.track.is_ended();
        if let Some(place) = last.filter(is_same) {
            return place.clone();
        }
        let place = self.find_place(event, session, origin, owner);
        self.add_stream_track(origin, Arc::clone(&place.track));
        // There may be room for the thread later.
        if self.tracks.is_shared(&place.track) {
            return place;
        }
        match self.stream(origin.stream.key) {
            Some(stream) => stream.place.insert(place).clone(),
            None => place,
        }
    }

    fn find_place(
        &mut self,
        event: &Event<'_>,
        session: &Arc<Session>,
        origin: Origin<'_>,
        event_owner: EventOwner,
    ) -> Place {
        let program = self.recordings.program(origin.trace.key);
        let environment = Environment::of(event.trace()).of_program(program);
        let fields = &self.fields;
        let is_recording = environment.is_recording;
        let process = fields.process().or(environment.process);
        let process = process.filter(|_| !is_recording);
        let thread = environment.thread(fields.thread());
        let procname = String::from_utf8_lossy(&fields.procname);
        let is_own = process == environment.process || is_recording;
        let process_name = match environment.process_name.filter(|_| is_own) {
            Some(name) => name,
            None if process.is_some() => &procname,
            None => "",
        };
        let of = match thread {
            _ if is_recording => TrackOf::Recording(origin.trace.key),
            Some(thread) => TrackOf::Thread(Id::Number(thread)),
            None => TrackOf::Cpu(fields.cpu.unwrap_or(0)),
        };
        let owner = Owner {
            process: process.map(Id::Number),
            process_name,
            thread_name: if thread.is_some() { &procname } else { "" },
        };
        Place {
            track: self.tracks.track(&self.store, session, of, &owner),
            is_thread: thread.is_some() || is_recording,
            owner: event_owner,
        }
    }

    fn apply_sent(
        &mut self,
        sent: &SentAction,
        session: &Arc<Session>,
        origin: Origin<'_>,
        place: EventPlace,
        is_shown: bool,
    ) {
        let owner = Owner {
            process: sent.process().cloned(),
            ..Owner::default()
        };
        match sent {
            SentAction::Nothing => {}
            SentAction::ProcessName(process, name) => {
                self.tracks.name_process(session.id, process, name);
            }
            SentAction::Program(process, path) => {
                self.tracks.set_program(session.id, process, path);
            }
            SentAction::ThreadName(process, thread, name) => {
                let of = TrackOf::Thread(thread.clone());
                self.tracks.track(&self.store, session, of, &owner);
                self.tracks.name_thread(session.id, process, thread, name);
            }
            SentAction::Row {
                thread,
                action,
                time,
                flow,
                ..
            } => {
                let of = TrackOf::Thread(thread.clone());
                let track = self.tracks.track(&self.store, session, of, &owner);
                if let Some(Flow { key, step, .. }) = flow.filter(|_| is_shown)
                    && let Some(name) = action.name()
                {
                    let (track, time) = (track.id, *time);
                    let at = ArrowEnd { track, time };
                    self.store
                        .arrows
                        .add_flow((session.id, key), step, at, name);
                }
                apply(&self.store, &track, *action, *time, place, is_shown);
                self.add_stream_track(origin, track);
            }
            SentAction::Async {
                category,
                action,
                time,
                ..
            } => {
                let of = TrackOf::Async(shortened(category).into());
                let track = self.tracks.track(&self.store, session, of, &owner);
                apply(&self.store, &track, *action, *time, place, is_shown);
                self.add_stream_track(origin, track);
            }
            SentAction::Values { time, values, .. } => {
                for (name, value) in values {
                    let of = TrackOf::Counter(shortened(name).into());
                    let track = self.tracks.track(&self.store, session, of, &owner);
                    let action = Action::Counter(self.store.name(name), *time, *value);
                    apply(&self.store, &track, action, *time, place, is_shown);
                }
            }
        }
    }

    fn add_stream_track(&mut self, origin: Origin<'_>, track: Arc<Track>) {
        if let Some(stream) = self.stream(origin.stream.key) {
            stream.add_track(track);
        }
    }
}

impl SessionStage for TimelineStage {
    fn add_trace(&mut self, trace: TraceKey, session: &str, is_recording: bool) {
        let store = &self.store;
        let known = self.sessions.entry(session.to_owned());
        let known = known.or_insert_with(|| SessionState {
            session: store.add_session(session, is_recording),
            traces: 0,
        });
        known.traces += 1;
        let state = TraceState {
            session: Arc::clone(&known.session),
            name: session.to_owned(),
            corrections: None,
        };
        self.traces.insert(trace, state);
    }

    fn align_trace(&mut self, alignment: TraceAlignment) {
        let TraceAlignment {
            trace,
            host,
            corrections,
        } = alignment;
        if let Some(state) = self.traces.get_mut(&trace) {
            state.session.set_clock(host.to_string());
            state.corrections.clone_from(&corrections);
            self.log.set_corrections(trace, corrections);
        }
    }
}

impl Stage for TimelineStage {
    fn event(
        &mut self,
        event: &Event<'_>,
        _time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        let Some(stream) = self.stream(origin.stream.key) else {
            return Ok(true);
        };
        let place = stream.next;
        stream.next.event = place.event.saturating_add(1);
        if let Some(time) = event.time() {
            stream.add_time(time);
        }
        let is_shown = match &mut self.filter {
            Some(filter) => {
                // By the first event, the traces that are there have declared theirs.
                for description in self.undeclared.take_descriptions() {
                    write_message("warning: ", &format!("--filter: {description}"));
                }
                filter.matches(event, origin)
            }
            None => true,
        };
        // One event that cannot be shown does not end the rest.
        if let Err(error) = self.show_located(event, origin, place, is_shown) {
            let stream = &origin.stream.name;
            self.report_failure(&format!("cannot show an event: stream {stream}: {error}"));
        }
        Ok(true)
    }

    fn packet(&mut self, packet: &Packet, origin: Origin<'_>) -> Result<(), SinkError> {
        if let Some(trace) = self.traces.get(&origin.trace.key) {
            trace.session.add_packet(packet.len());
        }
        let stream = self
            .streams
            .get_or_insert(origin.stream.key.0, StreamState::default);
        let Some(stream) = stream else {
            return Ok(());
        };
        stream.end_packet(&self.log);
        // One copy, which all packets of the stream in the log share.
        let info = stream
            .info
            .get_or_insert_with(|| Arc::new(origin.stream.clone()));
        let number = self.log.add_packet(packet, origin.trace.key, info);
        stream.next = EventPlace {
            packet: number.unwrap_or(EventPlace::NOT_KEPT),
            event: 0,
        };
        Ok(())
    }

    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        self.log.add_metadata(bytes, trace);
        // Those of a recording are known before its metadata.
        let state = self.traces.get(&trace.key);
        if let Some(corrections) = state.and_then(|state| state.corrections.clone()) {
            self.log.set_corrections(trace.key, Some(corrections));
        }
        Ok(())
    }

    fn declared(&mut self, trace: &Trace) {
        self.undeclared.add_declarations(trace);
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        let Some(state) = self.traces.get(&origin.trace.key) else {
            return Ok(());
        };
        let session = Arc::clone(&state.session);
        let stream = self
            .streams
            .get_or_insert(origin.stream.key.0, StreamState::default);
        let Some(stream) = stream else {
            return Ok(());
        };
        // A stream that has had no event has no track yet, but its losses have to be seen.
        if stream.tracks.is_empty() {
            let name = origin.stream.name.rsplit('/').next().unwrap_or_default();
            let of = TrackOf::Stream(shortened(name).to_owned());
            let owner = Owner::default();
            let track = self.tracks.track(&self.store, &session, of, &owner);
            stream.tracks.push(track);
        }
        if let Some(begin) = loss.begin.filter(|_| stream.has_switches) {
            self.kernels
                .forget_running(&stream.tracks, begin.get(), &self.store);
        }
        self.store.add_loss(&session, &stream.tracks, loss);
        Ok(())
    }

    fn stream_ended(&mut self, stream: StreamKey) {
        if let Some(mut stream) = self.streams.remove(stream.0) {
            stream.end_packet(&self.log);
        }
    }

    fn trace_ended(&mut self, trace: TraceKey) {
        self.classes.retain(|_, class| class.trace != trace);
        self.recordings.forget_trace(trace);
        self.log.end_trace(trace);
        let Some(ended) = self.traces.remove(&trace) else {
            return;
        };
        let Some(state) = self.sessions.get_mut(&ended.name) else {
            return;
        };
        state.traces -= 1;
        if state.traces == 0 {
            let session = Arc::clone(&state.session);
            self.sessions.remove(&ended.name);
            session.set_ended(true);
            // Nothing is known of it after its latest event, although other sessions go on.
            let end = session.last_time().unwrap_or(0);
            self.tracks.end_session(session.id, end);
            self.kernels.forget_session(session.id);
        }
    }

    fn report_failure(&mut self, what: &str) {
        self.failures += 1;
        write_message("error: ", what);
    }

    fn report_warning(&mut self, what: &str) {
        write_message("warning: ", what);
    }
}

/// Writes a message to standard error.
pub(super) fn write_message(severity: &str, what: &str) {
    let what: String = printable(what).collect();
    print_message(format_args!("test-live: {severity}{what}"));
}
