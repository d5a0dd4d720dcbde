//! The event loop: sessions are opened and announced, then their blocks are fetched and sent on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use archive::catalog::MovedBlocks;
use archive::store::Store;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::feed::Feed;
use super::fetch::{FetchedBlock, MAX_RUN_BYTES};
use super::sessions::{OpenedSessions, open_sessions, shown_time};
use super::traces::{PlannedTrace, feeds, plan};
use super::{ArchiveError, ArchiveOptions, ArchiveSource};
use crate::attach::{Backlog, MAX_MEMORY_BYTES, MetadataPiece, SourceEvent, TraceKey};
use crate::time::Nanoseconds;
use crate::with_sources;

/// Largest number of requests for blocks at the same time.
const MAX_FETCHES: usize = 16;
/// Memory that streams share for what is fetched before it is needed, in bytes.
const READ_AHEAD_BYTES: u64 = MAX_MEMORY_BYTES as u64 / 2;
/// Time between two looks for memory, when none was left: that it is given back wakes nobody.
const MEMORY_INTERVAL: Duration = Duration::from_millis(20);

/// What a request has brought: number of the feed, number of the request, blocks.
type Fetched = (usize, u64, Result<Vec<FetchedBlock>, ArchiveError>);

/// A trace whose streams are being read.
#[derive(Debug)]
struct OpenTrace {
    key: TraceKey,
    /// The feeds that have not ended.
    streams: Vec<usize>,
    has_ended: bool,
}

/// The source, on its thread.
pub(super) struct ArchiveReader {
    source: ArchiveSource,
    options: ArchiveOptions,
    events: mpsc::Sender<SourceEvent>,
    is_held_back: watch::Receiver<bool>,
    /// Notified when a packet has been decoded.
    removed: Arc<Notify>,
    feeds: Vec<Feed>,
    /// The feeds that have blocks left, those that are needed first in front.
    queue: BTreeSet<(Option<Nanoseconds>, usize)>,
    traces: Vec<OpenTrace>,
    fetches: JoinSet<Fetched>,
    moved: Arc<MovedBlocks>,
    /// Memory that is taken by what has been requested and not been sent on.
    requested_bytes: u64,
}

impl ArchiveReader {
    pub(super) fn new(
        source: ArchiveSource,
        options: ArchiveOptions,
        events: mpsc::Sender<SourceEvent>,
        is_held_back: watch::Receiver<bool>,
    ) -> Self {
        Self {
            source,
            options,
            events,
            is_held_back,
            removed: Arc::new(Notify::new()),
            feeds: Vec::new(),
            queue: BTreeSet::new(),
            traces: Vec::new(),
            fetches: JoinSet::new(),
            moved: Arc::default(),
            requested_bytes: 0,
        }
    }

    /// Reads all sessions, and reports the end, or the failure.
    pub(super) async fn run(&mut self) {
        let read = match self.open().await {
            Ok(()) => self.read().await,
            opened => opened,
        };
        let last = match read {
            Ok(()) => SourceEvent::Done,
            Err(ArchiveError::ReceiverGone) => return,
            Err(ArchiveError::NoSession(_) | ArchiveError::NothingInTime(_))
                if self.options.may_be_missing =>
            {
                SourceEvent::Done
            }
            Err(ArchiveError::NoSession(text)) => SourceEvent::Failed(text),
            Err(error) => {
                let target = &self.source.target;
                SourceEvent::Failed(format!("{target}: {}", with_sources(&error)))
            }
        };
        // After a failure, too: what has been sent may be shown.
        for number in 0..self.traces.len() {
            if self.end_trace(number).await.is_err() {
                return;
            }
        }
        // Without a receiver, nobody wants to know.
        let _ = self.events.send(last).await;
    }

    async fn send(&self, event: SourceEvent) -> Result<(), ArchiveError> {
        let sent = self.events.send(event).await;
        sent.map_err(|_| ArchiveError::ReceiverGone)
    }

