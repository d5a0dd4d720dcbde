//! What the stage knows of event classes and of streams, and need not find again for each event.

use std::sync::Arc;

use ctf::TimeCorrections;
use ctf::decode::Event;
use daemon::span_lines::SpanEvent;
use viewer::attach::{StreamInfo, TraceKey};
use viewer::interpret::environment::Environment;
use viewer::interpret::interpreted_fields::InterpretedFields;
use viewer::interpret::kind::RecordKind;
use viewer::interpret::span_edges::is_of_perf;
use viewer::mux::is_since_1970;

use super::kernel_class::KernelClass;
use super::packet_log::PacketLog;
use super::row::{Action, EventPlace};
use super::store::{Session, Store, Track};

/// Tracks of a stream on which its losses are shown.
const MAX_TRACKS_WITH_LOSSES: usize = 64;

/// A trace that has not ended.
pub(super) struct TraceState {
    pub(super) session: Arc<Session>,
    /// The name of the session.
    pub(super) name: String,
    /// The corrections of its times. Absent if they are shown as they are.
    pub(super) corrections: Option<Arc<TimeCorrections>>,
}

/// A session that has not ended.
pub(super) struct SessionState {
    pub(super) session: Arc<Session>,
    /// The number of traces that have not ended.
    pub(super) traces: usize,
}

/// A track of a stream, and what is known of the events that come there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) track: Arc<Track>,
    /// Whether only events of one thread come there.
    pub(super) is_thread: bool,
    pub(super) owner: EventOwner,
}

/// Whose an event is, as its contexts say: process, thread and CPU.
pub(super) type EventOwner = (Option<i64>, Option<i64>, Option<i64>);

/// What is the same for all events of a class.
pub(super) struct ClassState {
    pub(super) trace: TraceKey,
    /// The number of event classes in the stream class when the kind was found: the other half of a
    /// pair may come later.
    pub(super) declared: usize,
    pub(super) kind: RecordKind,
    /// The number of the name of the class.
    pub(super) name: u32,
    /// The number of the name of the span that its events begin or end, if it is known by the
    /// class; else that of the class.
    pub(super) span: u32,
    pub(super) has_contexts: bool,
    /// Whether the events have fields of a span of `tracing`: of a new one, or further fields.
    pub(super) span_fields: Option<bool>,
    /// Whether fields of the payload count.
    pub(super) needs_payload: bool,
    /// What the events say of CPUs and threads. Absent if they are not those of a kernel.
    pub(super) kernel: Option<KernelClass>,
    /// Whether the times of its events count from 1970.
    pub(super) is_unix: bool,
}

#[derive(Default)]
pub(super) struct StreamState {
    pub(super) tracks: Vec<Arc<Track>>,
    /// Whether there were events which say that CPUs run other threads.
    pub(super) has_switches: bool,
    /// The place of the latest event, which is often that of the next: finding it takes long.
    pub(super) place: Option<Place>,
    pub(super) next: EventPlace,
    /// The stream as the packet log names it. Absent before its first packet.
    pub(super) info: Option<Arc<StreamInfo>>,
    /// The first and the last time in the packet that is read.
    pub(super) times: Option<(i64, i64)>,
    /// The number of the packet whose context has been decoded; 0 before the first.
    pub(super) packet: u64,
    /// What the context of that packet says.
    pub(super) packet_fields: InterpretedFields,
}

