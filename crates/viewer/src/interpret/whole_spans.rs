//! Spans of which begin and end are known, in no order: which of them are within others is found
//! when all are there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::span_observer::{OpenFrame, SpanObserver, SpanTrack};
use super::span_owners::OwnerNumber;

/// Largest number of spans that are kept, in 32 to 64 MiB of memory; to measure them takes up to
/// 200 MiB more if all overlap. With one more, all are put in order as if no more came. A thread
/// takes the memory of some spans, too.
pub(super) const MAX_WHOLE_SPANS: usize = 1 << 20;
/// The number of spans that take as much memory as a thread without any.
const SPANS_PER_THREAD: usize = 8;

/// A span of which begin and end are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeSpan {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) owner: OwnerNumber,
    pub(super) name: u32,
    pub(super) is_shown: bool,
}

/// The spans of threads, each on a clock.
#[derive(Debug, Default)]
pub(super) struct WholeSpans {
    tracks: HashMap<SpanTrack, Vec<WholeSpan>>,
    count: usize,
    is_split: bool,
}

impl WholeSpans {
    /// Adds a span, and measures those that are kept if they are too many.
    pub(super) fn add<O: SpanObserver>(
        &mut self,
        track: SpanTrack,
        span: WholeSpan,
        observer: &mut O,
    ) {
        if self.count >= MAX_WHOLE_SPANS {
            self.is_split = true;
            self.measure(observer);
        }
        let spans = self.tracks.entry(track).or_insert_with(|| {
            self.count += SPANS_PER_THREAD;
            Vec::new()
        });
        spans.push(span);
        self.count += 1;
    }

    /// Whether spans were put in order before all were there.
    pub(super) fn is_split(&self) -> bool {
        self.is_split
    }

    /// Tells the observer the own times of all spans, and forgets them.
    pub(super) fn measure<O: SpanObserver>(&mut self, observer: &mut O) {
        self.count = 0;
        for (_, mut spans) in std::mem::take(&mut self.tracks) {
            // Of two equal spans the later one is around: programs send a span when it ends.
            spans.reverse();
            spans.sort_by_key(|span| (span.begin, Reverse(span.end)));
            let mut nesting = Nesting::default();
            for span in spans {
                nesting.begin(span, observer);
            }
            nesting.end_until(i64::MAX, observer);
        }
    }
}

/// The spans of one thread that have begun, in the order in which they did.
#[derive(Debug)]
struct Nesting<M> {
    frames: Vec<NestedSpan<M>>,
    /// The ends of the frames with their numbers: the earliest end first, of equal ones that of the
    /// span which began last.
    ends: BinaryHeap<Reverse<(i64, Reverse<usize>)>>,
    next_number: usize,
}

#[derive(Debug)]
struct NestedSpan<M> {
    number: usize,
    frame: OpenFrame<M>,
    has_ended: bool,
}

impl<M> Default for Nesting<M> {
    fn default() -> Self {
        Self {
            frames: Vec::new(),
            ends: BinaryHeap::new(),
            next_number: 0,
        }
    }
}

impl<M: Copy> Nesting<M> {
    fn begin<O: SpanObserver<Mark = M>>(&mut self, span: WholeSpan, observer: &mut O) {
        self.end_until(span.begin, observer);
        let parent = self.frames.last_mut().and_then(|around| {
            around.frame.pass(span.begin, observer);
            around.frame.mark
        });
        let mark = match span.is_shown {
            true => Some(observer.begin(span.owner, span.name, parent)),
            false => parent,
        };
        let number = self.next_number;
        self.next_number += 1;
        self.ends.push(Reverse((span.end, Reverse(number))));
        self.frames.push(NestedSpan {
            number,
            frame: OpenFrame {
                mark,
                is_shown: span.is_shown,
                since: span.begin,
                own: 0,
            },
            has_ended: false,
        });
    }

    /// Ends all spans whose ends are not later than `time`.
    fn end_until<O: SpanObserver<Mark = M>>(&mut self, time: i64, observer: &mut O) {
        while let Some(Reverse((end, Reverse(number)))) = self.ends.peek().copied()
            && end <= time
        {
            self.ends.pop();
            if let Some(innermost) = self.frames.last_mut() {
                innermost.frame.pass(end, observer);
            }
            let place = self.frames.binary_search_by_key(&number, |of| of.number);
            if let Some(ended) = place.ok().and_then(|place| self.frames.get_mut(place)) {
                ended.has_ended = true;
                if let Some(mark) = ended.frame.mark.filter(|_| ended.frame.is_shown) {
                    observer.add_own_time(mark, ended.frame.own);
                }
            }
            // A span that has ended before one within it is removed with that one.
            while self.frames.pop_if(|frame| frame.has_ended).is_some() {}
            if let Some(around) = self.frames.last_mut() {
                around.frame.since = around.frame.since.max(end);
            }
        }
    }
}