    /// Opens the sessions, and announces their traces and streams.
    async fn open(&mut self) -> Result<(), ArchiveError> {
        let store = Arc::clone(&self.source.store);
        let opened = open_sessions(&*store, &self.source.target, &self.options).await?;
        for notice in opened.notices(&self.source.target) {
            self.send(SourceEvent::Notice(notice)).await?;
        }
        for failure in &opened.failures {
            self.send(SourceEvent::Missing(failure.clone())).await?;
        }
        self.feeds = feeds(&opened.sessions, &self.removed);
        self.request_first();
        let (mut traces, failures) = plan(&*store, &opened.sessions, &mut self.feeds).await?;
        for failure in failures {
            self.send(SourceEvent::Missing(failure)).await?;
        }
        if let Some(corrections) = &self.options.corrections {
            for trace in &mut traces {
                trace.correct_times(&mut self.feeds, &**corrections);
            }
        }
        self.select_times(&traces)?;
        for trace in traces {
            self.announce(trace, &opened).await?;
        }
        Ok(())
    }

    /// Requests the first blocks while the metadata is on its way, unless it has to say which
    /// blocks are wanted.
    fn request_first(&mut self) {
        if self.options.begin.is_some() || self.options.end.is_some() {
            return;
        }
        let mut first: Vec<_> = self.feeds.iter().enumerate().collect();
        first.sort_by_key(|(number, feed)| (feed.begin(), *number));
        let first = first.into_iter().map(|(number, _)| number);
        for number in first.take(MAX_FETCHES).collect::<Vec<_>>() {
            // One block, which is there soon.
            self.request(number, 0);
        }
    }

    /// Leaves out what is not of the wanted time.
    fn select_times(&mut self, traces: &[PlannedTrace]) -> Result<(), ArchiveError> {
        let (begin, end) = (self.options.begin, self.options.end);
        if begin.is_none() && end.is_none() {
            return Ok(());
        }
        let mut span: Option<(Nanoseconds, Nanoseconds)> = None;
        let mut is_any_left = false;
        for number in traces.iter().flat_map(|trace| &trace.feeds) {
            let Some(feed) = self.feeds.get_mut(*number) else {
                continue;
            };
            if let Some((from, to)) = feed.span() {
                let (first, last) = span.unwrap_or((from, to));
                span = Some((first.min(from), last.max(to)));
            }
            feed.select_times(begin, end);
            is_any_left |= !feed.is_drained();
        }
        match span {
            Some((from, to)) if !is_any_left => {
                let shown = |time: Nanoseconds| shown_time(u64::try_from(time.get()).unwrap_or(0));
                let (from, to) = (shown(from), shown(to));
                Err(ArchiveError::NothingInTime(format!(
                    "no packet from --begin to --end: all are from {from} to {to}"
                )))
            }
            _ => Ok(()),
        }
    }

    async fn announce(
        &mut self,
        planned: PlannedTrace,
        opened: &OpenedSessions,
    ) -> Result<(), ArchiveError> {
        let trace = planned.key;
        let session = opened.sessions.get(planned.session);
        self.send(SourceEvent::Trace {
            trace,
            name: planned.name,
            session: session.map(|session| session.name.clone()),
        })
        .await?;
        let bytes = MetadataPiece::new(planned.bytes, &Backlog::default());
        self.send(SourceEvent::Metadata { trace, bytes }).await?;
        let mut streams = Vec::new();
        for number in planned.feeds {
            if self.announce_stream(number, trace).await? {
                streams.push(number);
            }
        }
        let number = self.traces.len();
        for stream in &streams {
            if let Some(feed) = self.feeds.get_mut(*stream) {
                feed.open_trace = Some(number);
            }
        }
        self.traces.push(OpenTrace {
            key: trace,
            streams,
            has_ended: false,
        });
        self.end_trace_if_drained(number).await
    }

