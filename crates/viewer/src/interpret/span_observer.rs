//! What is found out about spans, and what receives it.

use super::span_owners::OwnerNumber;
use super::threads::ThreadKey;

/// A thread, or asynchronous id, on one of its clocks.
pub(super) type SpanTrack = (ThreadKey, u32);

/// Receives what is found out about spans.
pub trait SpanObserver {
    /// What the observer remembers of a span.
    type Mark: Copy + std::fmt::Debug;

    /// A span begins, within the one of `parent` if there is one. One that came whole, and has been
    /// counted, begins when its own time is measured, and is not ended.
    fn begin(&mut self, owner: OwnerNumber, name: u32, parent: Option<Self::Mark>) -> Self::Mark;

    /// A span has ended, which took `duration` nanoseconds.
    fn end(&mut self, mark: Self::Mark, duration: u64);

    /// The own time of a span that has ended is known, in nanoseconds.
    fn add_own_time(&mut self, mark: Self::Mark, own: u64);

    /// `own` nanoseconds have passed in a span while it was the innermost one.
    fn pass(&mut self, mark: Self::Mark, own: u64);

    /// The end of a span has not been seen.
    fn leave_open(&mut self, mark: Self::Mark);

    /// A span of which begin and end are known has come, which took `duration` nanoseconds.
    fn count_whole(&mut self, owner: OwnerNumber, name: u32, duration: u64);

    /// The end of a span that was not told to begin has not been seen.
    fn count_open(&mut self, owner: OwnerNumber, name: u32);

    /// The begin of a span that ends has not been seen.
    fn miss_begin(&mut self, owner: OwnerNumber, name: u32);
}

/// A span that has begun.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFrame<M> {
    /// What the observer remembers of the span, or of the one around it that is shown.
    pub(super) mark: Option<M>,
    pub(super) is_shown: bool,
    /// The time from which on the span is the innermost one.
    pub(super) since: i64,
    pub(super) own: u64,
}

impl<M: Copy> OpenFrame<M> {
    /// Time passes in the innermost span.
    pub(super) fn pass<O: SpanObserver<Mark = M>>(&mut self, until: i64, observer: &mut O) {
        let passed = nanoseconds(self.since, until);
        self.since = self.since.max(until);
        self.own = self.own.saturating_add(passed);
        if let Some(mark) = self.mark.filter(|_| self.is_shown && passed > 0) {
            observer.pass(mark, passed);
        }
    }
}

/// The nanoseconds from one time to another; none if it is earlier.
pub(super) fn nanoseconds(begin: i64, end: i64) -> u64 {
    if end > begin { end.abs_diff(begin) } else { 0 }
}
