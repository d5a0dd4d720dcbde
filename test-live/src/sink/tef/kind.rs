//! The kind of record that an event becomes, by the name of its class.

use std::sync::Arc;

use super::tracks::Track;

/// The kind of record that the events of a class become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// `tef:event`: a record of this very format.
    Record,
    /// `log:record`.
    Log,
    /// `span:enter`.
    SpanEnter,
    /// `span:exit`.
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
pub(super) struct Span {
    pub(super) name: Arc<str>,
    /// Whether a thread may go to another CPU meanwhile.
    migrates: bool,
}

/// Beginnings and endings by which the names of a pair differ: of the begin event, and of the end event.
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
const ON_ONE_CPU: [&str; 3] = ["irq_handler", "softirq", "hrtimer_expire"];

impl RecordKind {
    /// The kind for the class `name`, where `exists` says which other classes are declared.
    pub(super) fn of(name: &str, exists: impl Fn(&str) -> bool) -> Self {
        match name {
            "tef:event" => return Self::Record,
            "log:record" => return Self::Log,
            "span:enter" => return Self::SpanEnter,
            "span:exit" => return Self::SpanExit,
            "lttng_ust_cyg_profile:func_entry" | "lttng_ust_cyg_profile_fast:func_entry" => {
                return Self::FunctionEntry;
            }
            "lttng_ust_cyg_profile:func_exit" | "lttng_ust_cyg_profile_fast:func_exit" => {
                return Self::FunctionExit;
            }
            _ => {}
        }
        let both_ways = |(begin, end)| [(begin, end, true), (end, begin, false)];
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
        let span = Span {
            name: name.into(),
            migrates: !ON_ONE_CPU.contains(&name),
        };
        if is_begin {
            Self::Begin(span)
        } else {
            Self::End(span)
        }
    }

    /// Whether the class is one of the generic classes of our own producers.
    pub(super) fn is_generic(&self) -> bool {
        matches!(
            self,
            Self::Record | Self::Log | Self::SpanEnter | Self::SpanExit
        )
    }

    /// Whether begin and end of the same span are known to be on the same track. They are on that of a thread. On that
    /// of a CPU they are only for spans of the kernel that stay on one CPU: otherwise the thread may go to another
    /// CPU, and another thread may run in between.
    pub(super) fn fits(&self, track: Track) -> bool {
        match self {
            Self::Begin(span) | Self::End(span) => {
                track.is_thread || (track.is_kernel && !span.migrates)
            }
            Self::SpanEnter | Self::SpanExit | Self::FunctionEntry | Self::FunctionExit => {
                track.is_thread
            }
            Self::Record | Self::Log | Self::Instant => true,
        }
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
}
