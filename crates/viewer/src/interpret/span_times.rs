//! How long spans take, with and without the spans within them.
//!
//! At any time, a thread is in its innermost span, and that is the one whose own time passes: the
//! own times of a thread's spans never overlap, also where spans do not nest. Begins and ends are
//! paired by [`OpenSpans`]. What comes whole, when it has ended, may be around what has been seen
//! before: such spans of a thread are kept by `whole_spans`, and put in order later.

use daemon::open_spans::{EndedSpan, OpenSpans, SpanEdge};

use super::name_numbers::{MAX_NAMES, NameNumbers, OTHER};
use super::span_edges::{Edge, EdgeKind};
use super::span_observer::{OpenFrame, SpanObserver, SpanTrack, nanoseconds};
use super::span_owners::OwnerNumber;
use super::whole_spans::{MAX_WHOLE_SPANS, WholeSpan, WholeSpans};
use crate::attach::TraceKey;

/// The clock of the trace, and that of programs that send their times.
const TRACE_CLOCK: u32 = 0;
const PROGRAM_CLOCK: u32 = 1;

/// A span that has begun on a thread of which whole spans come.
#[derive(Debug)]
struct SentBegin {
    owner: OwnerNumber,
    name: u32,
    time: i64,
    is_shown: bool,
}

/// Measures spans by their edges.
#[derive(Debug)]
pub(super) struct SpanTimes<O: SpanObserver> {
    observer: O,
    names: NameNumbers,
    open: OpenSpans<SpanTrack, OpenFrame<O::Mark>>,
    /// The spans that have begun on threads of which whole spans come.
    sent: OpenSpans<SpanTrack, SentBegin>,
    whole: WholeSpans,
    forgotten: u64,
}

impl<O: SpanObserver> SpanTimes<O> {
    /// Measures spans for `observer`.
    pub(super) fn new(observer: O) -> Self {
        Self {
            observer,
            names: NameNumbers::default(),
            open: OpenSpans::default(),
            sent: OpenSpans::default(),
            whole: WholeSpans::default(),
            forgotten: 0,
        }
    }

    /// The observer, with the results so far.
    pub(super) fn observer(&self) -> &O {
        &self.observer
    }

    /// The names of spans by their numbers.
    pub(super) fn names(&self) -> &NameNumbers {
        &self.names
    }

