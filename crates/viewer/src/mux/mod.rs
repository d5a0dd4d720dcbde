//! The mux: merges the events of all streams in order of time, and never shows one before it is
//! certain that no other stream has an earlier one.
//!
//! Read in this order: `order` (which of two events comes first), `ready` (the streams that have
//! one), `stage` (where events go), `clocks`, `window` and `decoding` (from packets to events),
//! `input` (one stream), this file (all streams), `corrections` (of times), `show` (the loop),
//! `report` (what sources say),
//! and `slices` (complete traces on several threads).

mod clocks;
mod corrections;
mod decoding;
mod input;
mod order;
mod ready;
mod report;
mod show;
pub(crate) mod slices;
mod stage;
mod window;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ctf::directory::{StreamFiles, StreamReader, TraceDirectory};
use ctf::{Metadata, MetadataError};

use self::clocks::Clocks;
pub use self::clocks::is_since_1970;
use self::decoding::Feed;
use self::input::{Input, Step};
use self::order::{Place, Rank};
use self::ready::ReadyStreams;
pub use self::report::Report;
use self::slices::{CompleteTrace, TracePart};
pub use self::stage::{Progress, Stage};
use crate::attach::{Backlog, MemoryBudget, Packet, StreamInfo, StreamKey, TraceInfo, TraceKey};
use crate::sink::{Origin, SinkError};
use crate::slots::Slots;
use crate::time::Nanoseconds;

/// The traces and streams that are being read, merged in time order. One that has ended is removed
/// when all of it has been shown.
#[derive(Default)]
pub struct Mux {
    /// The memory for packets of files.
    memory: MemoryBudget,
    traces: Slots<TraceState>,
    trace_slots: HashMap<TraceKey, usize>,
    /// Traces that may have ended with their last stream, or without any.
    ended_traces: Vec<usize>,
    streams: Slots<Input>,
    stream_slots: HashMap<StreamKey, usize>,
    /// The order of streams at equal times: each has a number, smaller first.
    ranks: BTreeMap<Arc<Rank>, usize>,
    /// The streams that have an event or a loss.
    ready: ReadyStreams,
    /// The streams that have neither an event nor a loss for now.
    waiting: Vec<usize>,
    /// The lowest watermark of the waiting streams: none of their events will be earlier.
    watermark: Place,
    /// The time from which on nothing is shown, of a part of traces.
    end: Option<Nanoseconds>,
    /// Whether events are shown as they come.
    is_unordered: bool,
    clocks: Clocks,
}

/// Bytes of a file that are read at a time, if packets are smaller.
const READ_AHEAD_BYTES: usize = 64 << 10;
/// Largest number of streams that are read ahead: with more, their bytes would take too much
/// memory.
const MAX_READ_AHEAD_STREAMS: usize = 64;

struct TraceState {
    info: TraceInfo,
    /// Shared with those that read other parts of the trace, which is only done once it is
    /// complete.
    metadata: Arc<Metadata>,
    /// Whether the metadata of the trace cannot be read.
    broken: bool,
    /// The number of streams of the trace that have not been removed.
    streams: usize,
    /// Whether no stream will be added.
    ended: bool,
}

/// Describes a stream of files that has not been read.
fn stream_info(stream: &StreamFiles) -> StreamInfo {
    let first = stream.files.first();
    StreamInfo {
        key: StreamKey::fresh(),
        name: first.map_or_else(String::new, |file| file.display().to_string()),
        class: stream.class,
        id: Some(stream.id),
    }
}

impl TraceState {
    fn new(info: TraceInfo, metadata: Metadata) -> Self {
        Self {
            info,
            metadata: Arc::new(metadata),
            broken: false,
            streams: 0,
            ended: false,
        }
    }

    fn report_error(&mut self, error: &MetadataError, stage: &mut impl Stage) {
        self.broken = true;
        let name = &self.info.name;
        stage.report_failure(&format!(
            "cannot read metadata: trace {name}: {error}; no more of the trace is shown"
        ));
    }
}

impl Mux {
    /// A mux without streams.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A mux without streams. The packets that it reads from files take their memory from `memory`.
    #[must_use]
    pub fn with_memory(memory: MemoryBudget) -> Self {
        Self {
            memory,
            ..Self::default()
        }
    }

    /// Shows the events of each stream as they come, whatever the others have.
    pub fn set_unordered(&mut self) {
        self.is_unordered = true;
    }

