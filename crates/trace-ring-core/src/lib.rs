//! Writes events to shared memory: a program that is killed loses none that it has finished
//! writing.
//!
//! Each thread has a ring in a file under a run directory. The program needs no daemon: a reader of
//! the files finds every committed event, while the program runs or after its death. Environment:
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `TRACE_RING` | `off`, `discard` or `overwrite` | `discard` |
//! | `TRACE_RING_SIZE` | bytes of a ring, with `K` or `M`; rounded up to a power of two | `1M` |
//! | `TRACE_RING_FILTER` | [directives](filter::Filter::parse) as in `RUST_LOG` | `info` |
//! | `TRACE_RING_CLOCK` | `monotonic` or `counter` | `monotonic` |
//! | `TRACE_RING_DIR` | the run directory | `$XDG_RUNTIME_DIR/ring`, else `/run/ring` |
//!
//! With `counter` the time of an event is computed from the processor's counter, where the kernel
//! computes its own from it: an event takes 10 ns less, its time differs from CLOCK_MONOTONIC by up
//! to a microsecond, and may be before memory accesses in front of the event are complete.
//!
//! A full ring keeps the oldest events with `discard`, and the newest with `overwrite`.
//! When no ring can be made, the program runs on without tracing, after one line on stderr.
//!
//! Read in this order: [`format`](mod@format) (what is in the files), `protocol` (how a ring is
//! written), `process` (directory, classes, filter), `rings` and `thread` (which ring an event goes
//! to), `producer` (set-up and fork), [`CallSite`].

mod busy;
#[cfg(feature = "c-api")]
mod c_api;
mod call_site;
mod classes;
mod clock;
mod event_writer;
pub mod filter;
pub mod format;
#[cfg(feature = "tracing")]
mod layer;
mod memory;
mod process;
mod process_directory;
mod producer;
mod protocol;
mod replace_filter;
mod report;
mod rings;
mod settings;
mod severity;
mod thread;
mod thread_ring;
mod value;

#[doc(hidden)]
pub use call_site::may_pass;
pub use call_site::{CallSite, FieldTypes};
pub use event_writer::EventWriter;
#[cfg(feature = "tracing")]
pub use layer::layer;
pub use replace_filter::replace_filter;
pub use severity::Severity;
pub use value::Value;
#[doc(hidden)]
pub use value::{ValueList, write_values};

/// Makes the process directory now rather than at the first event, so that the filter can be
/// changed from outside before anything is written. Returns whether events are recorded. Calling it
/// is optional, and more than once is harmless.
pub fn init() -> bool {
    busy::Busy::enter().is_some_and(|busy| producer::set_up(&busy).is_some())
}

/// Sets the filter of a process whose environment has no `TRACE_RING_FILTER`. The first call
/// counts, and only before the first event.
pub fn set_default_filter(directives: &'static str) {
    settings::set_default_directives(directives);
}

/// Returns the generation of the process, which is 0 until the process is set up, and that of its
/// filter. A forked child has others than its parent.
#[doc(hidden)]
#[inline]
#[must_use]
pub fn generations() -> (u32, u32) {
    (
        producer::generation(),
        producer::filter_words().generation(),
    )
}

/// Counts an event that is lost because its thread is about to write another one.
#[doc(hidden)]
pub fn count_lost() {
    producer::count_lost_without_ring();
}

/// Events that were lost in this process and that no ring counts: no ring could be made, their
/// class did not fit into `meta`, or a signal handler began them while its thread was making its
/// ring.
#[must_use]
pub fn lost_without_ring() -> u64 {
    producer::lost_without_ring()
}

/// Writes an event: `event!(Info, "request done", status = 200_u32, path = "/x")`.
///
/// The severity is a variant of [`Severity`], the name a literal; each field is an expression of a
/// type that implements [`Value`]. Expressions are evaluated only when the filter lets the event
/// pass. The target is the module path, or another literal:
/// `event!(target: "app::db", Debug, "query", rows = 3_u64)`.
#[macro_export]
macro_rules! event {
    (target: $target:expr, $severity:ident, $name:expr $(, $field:ident = $value:expr)* $(,)?) => {{
        static SITE: $crate::CallSite = $crate::CallSite::new(
            $crate::Severity::$severity,
            $target,
            $name,
            ::std::file!(),
            ::std::line!(),
            &[$(::std::stringify!($field)),*],
        );
        if $crate::may_pass($crate::Severity::$severity) && SITE.is_enabled() {
            $crate::write_values(&SITE, $crate::value_list!($($value),*));
        }
    }};
    ($severity:ident, $name:expr $(, $field:ident = $value:expr)* $(,)?) => {
        $crate::event!(
            target: ::std::module_path!(), $severity, $name $(, $field = $value)*
        )
    };
}

/// The values of an event as a [`ValueList`].
#[doc(hidden)]
#[macro_export]
macro_rules! value_list {
    () => { () };
    ($first:expr $(, $rest:expr)*) => { (&$first, $crate::value_list!($($rest),*)) };
}

/// The examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