    /// What was not measured as it should have been, one sentence each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.forgotten > 0 {
            warnings.push(format!(
                "up to {} spans are left out: too many were open at the same time",
                self.forgotten
            ));
        }
        if self.whole.is_split() {
            warnings.push(format!(
                "more than {MAX_WHOLE_SPANS} spans that programs have sent: they were measured in \
                 several parts, and the self time of a span includes the spans within it that are \
                 in another part"
            ));
        }
        if self.names.is_full() {
            warnings.push(format!(
                "more than {MAX_NAMES} names of spans: further ones are {OTHER}"
            ));
        }
        warnings
    }

    /// Adds an edge that an event of a trace is. An edge that is not shown ends spans, and its own
    /// span is not measured.
    pub(super) fn add(&mut self, edge: &Edge<'_>, trace: TraceKey, is_shown: bool) {
        // The name of a span that is not shown is never asked for.
        let name = match is_shown {
            true => self.names.number(&edge.name),
            false => 0,
        };
        let clock = match edge.is_sent {
            true => PROGRAM_CLOCK,
            false => TRACE_CLOCK,
        };
        let track = (edge.thread, clock);
        let of = SpanEdge {
            name: Some(&*edge.name).filter(|name| !name.is_empty()),
            time: Some(edge.time),
            clock,
            id: edge.id,
        };
        match (edge.kind, edge.has_whole_spans) {
            (EdgeKind::Begin, false) => self.begin(track, trace, of, (edge.owner, name), is_shown),
            (EdgeKind::End, false) => self.end(track, of, (edge.owner, name), is_shown),
            (EdgeKind::Begin, true) => {
                let begin = SentBegin {
                    owner: edge.owner,
                    name,
                    time: edge.time,
                    is_shown,
                };
                self.forgotten += self.sent.begin(track, trace.0, of, begin);
            }
            (EdgeKind::End, true) => self.end_sent(track, of, (edge.owner, name), is_shown),
            (EdgeKind::Whole(duration), _) => {
                let duration = i64::try_from(duration).unwrap_or(i64::MAX);
                let span = WholeSpan {
                    begin: edge.time,
                    end: edge.time.saturating_add(duration),
                    owner: edge.owner,
                    name,
                    is_shown,
                };
                self.add_whole(track, span);
            }
        }
    }

    /// Events of a trace were lost: the ends of its open spans may be among them.
    pub(super) fn add_loss(&mut self, trace: TraceKey) {
        self.open.add_loss(trace.0);
        self.sent.add_loss(trace.0);
    }

    /// A trace has ended: what is open of it has no end.
    pub(super) fn end_trace(&mut self, trace: TraceKey) {
        for frame in self.open.take_group(trace.0) {
            leave_open(&mut self.observer, &frame);
        }
        for begin in self.sent.take_group(trace.0) {
            leave_sent_open(&mut self.observer, &begin);
        }
    }

    /// Measures what has been held back: nothing more comes.
    pub(super) fn finish(&mut self) {
        for frame in self.open.take_all() {
            leave_open(&mut self.observer, &frame);
        }
        for begin in self.sent.take_all() {
            leave_sent_open(&mut self.observer, &begin);
        }
        self.whole.measure(&mut self.observer);
    }

    fn begin(
        &mut self,
        track: SpanTrack,
        trace: TraceKey,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let time = edge.time.unwrap_or(0);
        let around = self.open.innermost(&track);
        let parent = around.and_then(|around| {
            around.pass(time, &mut self.observer);
            around.mark
        });
        let mark = match is_shown {
            true => Some(self.observer.begin(owner, name, parent)),
            false => parent,
        };
        let frame = OpenFrame {
            mark,
            is_shown,
            since: time,
            own: 0,
        };
        self.forgotten += self.open.begin(track, trace.0, edge, frame);
    }

    fn end(
        &mut self,
        track: SpanTrack,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let time = edge.time.unwrap_or(0);
        if let Some(innermost) = self.open.innermost(&track) {
            innermost.pass(time, &mut self.observer);
        }
        let ended = self.open.end(&track, edge);
        for frame in &ended.within {
            leave_open(&mut self.observer, frame);
        }
        match &ended.data {
            Some(OpenFrame {
                mark: Some(mark),
                is_shown: true,
                own,
                ..
            }) => {
                self.observer.end(*mark, ended.duration.unwrap_or(0));
                self.observer.add_own_time(*mark, *own);
            }
            Some(_) => {}
            None => miss_begin(&mut self.observer, &ended, (owner, name), is_shown),
        }
        // Its time begins anew: what has passed was that of the span which has ended.
        if let Some(around) = self.open.innermost(&track) {
            around.since = around.since.max(time);
        }
    }

    fn end_sent(
        &mut self,
        track: SpanTrack,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let ended = self.sent.end(&track, edge);
        for begin in &ended.within {
            leave_sent_open(&mut self.observer, begin);
        }
        let Some(begin) = &ended.data else {
            return miss_begin(&mut self.observer, &ended, (owner, name), is_shown);
        };
        let span = WholeSpan {
            begin: begin.time,
            end: edge.time.unwrap_or(begin.time).max(begin.time),
            owner: begin.owner,
            name: begin.name,
            is_shown: begin.is_shown,
        };
        self.add_whole(track, span);
    }

    /// Adds a span of which begin and end are known.
    fn add_whole(&mut self, track: SpanTrack, span: WholeSpan) {
        if span.is_shown {
            // The duration is known now, only the own time is not.
            let duration = nanoseconds(span.begin, span.end);
            self.observer.count_whole(span.owner, span.name, duration);
        }
        self.whole.add(track, span, &mut self.observer);
    }
}

fn leave_open<O: SpanObserver>(observer: &mut O, frame: &OpenFrame<O::Mark>) {
    if let Some(mark) = frame.mark.filter(|_| frame.is_shown) {
        observer.leave_open(mark);
    }
}

fn leave_sent_open<O: SpanObserver>(observer: &mut O, begin: &SentBegin) {
    if begin.is_shown {
        observer.count_open(begin.owner, begin.name);
    }
}

