//! The spans that threads are in: how deep an event is to be indented, and how long a span has taken when it ends.
//!
//! What is remembered is bounded, because begins without an end may come from anywhere: beyond the limit of one thread
//! spans are only counted, beyond the limits of all threads everything is forgotten.

use std::collections::HashMap;
use std::hash::Hash;

/// Largest number of open spans of a thread whose names and begins are remembered.
const MAX_SPANS_OF_THREAD: usize = 1024;
/// Largest number of open spans of all threads that are remembered.
const MAX_SPANS: usize = 1 << 17;
/// Largest number of threads that are remembered.
const MAX_THREADS: usize = 1 << 16;
/// Number of bytes of a name that are remembered and compared.
const MAX_NAME_BYTES: usize = 256;

/// The begin or end of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanEdge<'a> {
    /// The name of the span; an end without one is that of the innermost span.
    pub name: Option<&'a str>,
    /// Nanoseconds on the clock.
    pub time: Option<i64>,
    /// The number of the clock. Begin and end of a span are on the same one.
    pub clock: u32,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndedSpan {
    /// The name with which it has begun, to its first 256 bytes. Absent if the begin is not known.
    pub name: Option<Box<str>>,
    /// Nanoseconds from the begin to the end. Absent if a time is not known, or the end is before the begin.
    pub duration: Option<u64>,
}

/// The open spans of threads `T`.
#[derive(Debug)]
pub struct OpenSpans<T> {
    threads: HashMap<T, ThreadSpans>,
    /// The number of spans of all threads.
    count: usize,
}

#[derive(Debug, Default)]
struct ThreadSpans {
    group: u64,
    /// The innermost last.
    spans: Vec<OpenSpan>,
    /// The number of spans within those that are only counted.
    unremembered: usize,
}

#[derive(Debug)]
struct OpenSpan {
    name: Box<str>,
    begin: Option<i64>,
    clock: u32,
}

impl<T> Default for OpenSpans<T> {
    fn default() -> Self {
        Self {
            threads: HashMap::new(),
            count: 0,
        }
    }
}

impl<T: Eq + Hash> OpenSpans<T> {
    /// The number of spans that a thread is in.
    #[must_use]
    pub fn depth(&self, thread: &T) -> usize {
        let thread = self.threads.get(thread);
        thread.map_or(0, |thread| {
            thread.spans.len().saturating_add(thread.unremembered)
        })
    }

    /// A thread enters a span. The thread belongs to `group` from now on.
    pub fn begin(&mut self, thread: T, group: u64, edge: SpanEdge<'_>) {
        let is_new = !self.threads.contains_key(&thread);
        if self.count >= MAX_SPANS || is_new && self.threads.len() >= MAX_THREADS {
            *self = Self::default();
        }
        let thread = self.threads.entry(thread).or_default();
        thread.group = group;
        if thread.spans.len() >= MAX_SPANS_OF_THREAD {
            thread.unremembered = thread.unremembered.saturating_add(1);
            return;
        }
        self.count += 1;
        thread.spans.push(OpenSpan {
            name: remembered(edge.name.unwrap_or_default()).into(),
            begin: edge.time,
            clock: edge.clock,
        });
    }

    /// A thread leaves the innermost span of this name and clock. Spans within it, whose ends are missing, end too. An
    /// end without a begin changes nothing.
    pub fn end(&mut self, thread: &T, edge: SpanEdge<'_>) -> EndedSpan {
        let Some(spans) = self.threads.get_mut(thread) else {
            return EndedSpan::default();
        };
        if let Some(unremembered) = spans.unremembered.checked_sub(1) {
            spans.unremembered = unremembered;
            return EndedSpan::default();
        }
        let name = edge.name.map(remembered);
        let is_begin = |span: &OpenSpan| {
            span.clock == edge.clock && name.is_none_or(|name| *span.name == *name)
        };
        let Some(place) = spans.spans.iter().rposition(is_begin) else {
            return EndedSpan::default();
        };
        let before = spans.spans.len();
        let mut ended = spans.spans.drain(place..);
        let Some(span) = ended.next() else {
            return EndedSpan::default();
        };
        drop(ended);
        self.count = self.count.saturating_sub(before - place);
        if spans.spans.is_empty() {
            self.threads.remove(thread);
        }
        let duration = span.begin.zip(edge.time).and_then(|(begin, end)| {
            let duration = i128::from(end) - i128::from(begin);
            u64::try_from(duration).ok()
        });
        EndedSpan {
            name: Some(span.name),
            duration,
        }
    }

