//! Corrections of times, which become known while traces are read.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::TimeCorrections;
use ctf::metadata::Trace;

use super::Mux;
use super::input::Input;
use super::order::Place;
use crate::attach::{StreamKey, TraceKey};

impl Mux {
    /// What a trace has declared so far. None if it is unknown.
    #[must_use]
    pub fn declared(&self, key: TraceKey) -> Option<&Trace> {
        let slot = self.trace_slots.get(&key)?;
        Some(self.traces.get(*slot)?.metadata.trace())
    }

    /// Corrects the times of a trace that a source has announced, of which nothing has been read.
    pub fn correct_trace(
        &mut self,
        key: TraceKey,
        corrections: impl FnOnce(&Trace) -> Option<Arc<TimeCorrections>>,
    ) {
        if let Some(slot) = self.trace_slots.get(&key) {
            self.correct_slot(*slot, corrections);
        }
    }

    fn correct_slot(
        &mut self,
        slot: usize,
        corrections: impl FnOnce(&Trace) -> Option<Arc<TimeCorrections>>,
    ) {
        let trace = self.traces.get_mut(slot);
        // Metadata that is shared is that of a complete trace, which is corrected before.
        if let Some(metadata) = trace.and_then(|trace| Arc::get_mut(&mut trace.metadata))
            && let Some(corrections) = corrections(metadata.trace())
        {
            metadata.correct_times(corrections);
        }
    }

    /// Decodes nothing that arrives on a newcomer until
    /// [`Self::stop_awaiting_corrections`], because corrections of its times may come. Others wait
    /// for it as for any newcomer.
    pub fn await_corrections(&mut self, key: StreamKey) {
        let slot = self.stream_slots.get(&key);
        if let Some(input) = slot.and_then(|slot| self.streams.get_mut(*slot)) {
            input.set_awaits_corrections(true);
        }
    }

    /// Decodes what has awaited corrections of a trace, with those that are known by now.
    pub fn stop_awaiting_corrections(&mut self, trace: TraceKey) {
        let inputs = self.streams.values_mut();
        for input in inputs.filter(|input| input.trace_key == trace) {
            input.set_awaits_corrections(false);
        }
    }

    /// Corrects the times of all traces that sources have announced, also of those that have ended
    /// and of what has been found in them and not been shown. The corrections should stay the same
    /// up to the latest time of the trace, in cycles, that has been found, if any has: else times
    /// go back.
    pub fn correct_traces(
        &mut self,
        mut corrections: impl FnMut(TraceKey, &Trace, Option<u64>) -> Option<Arc<TimeCorrections>>,
    ) {
        let mut reached = HashMap::new();
        for (_, input) in self.streams.iter() {
            let latest = reached.entry(input.trace).or_insert(None);
            *latest = input.reached().max(*latest);
        }
        let traces = self
            .traces
            .iter()
            .map(|(slot, trace)| (trace.info.key, slot));
        for (key, slot) in traces.collect::<Vec<_>>() {
            let reached = reached.get(&slot).copied().flatten();
            self.correct_slot(slot, |declared| corrections(key, declared, reached));
        }
        for input in self.streams.values_mut() {
            if let Some(trace) = self.traces.get(input.trace) {
                input.correct_times(trace.metadata.trace());
            }
        }
        let streams = &self.streams;
        self.ready.replace_all(|place| {
            let input = streams.get(place.slot());
            let time = input.and_then(Input::event_time).unwrap_or(place.time());
            let rank = input.map_or(0, Input::rank_number);
            Place::new(time, rank, place.slot())
        });
        self.update_watermark();
    }
}