    /// Announces a stream that has something to show. Returns whether it has.
    async fn announce_stream(
        &mut self,
        number: usize,
        trace: TraceKey,
    ) -> Result<bool, ArchiveError> {
        let events = self.events.clone();
        let Some(feed) = self.feeds.get_mut(number) else {
            return Ok(false);
        };
        let missing = match feed.missing {
            0 => None,
            count => Some(SourceEvent::Missing(format!(
                "stream {}: {count} packets are in no object of the archive",
                feed.name
            ))),
        };
        let is_shown = !feed.is_drained();
        let announced = is_shown.then(|| SourceEvent::Stream {
            stream: feed.key,
            trace,
            name: feed.name.clone(),
            backlog: feed.backlog.clone(),
            is_newcomer: false,
        });
        // Until its first packet, the others go on to that time without it.
        let watermark = feed.begin().filter(|begin| is_shown && *begin > 0);
        let watermark = watermark.filter(|_| !feed.has_ahead());
        let stream = feed.key;
        let watermark = watermark.map(|until| SourceEvent::Watermark { stream, until });
        feed.is_announced = is_shown;
        if !feed.blocks.is_empty() {
            self.queue.insert((feed.needed_at(), number));
        }
        for event in [missing, announced, watermark].into_iter().flatten() {
            let sent = events.send(event).await;
            sent.map_err(|_| ArchiveError::ReceiverGone)?;
        }
        Ok(is_shown)
    }

    /// Fetches the blocks of all streams, and sends their packets on.
    async fn read(&mut self) -> Result<(), ArchiveError> {
        loop {
            let is_memory_short = self.request_needed();
            if self.fetches.is_empty() && self.queue.is_empty() {
                return Ok(());
            }
            let is_idle = self.fetches.is_empty();
            tokio::select! {
                biased;
                Some(fetched) = self.fetches.join_next() => {
                    self.receive(fetched.map_err(|_| ArchiveError::Thread)?).await?;
                }
                () = self.removed.notified() => {}
                Ok(()) = self.is_held_back.changed() => {}
                () = tokio::time::sleep(MEMORY_INTERVAL), if is_memory_short && is_idle => {}
                () = self.events.closed() => return Err(ArchiveError::ReceiverGone),
            }
        }
    }

    /// Requests what is needed next, as long as there is memory. Returns whether memory was short.
    fn request_needed(&mut self) -> bool {
        // Streams with much to come share the memory.
        let share = READ_AHEAD_BYTES / (self.queue.len() as u64).max(1);
        while self.fetches.len() < MAX_FETCHES {
            let mut numbers = self.queue.iter().map(|(_, number)| *number);
            let is_next = |number: &usize| {
                let feed = self.feeds.get(*number);
                feed.is_some_and(|feed| !feed.has_ahead() || feed.bytes_ahead() < share)
            };
            let Some(number) = numbers.find(is_next) else {
                return false;
            };
            let next = self.feeds.get(number).map_or(0, Feed::next_bytes);
            let wanted = usize::try_from(self.requested_bytes.saturating_add(next));
            let memory = &self.options.memory;
            if wanted.is_ok_and(|wanted| memory.has_room(wanted)) {
                self.request(number, share.min(MAX_RUN_BYTES));
                continue;
            }
            // The events of all others wait for a stream that has nothing: what there is no memory
            // for goes to a file.
            let is_starving = *self.is_held_back.borrow() || memory.reserved() == 0;
            let mut numbers = self.queue.iter().map(|(_, number)| *number);
            let has_nothing = |number: &usize| {
                let feed = self.feeds.get(*number);
                feed.is_some_and(|feed| !feed.has_ahead())
            };
            let needed = numbers.find(has_nothing);
            let Some(number) = needed.filter(|_| is_starving && self.requested_bytes == 0) else {
                return true;
            };
            self.request(number, 0);
        }
        false
    }

