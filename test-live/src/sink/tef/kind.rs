//! What becomes of an event, as its class' name says.

use std::sync::Arc;

use super::tracks::Track;

/// What becomes of the events of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `tef:event`: a record of this very format.
    Record,
    /// `log:record`.
    Log,
    /// `span:enter`.
    SpanEnter,
    /// `span:exit`.
    SpanExit,
    /// A function is entered. (`-finstrument-functions`)
    FunctionEntry,
    /// It is left.
    FunctionExit,
    /// Begins the span of this name.
    Begin(Span),
    /// Ends it.
    End(Span),
    /// A point in time.
    Instant,
}

/// What happens between a pair of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    name: Arc<str>,
    /// Whether a thread may go to another CPU meanwhile.
    migrates: bool,
}

impl std::ops::Deref for Span {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

/// How names of pairs end.
const SUFFIXES: [(&str, &[&str]); 3] = [
    ("_begin", &["_end"]),
    ("_entry", &["_exit"]),
    ("_start", &["_stop", "_end"]),
];
/// How names of pairs begin.
const PREFIXES: [(&str, &str); 2] = [
    ("syscall_entry_", "syscall_exit_"),
    ("compat_syscall_entry_", "compat_syscall_exit_"),
];
/// Of the kernel: what is done on one CPU from begin to end.
const ON_ONE_CPU: [&str; 3] = ["irq_handler", "softirq", "hrtimer_expire"];

impl Kind {
    /// Of the class `name`, where `exists` says which others there are.
    pub(crate) fn of(name: &str, exists: impl Fn(&str) -> bool) -> Self {
        match name {
            "tef:event" => return Self::Record,
            "log:record" => return Self::Log,
            "span:enter" => return Self::SpanEnter,
            "span:exit" => return Self::SpanExit,
            _ => {}
        }
        if let Some(("lttng_ust_cyg_profile" | "lttng_ust_cyg_profile_fast", event)) =
            name.split_once(':')
        {
            match event {
                "func_entry" => return Self::FunctionEntry,
                "func_exit" => return Self::FunctionExit,
                _ => {}
            }
        }
        for (begin, end) in PREFIXES {
            for (this, other, begins) in [(begin, end, true), (end, begin, false)] {
                if let Some(call) = name.strip_prefix(this)
                    && exists(&format!("{other}{call}"))
                {
                    return Self::pair(call, begins);
                }
            }
        }
        for (begin, ends) in SUFFIXES {
            for end in ends {
                for (this, other, begins) in [(begin, *end, true), (*end, begin, false)] {
                    if let Some(span) = name.strip_suffix(this)
                        && exists(&format!("{span}{other}"))
                    {
                        return Self::pair(span, begins);
                    }
                }
            }
        }
        Self::Instant
    }

    fn pair(name: &str, begins: bool) -> Self {
        let span = Span {
            name: name.into(),
            migrates: !ON_ONE_CPU.contains(&name),
        };
        if begins {
            Self::Begin(span)
        } else {
            Self::End(span)
        }
    }

    /// Whether its fields are those of our own generic classes.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Record | Self::Log | Self::SpanEnter | Self::SpanExit
        )
    }

    /// Whether begin and end are both seen on `track`. On the track of a kernel's CPU they are not, if
    /// the thread may go to another CPU or another thread may come between.
    pub(crate) fn fits(&self, track: Track) -> bool {
        match self {
            Self::Begin(span) | Self::End(span) => !(track.is_kernel_cpu && span.migrates),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, others: &[&str]) -> Kind {
        Kind::of(name, |other| others.contains(&other))
    }

    #[test]
    fn a_span_needs_both_its_begin_and_end_event_classes() {
        let begin = |name| Kind::pair(name, true);
        let end = |name| Kind::pair(name, false);
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
            ("p:frame_begin", "q:frame_end", Kind::Instant),
            ("weekend", "week_begin", Kind::Instant),
            ("lttng_ust_cyg_profile:func_entry", "", Kind::FunctionEntry),
            (
                "lttng_ust_cyg_profile_fast:func_exit",
                "",
                Kind::FunctionExit,
            ),
        ] {
            assert_eq!(kind(name, &[other]), want, "{name}");
        }
    }
}
