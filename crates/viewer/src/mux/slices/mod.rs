//! Complete traces on several threads. Their time is cut into slices: each thread reads all streams
//! of a slice, puts their events in order and renders them, and what it has rendered is shown in
//! the order of the slices. Events do not go from thread to thread, only their text.
//!
//! A slice is read by a [`Mux`] of its own, which begins with the last packet of each stream that
//! begins before the slice, and passes over the events of it that are earlier. This is only valid
//! where the times of packets and events can be trusted. So what is unusual is left to a mux that
//! reads alone: traces without such times, or whose packets depend on each other
//! ([`SlicePlan::new`] finds no slices); and all that follows the first error or warning in a
//! slice, or the first event whose time is not that of its packet. Output and messages are the same
//! in all cases.
//!
//! Read in this order: `plan` (where the time is cut), `buffers`, `progress` (how far the threads
//! may go ahead), `pieces`, `renderer` (one slice), `queue` (what each thread does), this file.

mod buffers;
mod pieces;
mod plan;
mod progress;
mod queue;
mod renderer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use ctf::Metadata;
use ctf::decode::Event;
use ctf::directory::{StreamFiles, TraceDirectory};
use tracing::debug;

use self::pieces::SlicePiece;
pub(super) use self::plan::TracePart;
pub(crate) use self::plan::{SlicePlan, SliceRules};
use self::queue::{SliceQueue, StartedSlice};
use super::{Mux, Progress, Stage};
use crate::attach::{MemoryBudget, Packet, TraceInfo, TraceKey};
use crate::sink::render::RenderedRun;
use crate::sink::{Loss, Origin, Renderer, SinkError};
use crate::time::Nanoseconds;

/// A trace whose streams are complete.
pub struct CompleteTrace {
    pub(super) info: TraceInfo,
    pub(super) metadata: Arc<Metadata>,
    metadata_bytes: Vec<u8>,
    pub(super) streams: Vec<StreamFiles>,
}

/// A stage that is shown what threads have rendered.
pub(crate) trait SliceStage: Stage {
    /// Shows events that a renderer of the stage's sink has rendered.
    ///
    /// # Errors
    /// If they cannot be shown.
    fn show_run(&mut self, run: &RenderedRun) -> Result<(), SinkError>;

    /// Counts events that the stage's sink does nothing with.
    fn count_events(&mut self, count: u64);

    /// Adds to the number of bytes of packets that have been read.
    fn add_bytes_read(&mut self, bytes: u64);
}

/// How far the slices have been shown.
#[derive(Debug)]
enum Shown {
    All,
    /// The run was stopped.
    Stopped,
    /// The slice with this number is unusual. Its first events and losses, of these numbers, have
    /// been shown.
    Until {
        slice: usize,
        events: u64,
        losses: u64,
    },
}

impl CompleteTrace {
    pub(crate) fn new(key: TraceKey, trace: TraceDirectory) -> Self {
        let info = TraceInfo {
            key,
            name: trace.name,
            uuid: trace.metadata.trace().uuid(),
        };
        Self {
            info,
            metadata: Arc::new(trace.metadata),
            metadata_bytes: trace.metadata_bytes,
            streams: trace.streams,
        }
    }

    /// Shows what comes before the packets.
    pub(super) fn announce(&self, stage: &mut impl Stage) -> Result<(), SinkError> {
        stage.metadata(&self.metadata_bytes, &self.info)?;
        stage.declared(self.metadata.trace());
        Ok(())
    }
}

/// Shows all events of complete traces by `plan`, with at most one thread for each of `renderers`.
/// Those are none if events are only counted. What is left to show, because it is unusual, is added
/// to `mux`, which has no traces yet.
///
/// # Errors
/// If they cannot be shown.
pub(crate) fn show(
    traces: &[CompleteTrace],
    plan: &SlicePlan,
    renderers: Vec<Option<Box<dyn Renderer>>>,
    mux: &mut Mux,
    memory: &MemoryBudget,
    stage: &mut impl SliceStage,
    stop: &impl Fn() -> bool,
) -> Result<(), SinkError> {
    for trace in traces {
        trace.announce(stage)?;
    }
    let queue = SliceQueue::new(traces, plan, memory);
    let shown = thread::scope(|scope| {
        let (started, slices) = channel();
        let stop_threads = queue.progress().stop_when_dropped();
        let mut threads = Vec::new();
        for renderer in renderers.into_iter().take(plan.threads()) {
            let (queue, started) = (&queue, started.clone());
            let run = move || queue.read_slices(renderer, &started);
            let name = thread::Builder::new().name("slice".to_owned());
            match name.spawn_scoped(scope, run) {
                Ok(thread) => threads.push(thread),
                // Those that could be started read all slices. Without any the first slice is left
                // to the mux.
                Err(error) => {
                    debug!(%error, threads = threads.len(), "cannot start another thread");
                    break;
                }
            }
        }
        // The receiver learns that all threads have ended when the last sender is gone.
        drop(started);
        let shown = show_slices(&queue, slices, stage, stop);
        // Before they are joined: threads may be waiting until their text has been shown.
        drop(stop_threads);
        // A slice whose thread has panicked is unusual.
        threads.into_iter().for_each(|thread| drop(thread.join()));
        shown
    })?;
    let Shown::Until {
        slice,
        events,
        losses,
    } = shown
    else {
        return Ok(());
    };
    let Some(part) = plan.part(slice) else {
        return Ok(());
    };
    mux.add_part(traces, &part.with_rest(plan));
    let mut skip_shown = SkipShown {
        stage,
        events,
        losses,
    };
    // What has been shown is passed over here; the caller runs the mux for the rest.
    if events + losses > 0 {
        mux.run(&mut skip_shown, stop)?;
    }
    Ok(())
}