    /// The number of traces and streams: those that have not ended, and those of which not all has
    /// been shown.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.traces.len(), self.streams.len())
    }

    /// Adds a trace on disk with all its streams.
    ///
    /// # Errors
    /// If its metadata cannot be shown.
    pub fn add_directory(
        &mut self,
        key: TraceKey,
        trace: TraceDirectory,
        stage: &mut impl Stage,
    ) -> Result<(), SinkError> {
        self.add_complete(&CompleteTrace::new(key, trace), stage)
    }

    /// Adds a trace on disk with all its streams.
    ///
    /// # Errors
    /// If its metadata cannot be shown.
    pub fn add_complete(
        &mut self,
        trace: &CompleteTrace,
        stage: &mut impl Stage,
    ) -> Result<(), SinkError> {
        trace.announce(stage)?;
        self.add_part_of(trace, trace.streams.iter().map(StreamReader::new), None);
        Ok(())
    }

    /// Adds a part of traces on disk. Only for a mux without other traces.
    fn add_part(&mut self, traces: &[CompleteTrace], part: &TracePart) {
        self.end = part.end;
        let mut ranges = part.packets.iter();
        for trace in traces {
            let streams = trace.streams.iter().zip(ranges.by_ref());
            let readers =
                streams.map(|(stream, range)| StreamReader::of_packets(stream, range.clone()));
            self.add_part_of(trace, readers, Some(part));
        }
    }

    fn add_part_of(
        &mut self,
        trace: &CompleteTrace,
        readers: impl Iterator<Item = StreamReader>,
        part: Option<&TracePart>,
    ) {
        let state = TraceState {
            ended: true,
            metadata: Arc::clone(&trace.metadata),
            ..TraceState::new(trace.info.clone(), Metadata::new())
        };
        let slot = self.traces.insert(state);
        self.ended_traces.push(slot);
        let are_few = self.streams.len() + trace.streams.len() <= MAX_READ_AHEAD_STREAMS;
        for (stream, mut reader) in trace.streams.iter().zip(readers) {
            if are_few {
                reader.read_ahead(READ_AHEAD_BYTES);
            }
            let input = self.add_input(slot, stream_info(stream), Feed::Files(reader));
            if let (Some(part), Some(input)) = (part, self.streams.get_mut(input)) {
                input.restrict_to(part);
            }
        }
    }

    /// Adds a trace that a source has announced.
    pub fn add_trace(&mut self, key: TraceKey, name: String) {
        let info = TraceInfo {
            key,
            name,
            uuid: None,
        };
        let state = TraceState::new(info, Metadata::new());
        self.trace_slots.insert(key, self.traces.insert(state));
    }

    /// Adds metadata of a trace, before the packets that need it.
    ///
    /// # Errors
    /// If it cannot be shown.
    pub fn extend_metadata(
        &mut self,
        key: TraceKey,
        bytes: &[u8],
        stage: &mut impl Stage,
    ) -> Result<(), SinkError> {
        let slot = self.trace_slots.get(&key);
        let Some(trace) = slot.and_then(|slot| self.traces.get_mut(*slot)) else {
            return Ok(());
        };
        if trace.broken {
            return Ok(());
        }
        // Before it is parsed: a sink that copies metadata gets it even if it cannot be read.
        stage.metadata(bytes, &trace.info)?;
        // Metadata that is shared is that of a complete trace, which gets no more.
        let Some(metadata) = Arc::get_mut(&mut trace.metadata) else {
            return Ok(());
        };
        let extended = metadata.extend(bytes);
        let warnings = metadata.take_warnings();
        if let Err(error) = extended {
            trace.report_error(&error, stage);
        }
        for warning in warnings {
            trace.broken |= stage.report_metadata_warning(&trace.info.name, &warning);
        }
        trace.info.uuid = trace.metadata.trace().uuid();
        stage.declared(trace.metadata.trace());
        Ok(())
    }

    /// Adds a stream that a source has announced.
    pub fn add_stream(&mut self, key: StreamKey, trace: TraceKey, name: String, backlog: Backlog) {
        let Some(&trace) = self.trace_slots.get(&trace) else {
            return;
        };
        let info = StreamInfo {
            key,
            name,
            class: 0,
            id: None,
        };
        let feed = Feed::Queue {
            packets: VecDeque::new(),
            backlog,
            ended: false,
        };
        let slot = self.add_input(trace, info, feed);
        self.stream_slots.insert(key, slot);
    }

    /// Adds a packet of a stream.
    pub fn push_packet(&mut self, key: StreamKey, packet: Packet, stage: &mut impl Stage) {
        let slot = self.stream_slots.get(&key);
        let Some(input) = slot.and_then(|slot| self.streams.get_mut(*slot)) else {
            return;
        };
        input.push_packet(packet);
        let Some(trace) = self.traces.get_mut(input.trace) else {
            return;
        };
        if trace.broken {
            input.discard_packets();
        } else if let Some(metadata) = Arc::get_mut(&mut trace.metadata)
            && let Err(error) = metadata.imply_stream()
        {
            trace.report_error(&error, stage);
        }
    }

    /// Raises a stream's watermark: nothing before `cycles` of its clock will arrive.
    pub fn advance_watermark(&mut self, key: StreamKey, cycles: u64) {
        let slot = self.stream_slots.get(&key);
        if let Some(input) = slot.and_then(|slot| self.streams.get_mut(*slot))
            && let Some(trace) = self.traces.get(input.trace)
        {
            input.advance_watermark(trace.metadata.trace(), cycles);
        }
    }

    /// Sets whether the events of other streams wait for those of this one, as they do at first. If
    /// they did not wait, its next events are shown late.
    pub fn set_holding(&mut self, key: StreamKey, is_holding: bool) {
        let slot = self.stream_slots.get(&key);
        if let Some(input) = slot.and_then(|slot| self.streams.get_mut(*slot)) {
            input.is_holding = is_holding;
        }
    }

    /// Ends a stream: nothing further will arrive on it.
    pub fn end_stream(&mut self, key: StreamKey) {
        let Some(slot) = self.stream_slots.remove(&key) else {
            return;
        };
        let Some(input) = self.streams.get_mut(slot) else {
            return;
        };
        input.end_feed();
        if self
            .traces
            .get(input.trace)
            .is_some_and(|trace| trace.broken)
        {
            // The stream no longer waits for packets: it is advanced once more, and removed.
            self.waiting.push(slot);
        }
    }

    /// Ends a trace: it gets no further stream. What its streams still have is shown.
    pub fn end_trace(&mut self, key: TraceKey) {
        let Some(slot) = self.trace_slots.remove(&key) else {
            return;
        };
        if let Some(trace) = self.traces.get_mut(slot) {
            trace.ended = true;
        }
        self.ended_traces.push(slot);
    }

    /// Whether there is an event that is not shown until the watermarks of all streams have passed
    /// it.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Marks a stream that has come after others had begun.
    pub(super) fn set_newcomer(&mut self, key: StreamKey) {
        let slot = self.stream_slots.get(&key);
        if let Some(input) = slot.and_then(|slot| self.streams.get_mut(*slot)) {
            input.is_newcomer = true;
        }
    }

    /// Whether an event is held back while nothing is known yet of a newcomer's times.
    #[must_use]
    pub fn is_held_by_newcomers(&self) -> bool {
        let mut waiting = self.waiting.iter();
        let is_holding = |slot: &usize| {
            let input = self.streams.get(*slot);
            input.is_some_and(|input| input.is_unknown_newcomer() && input.holds_others())
        };
        !self.is_unordered && self.holds_back() && waiting.any(is_holding)
    }

    /// Lets events wait no longer for newcomers of whose times nothing is known yet. What is
    /// earlier in them is shown late.
    pub fn release_newcomers(&mut self) {
        for slot in &self.waiting {
            if let Some(input) = self.streams.get_mut(*slot)
                && input.is_unknown_newcomer()
            {
                input.release();
            }
        }
    }

    /// Goes on to the next event of one stream.
    fn advance(&mut self, slot: usize, stage: &mut impl Stage) -> Result<(), SinkError> {
        let Some(input) = self.streams.get_mut(slot) else {
            return Ok(());
        };
        let Some(trace) = self.traces.get(input.trace) else {
            return Ok(());
        };
        if trace.broken {
            if input.discard_packets() {
                self.remove_stream(slot, stage);
            }
            return Ok(());
        }
        let step = input.advance(trace.metadata.trace());
        self.handle_step(slot, step, stage)
    }

    /// Handles the result of a step through a stream, and goes on to the stream's next event.
    fn handle_step(
        &mut self,
        slot: usize,
        mut step: Step,
        stage: &mut impl Stage,
    ) -> Result<(), SinkError> {
        loop {
            let Some(input) = self.streams.get_mut(slot) else {
                return Ok(());
            };
            let Some(trace) = self.traces.get(input.trace) else {
                return Ok(());
            };
            match step {
                Step::Event(time) => {
                    input.free_event();
                    let rank = input.rank_number();
                    self.ready.insert(Place::new(time, rank, slot));
                    return Ok(());
                }
                Step::Waiting => {
                    self.waiting.push(slot);
                    self.watermark = self.watermark.min(self.watermark_of(slot));
                    return Ok(());
                }
                Step::Ended(problem) => {
                    if let Some(problem) = problem {
                        stage.report_failure(&problem);
                    }
                    self.remove_stream(slot, stage);
                    return Ok(());
                }
                Step::Passed(problem) => stage.report_failure(&problem),
                Step::Packet => {
                    let origin = Origin {
                        trace: &trace.info,
                        stream: &input.info,
                        locations: None,
                    };
                    stage.packet(input.packet(), origin)?;
                    input.remove_losses_before_part();
                    let lost = input.losses().first().map(|loss| loss.begin);
                    let is_new = input.rank.is_none();
                    let declared = trace.metadata.trace();
                    let class = declared.stream(input.info.class);
                    if class.is_some_and(|class| self.clocks.differ(declared, class)) {
                        stage.report_warning("clocks of the streams cannot be compared; the order of events between streams is arbitrary");
                    }
                    if is_new {
                        let rank = Rank::new(&trace.info, &input.info);
                        self.insert_rank(rank, slot);
                    }
                    if let Some(begin) = lost {
                        // Losses have their place in time too.
                        let rank = self.rank_of(slot);
                        self.ready.insert(Place::new(begin, rank, slot));
                        return Ok(());
                    }
                }
            }
            let Some(input) = self.streams.get_mut(slot) else {
                return Ok(());
            };
            let Some(trace) = self.traces.get(input.trace) else {
                return Ok(());
            };
            step = input.advance(trace.metadata.trace());
        }
    }

    /// Gives the stream at `slot` its rank among those of equal time.
    fn insert_rank(&mut self, rank: Rank, slot: usize) {
        self.ranks.insert(Arc::new(rank), slot);
        // Each event compares numbers, not ranks: streams are added far less often than that.
        for (number, (rank, slot)) in (0..).zip(&self.ranks) {
            if let Some(input) = self.streams.get_mut(*slot) {
                input.rank = Some((Arc::clone(rank), number));
            }
        }
        let streams = &self.streams;
        // The places of streams that are ready have the old numbers in them.
        self.ready.replace_all(|place| {
            let rank = streams.get(place.slot()).map_or(0, Input::rank_number);
            Place::new(place.time(), rank, place.slot())
        });
        self.update_watermark();
    }

    fn update_watermark(&mut self) {
        let streams = &self.streams;
        let is_holding = |slot: &&usize| streams.get(**slot).is_none_or(Input::holds_others);
        let is_holding = |slot: &&usize| !self.is_unordered && is_holding(slot);
        let holding = self.waiting.iter().filter(is_holding);
        let watermark = holding.map(|slot| self.watermark_of(*slot));
        let end = self
            .end
            .map_or(Place::NONE, |end| Place::before(Some(end), 0));
        self.watermark = watermark.min().unwrap_or(end).min(end);
    }

    /// What a stream that is waiting may yet bring has its place here at the earliest. As long as
    /// nothing is known of it but its watermark, it may come first of what happens at that time.
    fn watermark_of(&self, slot: usize) -> Place {
        let watermark = self.streams.get(slot).and_then(Input::watermark);
        Place::before(watermark, self.rank_of(slot))
    }

    fn rank_of(&self, slot: usize) -> u32 {
        self.streams.get(slot).map_or(0, Input::rank_number)
    }

    fn add_input(&mut self, trace: usize, info: StreamInfo, feed: Feed) -> usize {
        let state = self.traces.get_mut(trace);
        let key = state.map_or_else(TraceKey::fresh, |state| {
            state.streams += 1;
            state.info.key
        });
        let input = Input::new(trace, key, info, feed, &self.memory);
        let slot = self.streams.insert(input);
        self.waiting.push(slot);
        slot
    }

    /// Removes a stream that is neither ready nor waiting. The others keep their order.
    fn remove_stream(&mut self, slot: usize, stage: &mut impl Stage) {
        let Some(input) = self.streams.remove(slot) else {
            return;
        };
        if let Some((rank, _)) = &input.rank {
            self.ranks.remove(rank);
        }
        stage.stream_ended(input.info.key);
        if let Some(trace) = self.traces.get_mut(input.trace) {
            trace.streams -= 1;
            if trace.streams == 0 {
                self.ended_traces.push(input.trace);
            }
        }
    }

    fn remove_ended_traces(&mut self, stage: &mut impl Stage) {
        for slot in std::mem::take(&mut self.ended_traces) {
            let trace = self.traces.get(slot);
            if trace.is_some_and(|trace| trace.ended && trace.streams == 0)
                && let Some(trace) = self.traces.remove(slot)
            {
                stage.trace_ended(trace.info.key);
            }
        }
    }
}
