//! The spans that threads are in: how deep an event is to be indented, and how long a span has
//! taken when it ends.
//!
//! Ends are paired with begins by the id of the span if they have one: such spans end in any order,
//! as those of `tracing` do whose guards are dropped in another one. Others are nested, and are
//! paired by name.
//!
//! What is remembered is bounded, because begins without an end may come from anywhere: beyond the
//! limit of one thread spans are only counted, beyond the limits of all threads everything is
//! forgotten. Where events were lost, an end may be missing.

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
    /// The id of the span, which no other open span of the thread has. Absent if the program does
    /// not say it.
    pub id: Option<u64>,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSpan<D = ()> {
    /// The name with which it has begun, to its first 256 bytes. Absent if the begin is not known.
    pub name: Option<Box<str>>,
    /// Nanoseconds from the begin to the end. Absent if a time is not known, or the end is before
    /// the begin.
    pub duration: Option<u64>,
    /// The number of spans around it.
    pub depth: usize,
    /// What was remembered of it. Absent if the begin is not known.
    pub data: Option<D>,
    /// What was remembered of the spans within it whose ends are missing, the innermost first.
    pub within: Vec<D>,
    /// Whether the begin is not known because too many spans were open.
    pub is_unremembered: bool,
}

/// The open spans of threads `T`, and something `D` for each.
#[derive(Debug)]
pub struct OpenSpans<T, D = ()> {
    threads: HashMap<T, ThreadSpans<D>>,
    /// The number of spans of all threads.
    count: usize,
    /// The number of losses of each group that has any.
    losses: HashMap<u64, u64>,
}

#[derive(Debug)]
struct ThreadSpans<D> {
    group: u64,
    /// The open spans, the innermost last.
    spans: Vec<OpenSpan<D>>,
    /// The number of spans within those that are only counted.
    unremembered: usize,
}

#[derive(Debug)]
struct OpenSpan<D> {
    name: Box<str>,
    begin: Option<i64>,
    clock: u32,
    id: Option<u64>,
    /// The number of losses of the group when the span began. After more of them its end may be
    /// missing.
    losses: u64,
    data: D,
}

impl<D> Default for EndedSpan<D> {
    fn default() -> Self {
        Self {
            name: None,
            duration: None,
            depth: 0,
            data: None,
            within: Vec::new(),
            is_unremembered: false,
        }
    }
}

impl<T, D> Default for OpenSpans<T, D> {
    fn default() -> Self {
        Self {
            threads: HashMap::new(),
            count: 0,
            losses: HashMap::new(),
        }
    }
}

impl<D> ThreadSpans<D> {
    fn depth(&self) -> usize {
        self.spans.len().saturating_add(self.unremembered)
    }

    /// Returns the place of the innermost span that an end may belong to.
    fn place(&self, edge: SpanEdge<'_>) -> Option<usize> {
        let name = edge.name.map(remembered);
        self.spans.iter().rposition(|span| match edge.id {
            Some(_) => span.clock == edge.clock && span.id == edge.id,
            None => span.clock == edge.clock && name.is_none_or(|name| *span.name == *name),
        })
    }
}

impl<T: Eq + Hash, D> OpenSpans<T, D> {
    /// Returns the number of spans that a thread is in.
    #[must_use]
    pub fn depth(&self, thread: &T) -> usize {
        self.threads.get(thread).map_or(0, ThreadSpans::depth)
    }

    /// Adds a span that a thread enters. The thread belongs to `group` from now on. Returns the
    /// number of spans that are not remembered because of it: itself, or all others.
    pub fn begin(&mut self, thread: T, group: u64, edge: SpanEdge<'_>, data: D) -> u64 {
        let is_new = !self.threads.contains_key(&thread);
        let mut forgotten = 0;
        if self.count >= MAX_SPANS || is_new && self.threads.len() >= MAX_THREADS {
            forgotten = self.count as u64;
            *self = Self::default();
        }
        let losses = self.losses.get(&group).copied().unwrap_or(0);
        let thread = self.threads.entry(thread);
        let thread = thread.or_insert_with(|| ThreadSpans {
            group,
            spans: Vec::new(),
            unremembered: 0,
        });
        thread.group = group;
        if thread.spans.len() >= MAX_SPANS_OF_THREAD {
            thread.unremembered = thread.unremembered.saturating_add(1);
            return forgotten + 1;
        }
        self.count += 1;
        thread.spans.push(OpenSpan {
            name: remembered(edge.name.unwrap_or_default()).into(),
            begin: edge.time,
            clock: edge.clock,
            id: edge.id,
            losses,
            data,
        });
        forgotten
    }

    /// Returns what is remembered of the innermost span of a thread.
    pub fn innermost(&mut self, thread: &T) -> Option<&mut D> {
        let spans = &mut self.threads.get_mut(thread)?.spans;
        spans.last_mut().map(|span| &mut span.data)
    }