    /// Requests the next blocks of a stream: as many as have `limit` bytes, and at least one.
    fn request(&mut self, number: usize, limit: u64) {
        let Some(feed) = self.feeds.get_mut(number) else {
            return;
        };
        self.queue.remove(&(feed.needed_at(), number));
        let Some((request, run)) = feed.begin_request(limit) else {
            return;
        };
        self.requested_bytes += run.bytes();
        if feed.is_announced && !feed.blocks.is_empty() {
            self.queue.insert((feed.needed_at(), number));
        }
        let store: Arc<dyn Store> = Arc::clone(&self.source.store);
        let memory = self.options.memory.clone();
        let moved = Arc::clone(&self.moved);
        self.fetches.spawn(async move {
            let blocks = run.fetch(&*store, &memory, &moved).await;
            (number, request, blocks)
        });
    }

    /// Sends on what has arrived, in the order of the stream.
    async fn receive(&mut self, (number, request, blocks): Fetched) -> Result<(), ArchiveError> {
        let blocks = blocks?;
        let Some(feed) = self.feeds.get_mut(number) else {
            return Ok(());
        };
        feed.receive(request, blocks);
        while let Some((bytes, blocks)) = self.feeds.get_mut(number).and_then(Feed::take_received) {
            self.requested_bytes -= bytes;
            let is_announced = |feed: &&mut Feed| feed.is_announced;
            let Some(feed) = self.feeds.get_mut(number).filter(is_announced) else {
                continue;
            };
            for block in blocks {
                send_block(&self.events, feed, block).await?;
            }
        }
        match self.feeds.get(number).and_then(|feed| feed.open_trace) {
            Some(trace) => self.end_trace_if_drained(trace).await,
            None => Ok(()),
        }
    }

    /// Ends the streams of a trace of which everything has been sent, and the trace with the last.
    async fn end_trace_if_drained(&mut self, number: usize) -> Result<(), ArchiveError> {
        let Some(trace) = self.traces.get_mut(number) else {
            return Ok(());
        };
        let feeds = &mut self.feeds;
        let mut ended = Vec::new();
        trace.streams.retain(|stream| {
            let Some(feed) = feeds.get_mut(*stream) else {
                return false;
            };
            if feed.is_drained() {
                feed.is_announced = false;
                ended.push(feed.key);
            }
            feed.is_announced
        });
        let is_over = trace.streams.is_empty();
        for stream in ended {
            self.send(SourceEvent::StreamEnd { stream }).await?;
        }
        if is_over {
            self.end_trace(number).await?;
        }
        Ok(())
    }

    /// Ends a trace with its streams, whether everything has been sent or not.
    async fn end_trace(&mut self, number: usize) -> Result<(), ArchiveError> {
        let trace = self.traces.get_mut(number);
        let Some(trace) = trace.filter(|trace| !trace.has_ended) else {
            return Ok(());
        };
        trace.has_ended = true;
        let (key, streams) = (trace.key, std::mem::take(&mut trace.streams));
        for feed in streams.iter().filter_map(|stream| self.feeds.get(*stream)) {
            let stream = feed.key;
            self.send(SourceEvent::StreamEnd { stream }).await?;
        }
        self.send(SourceEvent::TraceEnd { trace: key }).await
    }
}

/// Sends the packets of a block, or says why there are none.
async fn send_block(
    events: &mpsc::Sender<SourceEvent>,
    feed: &mut Feed,
    (used, packets): FetchedBlock,
) -> Result<(), ArchiveError> {
    let packets = match packets {
        Ok(packets) => packets,
        Err(reason) => {
            let (first, last) = (used.begin.0, used.end.0.saturating_sub(1));
            let missing = SourceEvent::Missing(format!(
                "stream {}: packets {first} to {last} cannot be read: {reason}; they are left out",
                feed.name
            ));
            let sent = events.send(missing).await;
            return sent.map_err(|_| ArchiveError::ReceiverGone);
        }
    };
    let stream = feed.key;
    for (index, packet) in packets {
        if feed.is_copy(&index) {
            continue;
        }
        let bytes = usize::try_from(packet.len()).unwrap_or(usize::MAX);
        feed.backlog.add_packet(bytes);
        let sent = events.send(SourceEvent::Packet { stream, packet }).await;
        sent.map_err(|_| ArchiveError::ReceiverGone)?;
    }
    Ok(())
}