    /// Forgets the threads of a group.
    pub fn forget_group(&mut self, group: u64) {
        let mut count = 0;
        self.threads.retain(|_, thread| {
            let is_kept = thread.group != group;
            count += if is_kept { thread.spans.len() } else { 0 };
            is_kept
        });
        self.count = count;
    }
}

/// The part of a name that is remembered.
fn remembered(name: &str) -> &str {
    let end = name.floor_char_boundary(MAX_NAME_BYTES);
    name.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(name: &str, time: i64) -> SpanEdge<'_> {
        SpanEdge {
            name: Some(name),
            time: Some(time),
            clock: 0,
        }
    }

    fn ended(name: &str, duration: Option<u64>) -> EndedSpan {
        EndedSpan {
            name: Some(name.into()),
            duration,
        }
    }

    #[test]
    fn an_end_belongs_to_the_innermost_begin_of_its_thread() {
        let mut spans = OpenSpans::default();
        spans.begin(1, 0, edge("outer", 10));
        spans.begin(2, 0, edge("other", 11));
        spans.begin(1, 0, edge("inner", 12));
        assert_eq!(
            (spans.depth(&1), spans.depth(&2), spans.depth(&3)),
            (2, 1, 0)
        );
        let unnamed = SpanEdge {
            name: None,
            ..edge("", 15)
        };
        assert_eq!(spans.end(&1, unnamed), ended("inner", Some(3)));
        assert_eq!(spans.end(&1, edge("outer", 20)), ended("outer", Some(10)));
        assert_eq!((spans.depth(&1), spans.depth(&2)), (0, 1));
    }

    #[test]
    fn an_end_without_its_begin_has_no_duration_and_changes_nothing() {
        let mut spans = OpenSpans::default();
        assert_eq!(spans.end(&1, edge("a", 1)), EndedSpan::default());
        spans.begin(1, 0, edge("a", 10));
        assert_eq!(spans.end(&1, edge("b", 11)), EndedSpan::default());
        let other_clock = SpanEdge {
            clock: 1,
            ..edge("a", 12)
        };
        assert_eq!(spans.end(&1, other_clock), EndedSpan::default());
        assert_eq!(spans.depth(&1), 1);
        assert_eq!(spans.end(&1, edge("a", 9)), ended("a", None));
    }

    #[test]
    fn an_end_also_ends_the_spans_within_whose_ends_were_lost() {
        let mut spans = OpenSpans::default();
        for (time, name) in (0..).zip(["a", "b", "c"]) {
            spans.begin(1, 0, edge(name, time));
        }
        assert_eq!(spans.end(&1, edge("a", 5)), ended("a", Some(5)));
        assert_eq!(
            (spans.depth(&1), spans.count, spans.threads.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn spans_beyond_the_limit_of_a_thread_are_counted_only() {
        let mut spans = OpenSpans::default();
        let many = 2 * MAX_SPANS_OF_THREAD;
        for _ in 0..many {
            spans.begin(1, 0, edge("a", 0));
        }
        assert_eq!((spans.depth(&1), spans.count), (many, MAX_SPANS_OF_THREAD));
        for left in (0..many).rev() {
            let ended = spans.end(&1, edge("a", 7));
            assert_eq!(spans.depth(&1), left);
            let is_remembered = left < MAX_SPANS_OF_THREAD;
            assert_eq!(ended.duration, is_remembered.then_some(7));
        }
    }

    #[test]
    fn memory_for_threads_and_names_is_bounded() {
        let mut spans = OpenSpans::default();
        let name = "é".repeat(MAX_NAME_BYTES);
        for thread in 0..2 * MAX_THREADS {
            spans.begin(thread, 0, edge(&name, 0));
            assert!(spans.threads.len() <= MAX_THREADS);
        }
        let last = 2 * MAX_THREADS - 1;
        let ended = spans.end(&last, edge(&name, 1));
        assert_eq!(ended.name.unwrap().len(), MAX_NAME_BYTES);
    }

    #[test]
    fn the_threads_of_a_group_can_be_forgotten() {
        let mut spans = OpenSpans::default();
        spans.begin(1, 7, edge("a", 0));
        spans.begin(2, 8, edge("a", 0));
        spans.forget_group(7);
        assert_eq!((spans.depth(&1), spans.depth(&2), spans.count), (0, 1, 1));
    }
}