    /// Returns the id of the innermost span of a thread, if it has one.
    #[must_use]
    pub fn innermost_id(&self, thread: &T) -> Option<u64> {
        self.threads.get(thread)?.spans.last()?.id
    }

    /// Ends the span of this id and clock, which a thread leaves, or without an id the innermost
    /// one of this name and clock. Spans within it end too, unless they have ids.
    pub fn end(&mut self, thread: &T, edge: SpanEdge<'_>) -> EndedSpan<D> {
        let Some(spans) = self.threads.get_mut(thread) else {
            return EndedSpan::default();
        };
        let losses = self.losses.get(&spans.group).copied().unwrap_or(0);
        let place = spans.place(edge);
        let is_unremembered = spans.unremembered > 0 && (edge.id.is_none() || place.is_none());
        if is_unremembered {
            spans.unremembered -= 1;
        }
        let Some(place) = place.filter(|_| !is_unremembered) else {
            return EndedSpan {
                depth: spans.depth(),
                is_unremembered,
                ..EndedSpan::default()
            };
        };
        let before = spans.spans.len();
        let mut ended = spans.spans.split_off(place).into_iter();
        let Some(span) = ended.next() else {
            return EndedSpan::default();
        };
        let mut within = Vec::new();
        for inner in ended {
            match edge.id.is_some() && inner.id.is_some() && inner.losses == losses {
                true => spans.spans.push(inner),
                false => within.push(inner.data),
            }
        }
        within.reverse();
        self.count = self.count.saturating_sub(before - spans.spans.len());
        if spans.depth() == 0 {
            self.threads.remove(thread);
        }
        let duration = span.begin.zip(edge.time).and_then(|(begin, end)| {
            let duration = i128::from(end) - i128::from(begin);
            u64::try_from(duration).ok()
        });
        EndedSpan {
            name: Some(span.name),
            duration,
            depth: place,
            data: Some(span.data),
            within,
            is_unremembered: false,
        }
    }

    /// Returns what is remembered of the spans that will still be open when the span of this end,
    /// which has an id, has ended, although they began within it; the innermost first.
    pub fn outliving(&mut self, thread: &T, edge: SpanEdge<'_>) -> impl Iterator<Item = &mut D> {
        let spans = self.threads.get_mut(thread);
        let place = spans.as_ref().and_then(|spans| spans.place(edge));
        let within = spans.zip(place.filter(|_| edge.id.is_some()));
        let losses = within
            .as_ref()
            .and_then(|(spans, _)| self.losses.get(&spans.group));
        let losses = losses.copied().unwrap_or(0);
        let within = within
            .into_iter()
            .flat_map(|(spans, place)| spans.spans.iter_mut().skip(place + 1).rev());
        within
            .filter(move |inner| inner.id.is_some() && inner.losses == losses)
            .map(|inner| &mut inner.data)
    }

    /// Counts a loss of events of a group: the ends of its open spans may be among them.
    pub fn add_loss(&mut self, group: u64) {
        *self.losses.entry(group).or_default() += 1;
    }

    /// Forgets the threads of a group.
    pub fn forget_group(&mut self, group: u64) {
        drop(self.take_group(group));
    }

    /// Forgets the threads of a group, and returns what was remembered of their open spans.
    pub fn take_group(&mut self, group: u64) -> Vec<D> {
        self.losses.remove(&group);
        let taken = self.threads.extract_if(|_, thread| thread.group == group);
        let spans = taken.flat_map(|(_, thread)| thread.spans);
        let taken: Vec<D> = spans.map(|span| span.data).collect();
        self.count = self.count.saturating_sub(taken.len());
        taken
    }

    /// Forgets all threads, and returns what was remembered of their open spans.
    pub fn take_all(&mut self) -> Vec<D> {
        let threads = std::mem::take(self).threads.into_values();
        let spans = threads.flat_map(|thread| thread.spans);
        spans.map(|span| span.data).collect()
    }
}

