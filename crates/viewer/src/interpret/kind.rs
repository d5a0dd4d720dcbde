//! The kind of record that an event becomes, by the name of its class.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::decode::Event;
use daemon::span_lines::SpanEvent;

use crate::attach::TraceKey;

/// The kinds of records that event classes become, of traces that have not ended.
#[derive(Debug, Default)]
pub struct RecordKinds(HashMap<(TraceKey, u64), StreamClassKinds>);

/// The kinds of records that the event classes of a stream class become.
#[derive(Debug, Default)]
struct StreamClassKinds {
    /// The number of event classes in the stream class when the kinds were found.
    declared: usize,
    /// The kinds, by the number of the event class.
    kinds: HashMap<u64, RecordKind>,
}

/// The kind of record that the events of a class become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordKind {
    /// `tef:event`: a record of this very format.
    Record,
    /// `log:record`: a line in the log of a program.
    Log,
    /// `span:enter`, alone or after the target of the span: a thread enters a span.
    SpanEnter,
    /// `span:exit`, alone or after the target of the span: a thread leaves a span.
    SpanExit,
    /// The entry of a function. (`-finstrument-functions`)
    FunctionEntry,
    /// The exit of a function.
    FunctionExit,
    /// The begin of the span of this name.
    Begin(Span),
    /// The end of the span of this name.
    End(Span),
    /// A point in time.
    Instant,
}

/// The time between a pair of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The name of the span.
    pub name: Arc<str>,
    /// Whether a thread may go to another CPU meanwhile.
    migrates: bool,
}

impl Span {
    /// The name that is shown, of a span between events of a class: calls of a kernel are told from
    /// functions.
    #[must_use]
    pub fn shown_name(&self, class: &str, is_kernel: bool) -> String {
        let is_call = is_kernel && class.contains("syscall_");
        let prefix = if is_call { "sys_" } else { "" };
        format!("{prefix}{}", self.name)
    }
}

/// Beginnings and endings by which the names of a pair differ: of the begin event, and of the end
/// event.
const PREFIXES: [(&str, &str); 2] = [
    ("syscall_entry_", "syscall_exit_"),
    ("compat_syscall_entry_", "compat_syscall_exit_"),
];
const SUFFIXES: [(&str, &str); 4] = [
    ("_begin", "_end"),
    ("_entry", "_exit"),
    ("_start", "_stop"),
    ("_start", "_end"),
];
/// Spans of the kernel that stay on one CPU from begin to end.
const ON_ONE_CPU: [&str; 7] = [
    "irq_handler",
    "softirq",
    "irq_softirq",
    "irq_tasklet_hi",
    "irq_tasklet_low",
    "hrtimer_expire",
    "timer_hrtimer_expire",
];
/// Beginnings of names of such spans, by the vectors of interrupts.
const VECTORS: [&str; 2] = ["x86_irq_vectors_", "irq_vectors:"];

impl RecordKinds {
    /// The kind of record that an event becomes. Found anew when there are more classes, because
    /// the other half of a pair may be among them.
    pub fn kind(&mut self, event: &Event<'_>, trace: TraceKey) -> RecordKind {
        let stream = event.stream_class();
        let classes = stream.events();
        let known = self.0.entry((trace, stream.id())).or_default();
        if known.declared != classes.len() {
            known.declared = classes.len();
            known.kinds.clear();
        }
        let class = event.class();
        let kind = known.kinds.entry(class.id());
        let kind = kind.or_insert_with(|| RecordKind::of_event(event));
        // A cheap copy, because the name of the span is shared.
        kind.clone()
    }

    /// Forgets a trace that has ended.
    pub fn forget_trace(&mut self, trace: TraceKey) {
        self.0.retain(|(of, _), _| *of != trace);
    }
}

/// The classes of entries of functions. (`-finstrument-functions`)
const FUNCTION_ENTRIES: [&str; 2] = [
    "lttng_ust_cyg_profile:func_entry",
    "lttng_ust_cyg_profile_fast:func_entry",
];
/// The classes of exits of functions.
const FUNCTION_EXITS: [&str; 2] = [
    "lttng_ust_cyg_profile:func_exit",
    "lttng_ust_cyg_profile_fast:func_exit",
];

impl RecordKind {
    /// The kind for the class of an event, by the classes that are declared so far.
    #[must_use]
    pub fn of_event(event: &Event<'_>) -> Self {
        let classes = event.stream_class().events();
        let exists = |name: &str| classes.iter().any(|class| class.name() == Some(name));
        Self::of(event.class().name().unwrap_or_default(), exists)
    }