fn miss_begin<D>(
    observer: &mut impl SpanObserver,
    ended: &EndedSpan<D>,
    (owner, name): (OwnerNumber, u32),
    is_shown: bool,
) {
    // What was not remembered has been counted when it began.
    if is_shown && !ended.is_unremembered {
        observer.miss_begin(owner, name);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::threads::{Host, OwnerKey, Thread, ThreadKey};
    use super::*;

    const OWNER: OwnerNumber = OwnerNumber {
        process: 1,
        thread: 1,
    };

    /// Writes down what it is told; the mark of a span is its place here.
    #[derive(Debug, Default)]
    struct Notes(Vec<Note>);

    #[derive(Debug, Default, Clone, PartialEq, Eq)]
    struct Note {
        name: u32,
        parent: Option<usize>,
        duration: Option<u64>,
        own: Option<u64>,
        passed: u64,
        is_open: bool,
        is_without_begin: bool,
    }

    impl SpanObserver for Notes {
        type Mark = usize;

        fn begin(&mut self, _owner: OwnerNumber, name: u32, parent: Option<usize>) -> usize {
            self.0.push(Note {
                name,
                parent,
                ..Note::default()
            });
            self.0.len() - 1
        }

        fn end(&mut self, mark: usize, duration: u64) {
            self.0[mark].duration = Some(duration);
        }

        fn add_own_time(&mut self, mark: usize, own: u64) {
            self.0[mark].own = Some(own);
        }

        fn pass(&mut self, mark: usize, own: u64) {
            self.0[mark].passed += own;
        }

        fn leave_open(&mut self, mark: usize) {
            self.0[mark].is_open = true;
        }

        fn count_whole(&mut self, _owner: OwnerNumber, name: u32, duration: u64) {
            self.0.push(Note {
                name,
                duration: Some(duration),
                ..Note::default()
            });
        }

        fn count_open(&mut self, _owner: OwnerNumber, name: u32) {
            self.0.push(Note {
                name,
                is_open: true,
                ..Note::default()
            });
        }

        fn miss_begin(&mut self, _owner: OwnerNumber, name: u32) {
            self.0.push(Note {
                name,
                is_without_begin: true,
                ..Note::default()
            });
        }
    }

    fn edge(kind: EdgeKind, name: &str, time: i64) -> Edge<'_> {
        Edge {
            kind,
            name: Cow::Borrowed(name),
            id: None,
            time,
            thread: ThreadKey {
                host: Host::Named(1),
                process: None,
                thread: Thread::Id(OwnerKey::Number(1)),
            },
            owner: OWNER,
            is_sent: false,
            has_whole_spans: false,
        }
    }

    /// Measures edges: name, whether it is a begin, time, id, whether it is shown.
    fn measured(edges: &[(&str, bool, i64, Option<u64>, bool)]) -> Vec<Note> {
        let mut times = SpanTimes::new(Notes::default());
        let trace = TraceKey::fresh();
        for (name, is_begin, time, id, is_shown) in edges {
            let kind = match is_begin {
                true => EdgeKind::Begin,
                false => EdgeKind::End,
            };
            let edge = Edge {
                id: *id,
                ..edge(kind, name, *time)
            };
            times.add(&edge, trace, *is_shown);
        }
        times.finish();
        times.observer.0
    }

    fn note(name: u32, parent: Option<usize>, duration: u64, own: u64) -> Note {
        Note {
            name,
            parent,
            duration: Some(duration),
            own: Some(own),
            passed: own,
            ..Note::default()
        }
    }

    #[test]
    fn the_own_time_of_a_recursive_span_is_without_that_of_itself_within() {
        let edges = [
            ("f", true, 0, None, true),
            ("f", true, 10, None, true),
            ("f", true, 20, None, true),
            ("f", false, 25, None, true),
            ("f", false, 40, None, true),
            ("f", false, 100, None, true),
        ];
        let expected = [
            note(0, None, 100, 70),
            note(0, Some(0), 30, 25),
            note(0, Some(1), 5, 5),
        ];
        assert_eq!(measured(&edges), expected);
    }

    #[test]
    fn own_times_of_spans_that_overlap_on_a_thread_do_not_overlap() {
        let edges = [
            ("a", true, 0, Some(1), true),
            ("b", true, 10, Some(2), true),
            ("a", false, 30, Some(1), true),
            ("b", false, 50, Some(2), true),
        ];
        let expected = [note(0, None, 30, 10), note(1, Some(0), 40, 40)];
        assert_eq!(measured(&edges), expected);
    }

    #[test]
    fn a_span_that_is_not_shown_takes_its_time_from_that_around_it() {
        let edges = [
            ("a", true, 0, None, true),
            ("hidden", true, 10, None, false),
            ("c", true, 20, None, true),
            ("c", false, 30, None, false),
            ("hidden", false, 60, None, false),
            ("early", false, 61, None, false),
            ("a", false, 100, None, true),
        ];
        let expected = [note(0, None, 100, 50), note(1, Some(0), 10, 10)];
        assert_eq!(measured(&edges), expected);
    }

    #[test]
    fn names_are_limited_and_only_those_of_spans_that_are_shown_count() {
        let mut times = SpanTimes::new(Notes::default());
        let trace = TraceKey::fresh();
        let mut add = |prefix: &str, is_shown| {
            for time in 0..1 << 17 {
                let name = format!("{prefix} {time}");
                times.add(&edge(EdgeKind::Begin, &name, time), trace, is_shown);
                times.add(&edge(EdgeKind::End, &name, time), trace, is_shown);
            }
            let warnings = times.warnings();
            warnings.iter().any(|of| of.contains("names of spans"))
        };
        assert!(!add("hidden", false));
        assert!(add("shown", true));
        assert_eq!(&*times.names().from(0)[0], "shown 0");
    }

    #[test]
    fn spans_without_an_end_or_a_begin_and_clocks_that_go_back_take_no_time() {
        let edges = [
            ("a", true, 100, None, true),
            ("b", false, 105, None, true),
            ("c", true, 110, None, true),
            ("a", false, 90, None, true),
            ("d", true, i64::MIN, None, true),
            ("e", true, i64::MAX, None, true),
        ];
        let notes = measured(&edges);
        assert_eq!(notes[0].duration, Some(0));
        assert!(notes[1].is_without_begin && notes[1].name == 1);
        assert!(notes[2..].iter().all(|note| note.is_open), "{notes:?}");
        assert!(notes[2..].iter().all(|note| note.duration.is_none()));
    }

    #[test]
    fn open_spans_are_bounded_and_those_left_out_are_reported() {
        let mut times = SpanTimes::new(Notes::default());
        let trace = TraceKey::fresh();
        let deep = 2000;
        for time in 0..deep {
            times.add(&edge(EdgeKind::Begin, "f", time), trace, true);
        }
        for time in deep..2 * deep {
            times.add(&edge(EdgeKind::End, "f", time), trace, true);
        }
        let notes = &times.observer.0;
        let ended = notes.iter().filter(|note| note.duration.is_some()).count();
        assert!(notes.iter().all(|note| !note.is_without_begin));
        let left_out = format!("up to {} spans are left out", notes.len() - ended);
        assert!(ended < notes.len(), "{ended}");
        assert!(times.warnings()[0].starts_with(&left_out), "{left_out}");
    }

    #[test]
    fn a_whole_span_is_counted_when_it_comes_and_begins_once_to_be_measured() {
        let mut times = SpanTimes::new(Notes::default());
        let trace = TraceKey::fresh();
        for (kind, name, time) in [
            (EdgeKind::Whole(3), "inner", 5),
            (EdgeKind::Whole(10), "outer", 0),
            (EdgeKind::Begin, "open", 20),
        ] {
            let edge = Edge {
                has_whole_spans: true,
                ..edge(kind, name, time)
            };
            times.add(&edge, trace, true);
        }
        times.finish();
        let counted = |name, duration: u64| Note {
            name,
            duration: Some(duration),
            ..Note::default()
        };
        let open = Note {
            name: 2,
            is_open: true,
            ..Note::default()
        };
        let measured = |name, parent, own| Note {
            duration: None,
            ..note(name, parent, 0, own)
        };
        let expected = [
            counted(0, 3),
            counted(1, 10),
            open,
            measured(1, None, 7),
            measured(0, Some(3), 3),
        ];
        assert_eq!(times.observer.0, expected);
    }

    #[test]
    fn whole_spans_are_bounded_and_a_split_is_reported() {
        let mut times = SpanTimes::new(Notes::default());
        let trace = TraceKey::fresh();
        for time in 0..=i64::try_from(MAX_WHOLE_SPANS).unwrap() {
            let is_split = !times.warnings().is_empty();
            assert!(!is_split || 2 * time > i64::try_from(MAX_WHOLE_SPANS).unwrap());
            times.add(&edge(EdgeKind::Whole(1), "x", 2 * time), trace, false);
        }
        times.finish();
        assert!(times.warnings()[0].contains("several parts"));
    }
}