impl ClassState {
    pub(super) fn new(event: &Event<'_>, trace: TraceKey, store: &Store) -> Self {
        let (stream, class) = (event.stream_class(), event.class());
        let kind = RecordKind::of_event(event);
        let name = store.name(class.name().unwrap_or("<unknown>"));
        let class_name = class.name().unwrap_or_default();
        let is_kernel = Environment::of(event.trace()).is_kernel;
        let span = match &kind {
            RecordKind::Begin(span) | RecordKind::End(span) => {
                store.name(&span.shown_name(class_name, is_kernel))
            }
            _ => name,
        };
        let kernel = is_kernel.then(|| KernelClass::of(class_name, &kind, event.trace()));
        let span_fields = match SpanEvent::of(class_name) {
            Some((SpanEvent::New, _)) => Some(true),
            Some((SpanEvent::Record, _)) => Some(false),
            _ => None,
        };
        let is_function = matches!(kind, RecordKind::FunctionEntry | RecordKind::FunctionExit);
        let is_kernel_payload =
            kernel.is_some_and(KernelClass::needs_payload) || is_kernel && is_of_perf(event);
        Self {
            trace,
            declared: stream.events().len(),
            needs_payload: span_fields.is_some()
                || kind.is_generic()
                || is_function
                || is_kernel_payload,
            span_fields,
            kernel,
            kind,
            name,
            span,
            has_contexts: stream.event_context().is_some() || class.context().is_some(),
            is_unix: is_since_1970(event.trace(), stream),
        }
    }

    /// What an event with these fields is. `fits`: begin and end of spans are on one track.
    /// `function`: the name of the function that it enters or leaves, if that is known.
    pub(super) fn action(
        &self,
        fields: &InterpretedFields,
        fits: bool,
        function: Option<&str>,
        time: i64,
        store: &Store,
    ) -> Action {
        let text = |text: &[u8]| match text {
            [] => self.name,
            text => store.name(&String::from_utf8_lossy(text)),
        };
        match &self.kind {
            RecordKind::Record => {
                let name = text(&fields.name);
                let duration = i64::try_from(fields.duration).unwrap_or(0);
                match &*fields.phase {
                    b"B" => Action::Begin(name),
                    b"E" => Action::End(None),
                    b"X" => Action::Complete(name, time, time.saturating_add(duration)),
                    _ => Action::Instant(name, time),
                }
            }
            RecordKind::Log => Action::Instant(text(&fields.message), time),
            _ if !fits => Action::Instant(self.name, time),
            RecordKind::SpanEnter => match fields.span {
                Some(id) => Action::Enter(text(&fields.name), id),
                None => Action::Begin(text(&fields.name)),
            },
            RecordKind::SpanExit => match fields.span {
                Some(id) => Action::Exit(id),
                None if fields.name.is_empty() => Action::End(None),
                None => Action::End(Some(text(&fields.name))),
            },
            RecordKind::Begin(_) => Action::Begin(self.span),
            RecordKind::End(_) => Action::End(Some(self.span)),
            RecordKind::FunctionEntry | RecordKind::FunctionExit => {
                let address = || fields.address.map(|address| format!("{address:#x}"));
                let name = function.map(str::to_owned).or_else(address);
                let name = name.map(|name| store.name(&name));
                match self.kind {
                    RecordKind::FunctionEntry => Action::Begin(name.unwrap_or(self.name)),
                    // `cyg_profile_fast` does not say which function ends.
                    _ => Action::End(name),
                }
            }
            RecordKind::Instant => Action::Instant(self.name, time),
        }
    }
}

impl StreamState {
    /// An event of the packet that is read is at this time, of its arrival or on the timeline.
    pub(super) fn add_time(&mut self, time: i64) {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
    }

    /// Tells the log when the events of the packet were that has been read.
    pub(super) fn end_packet(&mut self, log: &PacketLog) {
        if let Some(times) = self.times.take() {
            log.set_times(self.next.packet, times);
        }
    }

    /// Remembers that there are events on a track: losses are shown there, too.
    pub(super) fn add_track(&mut self, track: Arc<Track>) {
        if self.tracks.last().is_some_and(|last| last.id == track.id) {
            return;
        }
        // Moved to the end: the track that was not used for the longest time is dropped first.
        self.tracks.retain(|known| known.id != track.id);
        if self.tracks.len() >= MAX_TRACKS_WITH_LOSSES {
            self.tracks.remove(0);
        }
        self.tracks.push(track);
    }
}