    /// The kind for the class `name`, where `exists` says which other classes are declared.
    pub fn of(name: &str, exists: impl Fn(&str) -> bool) -> Self {
        match name {
            "tef:event" => return Self::Record,
            "log:record" => return Self::Log,
            _ if FUNCTION_ENTRIES.contains(&name) => return Self::FunctionEntry,
            _ if FUNCTION_EXITS.contains(&name) => return Self::FunctionExit,
            _ => {}
        }
        match SpanEvent::of(name) {
            Some((SpanEvent::Enter, _)) => return Self::SpanEnter,
            Some((SpanEvent::Exit, _)) => return Self::SpanExit,
            _ => {}
        }
        let both_ways = |(begin, end)| [(begin, end, true), (end, begin, false)];
        // Without its other half an event is a point in time: its span would never begin or end.
        for (this, other, is_begin) in PREFIXES.into_iter().flat_map(both_ways) {
            if let Some(call) = name.strip_prefix(this)
                && exists(&format!("{other}{call}"))
            {
                return Self::half(call, is_begin);
            }
        }
        for (this, other, is_begin) in SUFFIXES.into_iter().flat_map(both_ways) {
            if let Some(span) = name.strip_suffix(this)
                && exists(&format!("{span}{other}"))
            {
                return Self::half(span, is_begin);
            }
        }
        Self::Instant
    }

    fn half(name: &str, is_begin: bool) -> Self {
        // perf puts the subsystem in front.
        let plain = name.rsplit(':').next().unwrap_or_default();
        let is_vector = VECTORS.iter().any(|vector| name.starts_with(vector));
        let span = Span {
            name: name.into(),
            migrates: !is_vector && !ON_ONE_CPU.contains(&plain),
        };
        if is_begin {
            Self::Begin(span)
        } else {
            Self::End(span)
        }
    }

    /// Whether the class is one of the generic classes of our own producers.
    pub fn is_generic(&self) -> bool {
        matches!(
            self,
            Self::Record | Self::Log | Self::SpanEnter | Self::SpanExit
        )
    }

    /// Whether the events begin or end what a CPU does besides the thread that it runs, if they are
    /// those of a kernel.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Begin(span) | Self::End(span) if !span.migrates)
    }

    /// Whether begin and end of the same span are known to be on the same track. They are on that
    /// of a thread. On that of a CPU they are only for spans of the kernel that stay on one CPU:
    /// otherwise the thread may go to another CPU, and another thread may run in between.
    /// `is_thread`: the track is that of a thread; `is_kernel`: the events are those of a kernel.
    pub fn fits(&self, is_thread: bool, is_kernel: bool) -> bool {
        match self {
            Self::Begin(span) | Self::End(span) => is_thread || (is_kernel && !span.migrates),
            Self::SpanEnter | Self::SpanExit | Self::FunctionEntry | Self::FunctionExit => {
                is_thread
            }
            Self::Record | Self::Log | Self::Instant => true,
        }
    }
}

/// Whether events of a class are entries or exits of functions.
pub(super) fn is_function_class(name: &str) -> bool {
    FUNCTION_ENTRIES.contains(&name) || FUNCTION_EXITS.contains(&name)
}

/// The target of a span in the name of the class of [`RecordKind::SpanEnter`] or
/// [`RecordKind::SpanExit`], if there is one.
pub fn target_of_span(name: &str) -> Option<&str> {
    match SpanEvent::of(name)? {
        (SpanEvent::Enter | SpanEvent::Exit, target) => Some(target).filter(|of| !of.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, others: &[&str]) -> RecordKind {
        RecordKind::of(name, |other| others.contains(&other))
    }

    #[test]
    fn a_span_needs_both_its_begin_and_end_event_classes() {
        let begin = |name| RecordKind::half(name, true);
        let end = |name| RecordKind::half(name, false);
        for (name, other, want) in [
            ("p:frame_begin", "p:frame_end", begin("p:frame")),
            ("p:frame_end", "p:frame_begin", end("p:frame")),
            (
                "irq_handler_entry",
                "irq_handler_exit",
                begin("irq_handler"),
            ),
            ("a_start", "a_stop", begin("a")),
            ("a_start", "a_end", begin("a")),
            ("a_end", "a_start", end("a")),
            ("syscall_entry_read", "syscall_exit_read", begin("read")),
            (
                "compat_syscall_exit_read",
                "compat_syscall_entry_read",
                end("read"),
            ),
            ("p:frame_begin", "q:frame_end", RecordKind::Instant),
            ("weekend", "week_begin", RecordKind::Instant),
            ("span:enter", "", RecordKind::SpanEnter),
            ("app::db:span:exit", "", RecordKind::SpanExit),
            ("lifespan:exit", "", RecordKind::Instant),
            ("app:span:new", "", RecordKind::Instant),
            (
                "lttng_ust_cyg_profile:func_entry",
                "",
                RecordKind::FunctionEntry,
            ),
            (
                "lttng_ust_cyg_profile_fast:func_exit",
                "",
                RecordKind::FunctionExit,
            ),
        ] {
            assert_eq!(kind(name, &[other]), want, "{name}");
        }
    }

    #[test]
    fn the_target_of_a_span_is_in_front_of_the_name_of_its_event() {
        assert_eq!(target_of_span("app::db:span:enter"), Some("app::db"));
        assert_eq!(target_of_span("app:span:exit"), Some("app"));
        assert_eq!(target_of_span("span:enter"), None);
    }
}