/// Returns the part of a name that is remembered.
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
            id: None,
        }
    }

    fn ended(name: &str, duration: Option<u64>) -> EndedSpan {
        EndedSpan {
            name: Some(name.into()),
            duration,
            data: Some(()),
            ..EndedSpan::default()
        }
    }

    /// Makes the result of the end of a span that has taken so long and has so many others around
    /// it.
    fn ended_at(depth: usize, name: &str, duration: Option<u64>) -> EndedSpan {
        EndedSpan {
            depth,
            ..ended(name, duration)
        }
    }

    #[test]
    fn an_end_belongs_to_the_innermost_begin_of_its_thread() {
        let mut spans = OpenSpans::default();
        spans.begin(1, 0, edge("outer", 10), ());
        spans.begin(2, 0, edge("other", 11), ());
        spans.begin(1, 0, edge("inner", 12), ());
        assert_eq!(
            (spans.depth(&1), spans.depth(&2), spans.depth(&3)),
            (2, 1, 0)
        );
        let unnamed = SpanEdge {
            name: None,
            ..edge("", 15)
        };
        assert_eq!(spans.end(&1, unnamed), ended_at(1, "inner", Some(3)));
        assert_eq!(spans.end(&1, edge("outer", 20)), ended("outer", Some(10)));
        assert_eq!((spans.depth(&1), spans.depth(&2)), (0, 1));
    }

    #[test]
    fn an_end_without_its_begin_has_no_duration_and_changes_nothing() {
        let mut spans = OpenSpans::default();
        assert_eq!(spans.end(&1, edge("a", 1)), EndedSpan::default());
        spans.begin(1, 0, edge("a", 10), ());
        let unknown = EndedSpan {
            depth: 1,
            ..EndedSpan::default()
        };
        assert_eq!(spans.end(&1, edge("b", 11)), unknown);
        let other_clock = SpanEdge {
            clock: 1,
            ..edge("a", 12)
        };
        assert_eq!(spans.end(&1, other_clock), unknown);
        assert_eq!(spans.depth(&1), 1);
        assert_eq!(spans.end(&1, edge("a", 9)), ended("a", None));
    }

    #[test]
    fn an_end_also_ends_the_spans_within_whose_ends_were_lost() {
        let mut spans = OpenSpans::default();
        for (time, name) in (0..).zip(["a", "b", "c"]) {
            spans.begin(1, 0, edge(name, time), ());
        }
        let all = EndedSpan {
            within: vec![(), ()],
            ..ended("a", Some(5))
        };
        assert_eq!(spans.end(&1, edge("a", 5)), all);
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
            spans.begin(1, 0, edge("a", 0), ());
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
            spans.begin(thread, 0, edge(&name, 0), ());
            assert!(spans.threads.len() <= MAX_THREADS);
        }
        let last = 2 * MAX_THREADS - 1;
        let ended = spans.end(&last, edge(&name, 1));
        assert_eq!(ended.name.unwrap().len(), MAX_NAME_BYTES);
    }

    #[test]
    fn the_threads_of_a_group_can_be_forgotten() {
        let mut spans = OpenSpans::default();
        spans.begin(1, 7, edge("a", 0), ());
        spans.begin(2, 8, edge("a", 0), ());
        spans.forget_group(7);
        assert_eq!((spans.depth(&1), spans.depth(&2), spans.count), (0, 1, 1));
    }

    /// Returns an edge of a span with an id.
    fn numbered(id: u64, time: i64) -> SpanEdge<'static> {
        SpanEdge {
            id: Some(id),
            ..edge("span", time)
        }
    }

    #[test]
    fn spans_with_ids_end_in_any_order() {
        let mut spans = OpenSpans::default();
        for (id, time) in [(1, 0), (2, 2), (3, 3)] {
            spans.begin(1, 0, numbered(id, time), id);
        }
        let outliving: Vec<_> = spans.outliving(&1, numbered(1, 5)).map(|id| *id).collect();
        assert_eq!(outliving, [3, 2]);
        let first = spans.end(&1, numbered(1, 5));
        assert_eq!(
            (first.duration, first.depth, first.data),
            (Some(5), 0, Some(1))
        );
        assert!(first.within.is_empty());
        assert_eq!(spans.depth(&1), 2);
        let unknown = spans.end(&1, numbered(9, 6));
        assert_eq!((unknown.data, unknown.depth), (None, 2));
        let innermost = spans.end(&1, numbered(3, 8));
        assert_eq!((innermost.duration, innermost.depth), (Some(5), 1));
        let last = spans.end(&1, numbered(2, 8));
        assert_eq!((last.duration, last.depth), (Some(6), 0));
        assert_eq!((spans.count, spans.threads.len()), (0, 0));
    }

    #[test]
    fn after_a_loss_spans_within_one_that_ends_do_not_stay_open() {
        let mut spans = OpenSpans::default();
        spans.begin(1, 7, numbered(1, 0), 1);
        spans.begin(1, 7, numbered(2, 1), 2);
        spans.add_loss(7);
        spans.begin(1, 7, numbered(3, 2), 3);
        assert_eq!(spans.outliving(&1, numbered(1, 4)).count(), 1);
        let ended = spans.end(&1, numbered(1, 4));
        assert_eq!((ended.within, spans.depth(&1)), (vec![2], 1));
        assert_eq!(spans.end(&1, numbered(3, 5)).duration, Some(3));
        spans.forget_group(7);
        assert!(spans.losses.is_empty());
    }
}