/// Shows the slices in their order, until all have been shown or one is unusual.
fn show_slices(
    queue: &SliceQueue<'_>,
    slices: Receiver<StartedSlice>,
    stage: &mut impl SliceStage,
    stop: &impl Fn() -> bool,
) -> Result<Shown, SinkError> {
    let mut started = BTreeMap::new();
    for slice in 0..queue.slices() {
        // Threads begin slices in their order, but may tell of them in another.
        while !started.contains_key(&slice)
            && let Ok(other) = slices.recv()
        {
            started.insert(other.slice, other.pieces);
        }
        let pieces = started.remove(&slice);
        match show_slice(slice, pieces, queue, stage, stop)? {
            Shown::All => {
                queue.progress().set_shown(slice);
                stage.add_bytes_read(queue.bytes(slice));
            }
            shown => return Ok(shown),
        }
    }
    Ok(Shown::All)
}

/// Shows the pieces of a slice. They are none if no thread has read it.
fn show_slice(
    slice: usize,
    pieces: Option<Receiver<SlicePiece>>,
    queue: &SliceQueue<'_>,
    stage: &mut impl SliceStage,
    stop: &impl Fn() -> bool,
) -> Result<Shown, SinkError> {
    let (mut events, mut losses) = (0, 0);
    loop {
        if stop() {
            return Ok(Shown::Stopped);
        }
        // None if a thread has panicked.
        let piece = pieces.as_ref().and_then(|pieces| pieces.recv().ok());
        match piece.unwrap_or(SlicePiece::Unusual) {
            SlicePiece::Rendered(run) => {
                stage.show_run(&run)?;
                events += run.events();
                queue.progress().take_back(slice, run);
            }
            SlicePiece::Counted(count) => {
                stage.count_events(count);
                events += count;
            }
            SlicePiece::Lost(lost) => {
                let origin = Origin {
                    trace: &lost.trace,
                    stream: &lost.stream,
                    locations: None,
                };
                stage.lost(&lost.loss, origin)?;
                losses += 1;
            }
            SlicePiece::End => return Ok(Shown::All),
            SlicePiece::Unusual => {
                return Ok(Shown::Until {
                    slice,
                    events,
                    losses,
                });
            }
        }
    }
}

/// A stage that passes over the events and losses of a slice that have been shown already.
struct SkipShown<'a, S> {
    stage: &'a mut S,
    /// Events and losses that have been shown already, and come first.
    events: u64,
    losses: u64,
}

impl<S: Stage> SkipShown<'_, S> {
    /// Passes over an event that has been shown. Returns false if none is left.
    fn pass_event(&mut self) -> bool {
        let is_shown = self.events > 0;
        self.events = self.events.saturating_sub(1);
        is_shown
    }
}

impl<S: Stage> Stage for SkipShown<'_, S> {
    fn event(
        &mut self,
        _event: &Event<'_>,
        _time: Option<Nanoseconds>,
        _origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        Ok(self.pass_event())
    }

    fn packet(&mut self, packet: &Packet, origin: Origin<'_>) -> Result<(), SinkError> {
        self.stage.packet(packet, origin)
    }

    fn metadata(&mut self, bytes: &[u8], trace: &TraceInfo) -> Result<(), SinkError> {
        self.stage.metadata(bytes, trace)
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        if self.losses == 0 {
            return self.stage.lost(loss, origin);
        }
        self.losses -= 1;
        Ok(())
    }

    fn report_failure(&mut self, what: &str) {
        self.stage.report_failure(what);
    }

    fn report_warning(&mut self, what: &str) {
        self.stage.report_warning(what);
    }
}

impl Mux {
    /// Shows a part of traces, from its begin to its end, or until `stop` says so.
    fn show_part(
        &mut self,
        traces: &[CompleteTrace],
        part: &TracePart,
        stage: &mut impl Stage,
        stop: &impl Fn() -> bool,
    ) -> Result<Progress, SinkError> {
        self.add_part(traces, part);
        self.run(stage, stop)
    }
}
