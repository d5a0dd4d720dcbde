//! How long spans take, with and without the spans within them.
//!
//! At any time, a thread is in its innermost span, and that is the one whose own time passes: the
//! own times of a thread's spans never overlap, also where spans do not nest. Begins and ends are
//! paired by [`OpenSpans`]. What comes whole, when it has ended, may be around what has been seen
//! before: such spans of a thread are kept by `whole_spans`, and put in order later.

use daemon::open_spans::{EndedSpan, OpenSpans, SpanEdge};

use super::name_numbers::NameNumbers;
use super::span_edges::{Edge, EdgeKind};
use super::span_observer::{Line, OpenFrame, SpanObserver, nanoseconds};
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
    open: OpenSpans<Line, OpenFrame<O::Mark>>,
    /// The spans that have begun on threads of which whole spans come.
    sent: OpenSpans<Line, SentBegin>,
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

    /// What receives the results.
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
                "{} spans are left out: too many were open at the same time",
                self.forgotten
            ));
        }
        if self.whole.is_split() {
            warnings.push(format!(
                "more than {MAX_WHOLE_SPANS} spans that programs have sent: self times of spans \
                 around others are too long where both were not among as many"
            ));
        }
        warnings
    }

    /// Adds an edge that an event of a trace is. An edge that is not shown ends spans, and its own
    /// span is not measured.
    pub(super) fn add(&mut self, edge: &Edge<'_>, trace: TraceKey, is_shown: bool) {
        let name = self.names.number(&edge.name);
        let clock = match edge.is_sent {
            true => PROGRAM_CLOCK,
            false => TRACE_CLOCK,
        };
        let line = (edge.thread, clock);
        let of = SpanEdge {
            name: Some(&*edge.name).filter(|name| !name.is_empty()),
            time: Some(edge.time),
            clock,
            id: edge.id,
        };
        match (edge.kind, edge.has_whole_spans) {
            (EdgeKind::Begin, false) => self.begin(line, trace, of, (edge.owner, name), is_shown),
            (EdgeKind::End, false) => self.end(line, of, (edge.owner, name), is_shown),
            (EdgeKind::Begin, true) => {
                let begin = SentBegin {
                    owner: edge.owner,
                    name,
                    time: edge.time,
                    is_shown,
                };
                self.forgotten += self.sent.begin(line, trace.0, of, begin);
            }
            (EdgeKind::End, true) => self.end_sent(line, of, (edge.owner, name), is_shown),
            (EdgeKind::Whole(duration), _) => {
                let duration = i64::try_from(duration).unwrap_or(i64::MAX);
                let span = WholeSpan {
                    begin: edge.time,
                    end: edge.time.saturating_add(duration),
                    owner: edge.owner,
                    name,
                    is_shown,
                };
                self.add_whole(line, span);
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
        line: Line,
        trace: TraceKey,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let time = edge.time.unwrap_or(0);
        let around = self.open.innermost(&line);
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
        self.forgotten += self.open.begin(line, trace.0, edge, frame);
    }

    fn end(
        &mut self,
        line: Line,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let time = edge.time.unwrap_or(0);
        if let Some(innermost) = self.open.innermost(&line) {
            innermost.pass(time, &mut self.observer);
        }
        let ended = self.open.end(&line, edge);
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
        if let Some(around) = self.open.innermost(&line) {
            around.since = around.since.max(time);
        }
    }

    fn end_sent(
        &mut self,
        line: Line,
        edge: SpanEdge<'_>,
        (owner, name): (OwnerNumber, u32),
        is_shown: bool,
    ) {
        let ended = self.sent.end(&line, edge);
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
        self.add_whole(line, span);
    }

    /// Adds a span of which begin and end are known.
    fn add_whole(&mut self, line: Line, span: WholeSpan) {
        if span.is_shown {
            let mark = self.observer.begin(span.owner, span.name, None);
            // Its duration is known now, only its own time is not.
            self.observer.end(mark, nanoseconds(span.begin, span.end));
        }
        self.whole.add(line, span, &mut self.observer);
    }
}

fn leave_open<O: SpanObserver>(observer: &mut O, frame: &OpenFrame<O::Mark>) {
    if let Some(mark) = frame.mark.filter(|_| frame.is_shown) {
        observer.leave_open(mark);
    }
}

fn leave_sent_open<O: SpanObserver>(observer: &mut O, begin: &SentBegin) {
    if begin.is_shown {
        let mark = observer.begin(begin.owner, begin.name, None);
        observer.leave_open(mark);
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
