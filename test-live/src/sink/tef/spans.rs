//! The spans of `tracing` that threads are in. A slice of a thread ends before the one around it; a
//! span that does not, because its guard is dropped later, becomes an async slice.

use ::tef::document::{RecordNumber, Records};
use daemon::open_spans::{OpenSpans, SpanEdge};
use viewer::attach::TraceKey;

use super::tracks::Track;

/// Largest number of bytes of the members of a record that are remembered. A span with more is a
/// slice in any case.
const MAX_MEMBERS_BYTES: usize = 1024;

/// The record of the begin or end of a span, without its phase and its time in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpanRecord<'a> {
    /// The id of the span.
    pub(super) id: u64,
    pub(super) time: i64,
    pub(super) track: Track,
    pub(super) trace: TraceKey,
    /// Members: name, categories if there are any, process and thread.
    pub(super) head: &'a [u8],
    pub(super) has_categories: bool,
    /// The members of `args`.
    pub(super) args: &'a [u8],
}

/// The spans that have not ended.
#[derive(Debug, Default)]
pub(super) struct Spans(OpenSpans<(TraceKey, i64, i64), OpenSlice>);

/// A span that has not ended.
#[derive(Debug)]
struct OpenSlice {
    id: u64,
    begin: i64,
    head: Box<[u8]>,
    has_categories: bool,
    args: Box<[u8]>,
    /// The record of the begin.
    record: RecordNumber,
    /// Whether the span has become an async slice.
    is_async: bool,
}

impl SpanRecord<'_> {
    fn thread(&self) -> (TraceKey, i64, i64) {
        (self.trace, self.track.process, self.track.thread)
    }

    fn edge(&self) -> SpanEdge<'static> {
        SpanEdge {
            name: None,
            time: Some(self.time),
            clock: 0,
            id: Some(self.id),
        }
    }
}

impl Spans {
    /// Writes the begin of a span.
    pub(super) fn begin(&mut self, begin: SpanRecord<'_>, records: &mut Records) {
        let record = add(records, "\"ph\":\"B\"", begin.time, begin.head, begin.args);
        if begin.head.len() + begin.args.len() > MAX_MEMBERS_BYTES {
            return;
        }
        let slice = OpenSlice {
            id: begin.id,
            begin: begin.time,
            head: begin.head.into(),
            has_categories: begin.has_categories,
            args: begin.args.into(),
            record,
            is_async: false,
        };
        let group = begin.trace.0;
        self.0.begin(begin.thread(), group, begin.edge(), slice);
    }

    /// Writes the end of a span. Spans within that go on become async slices; those whose ends may
    /// be lost end too.
    pub(super) fn end(&mut self, end: SpanRecord<'_>, records: &mut Records) {
        let (thread, edge) = (end.thread(), end.edge());
        // Before the span is ended, because those within it are found by it.
        for slice in self.0.outliving(&thread, edge) {
            slice.make_async(records);
        }
        let ended = self.0.end(&thread, edge);
        for slice in ended.within {
            slice.end(end.time, &[], records);
        }
        match ended.data {
            Some(slice) if slice.is_async => slice.end(end.time, end.args, records),
            _ => {
                add(records, "\"ph\":\"E\"", end.time, end.head, end.args);
            }
        }
    }

    /// Records that events of a trace are lost.
    pub(super) fn add_loss(&mut self, trace: TraceKey) {
        self.0.add_loss(trace.0);
    }

    /// Forgets a trace that has ended.
    pub(super) fn forget_trace(&mut self, trace: TraceKey) {
        self.0.forget_group(trace.0);
    }
}

impl OpenSlice {
    fn make_async(&mut self, records: &mut Records) {
        if self.is_async {
            return;
        }
        self.is_async = true;
        if !records.remove(self.record) {
            // What has been written stays, as a slice without a duration.
            add(records, "\"ph\":\"E\"", self.begin, &self.head, &[]);
        }
        add(
            records,
            &self.async_members("b"),
            self.begin,
            &self.head,
            &self.args,
        );
    }

    fn end(&self, time: i64, args: &[u8], records: &mut Records) {
        let members = match self.is_async {
            true => self.async_members("e"),
            false => "\"ph\":\"E\"".to_owned(),
        };
        add(records, &members, time, &self.head, args);
    }

    /// The members of an async slice of the process, which needs a category.
    fn async_members(&self, phase: &str) -> String {
        let id = self.id;
        let mut members = format!("\"ph\":\"{phase}\",\"id2\":{{\"local\":\"{id:#x}\"}}");
        if !self.has_categories {
            members.push_str(",\"cat\":\"span\"");
        }
        members
    }
}

/// Adds a record whose first members are `first`.
fn add(records: &mut Records, first: &str, time: i64, head: &[u8], args: &[u8]) -> RecordNumber {
    let parts = [first.as_bytes(), head, b",\"args\":{", args, b"}"];
    records.add(Some(time.into()), &parts.concat())
}
