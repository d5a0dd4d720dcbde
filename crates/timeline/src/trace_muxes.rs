//! A mux for each trace: the events of a trace are put in order, and no trace waits for another.

use std::collections::{BTreeSet, HashMap};

use ctf::directory::TraceDirectory;
use viewer::align::aligner::Aligner;
use viewer::attach::{MemoryBudget, SourceEvent, StreamKey, TraceKey};
use viewer::mux::{Mux, Report, Stage};
use viewer::sink::SinkError;
use viewer::sources::SessionStage;

/// The muxes of all traces that have not ended.
pub(super) struct TraceMuxes {
    memory: MemoryBudget,
    muxes: HashMap<TraceKey, Mux>,
    streams: HashMap<StreamKey, TraceKey>,
    /// The traces that may have events to show.
    changed: BTreeSet<TraceKey>,
    /// Absent if times are shown as they are.
    aligner: Option<Aligner>,
}

impl TraceMuxes {
    /// No mux yet. Packets that are read from files take their memory from `memory`.
    pub(super) fn new(memory: MemoryBudget, aligner: Option<Aligner>) -> Self {
        Self {
            memory,
            muxes: HashMap::new(),
            streams: HashMap::new(),
            changed: BTreeSet::new(),
            aligner,
        }
    }

    /// Adds a trace that is complete.
    ///
    /// # Errors
    /// If its metadata cannot be shown.
    pub(super) fn add_directory(
        &mut self,
        key: TraceKey,
        trace: TraceDirectory,
        stage: &mut impl Stage,
    ) -> Result<(), SinkError> {
        let mut mux = Mux::with_memory(self.memory.clone());
        mux.add_directory(key, trace, stage)?;
        self.muxes.insert(key, mux);
        self.changed.insert(key);
        Ok(())
    }

    /// Handles what a source reports, and returns what is for users.
    ///
    /// # Errors
    /// If metadata cannot be shown.
    pub(super) fn handle(
        &mut self,
        event: SourceEvent,
        stage: &mut impl SessionStage,
    ) -> Result<Option<Report>, SinkError> {
        let of_stream = |stream| self.streams.get(stream).copied();
        let trace = match &event {
            SourceEvent::Trace { trace, .. } => {
                let mux = Mux::with_memory(self.memory.clone());
                self.muxes.insert(*trace, mux);
                Some(*trace)
            }
            SourceEvent::Stream { stream, trace, .. } => {
                self.streams.insert(*stream, *trace);
                Some(*trace)
            }
            SourceEvent::Metadata { trace, .. } | SourceEvent::TraceEnd { trace } => Some(*trace),
            SourceEvent::Packet { stream, .. }
            | SourceEvent::Watermark { stream, .. }
            | SourceEvent::StreamHold { stream, .. } => of_stream(stream),
            SourceEvent::StreamEnd { stream } => {
                let trace = of_stream(stream);
                self.streams.remove(stream);
                trace
            }
            SourceEvent::Notice(_)
            | SourceEvent::Missing(_)
            | SourceEvent::Failed(_)
            | SourceEvent::CaughtUp
            | SourceEvent::Done => None,
        };
        match trace {
            Some(trace) => {
                self.changed.insert(trace);
                let Some(mux) = self.muxes.get_mut(&trace) else {
                    return Ok(None);
                };
                let metadata_of = event.metadata_of();
                let report = mux.handle(event, stage)?;
                if let (Some(aligner), Some(trace)) = (&mut self.aligner, metadata_of)
                    && let Some(aligned) = aligner.add_metadata(trace, mux)
                {
                    stage.align_trace(aligned);
                }
                Ok(report)
            }
            // What is for users is the same for all.
            None => Mux::new().handle(event, stage),
        }
    }

    /// Shows the events that are certain to be next in their traces, until `stop` says so.
    ///
    /// # Errors
    /// If they cannot be shown.
    pub(super) fn run(
        &mut self,
        stage: &mut impl SessionStage,
        stop: &impl Fn() -> bool,
    ) -> Result<(), SinkError> {
        if let Some(aligner) = &mut self.aligner {
            for aligned in aligner.refresh(self.muxes.values_mut()) {
                stage.align_trace(aligned);
            }
        }
        for trace in std::mem::take(&mut self.changed) {
            let Some(mux) = self.muxes.get_mut(&trace) else {
                continue;
            };
            mux.run(stage, stop)?;
            // All of the trace has ended and has been shown.
            if mux.counts() == (0, 0) {
                self.muxes.remove(&trace);
            }
            // What is left is not shown any more, because the run ends.
            if stop() {
                break;
            }
        }
        Ok(())
    }

    /// Whether an event is not shown until the watermarks of other streams have passed it.
    pub(super) fn holds_back(&self) -> bool {
        self.muxes.values().any(Mux::holds_back)
    }
}
