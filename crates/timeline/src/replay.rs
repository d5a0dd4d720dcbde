//! Decodes packets of the log again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ctf::decode::Event;
use ctf::metadata::Trace;
use viewer::attach::{Backlog, MemoryBudget, Packet, Reservation, StreamKey, TraceInfo, TraceKey};
use viewer::mux::{Mux, Stage};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::time::Nanoseconds;

use super::packet_log::LoggedPacket;

/// Decodes packets in the order in which they are added, of each trace with its own mux.
pub(super) struct Replay {
    memory: MemoryBudget,
    traces: HashMap<TraceKey, ReplayedTrace>,
    is_ordered: bool,
}

struct ReplayedTrace {
    mux: Mux,
    /// The bytes of metadata that were read.
    metadata: usize,
    streams: Vec<StreamKey>,
}

/// What is done with events that are decoded again.
pub(super) trait Events {
    /// Shows an event. Returns false if no further event is wanted.
    ///
    /// # Errors
    /// If it cannot be shown.
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError>;

    /// Called when a trace has declared something, before the events of it.
    fn declared(&mut self, _trace: &Trace) {}
}

/// Shows events only: losses and failures were shown when the packets were decoded first.
struct EventStage<'a, E>(&'a mut E);

impl<E: Events> Stage for EventStage<'_, E> {
    fn event(
        &mut self,
        event: &Event<'_>,
        time: Option<Nanoseconds>,
        origin: Origin<'_>,
    ) -> Result<bool, SinkError> {
        self.0.event(event, time, origin)
    }

    fn packet(&mut self, _packet: &Packet, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _bytes: &[u8], _trace: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn declared(&mut self, trace: &Trace) {
        self.0.declared(trace);
    }

    fn lost(&mut self, _loss: &Loss, _origin: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn report_failure(&mut self, _what: &str) {}

    fn report_warning(&mut self, _what: &str) {}
}

impl Replay {
    /// `is_ordered`: nothing is shown before [`finish`](Self::finish), and then in order of time.
    /// Otherwise the events of a packet are shown when it is added.
    pub(super) fn new(is_ordered: bool) -> Self {
        Self {
            memory: MemoryBudget::default(),
            traces: HashMap::new(),
            is_ordered,
        }
    }

    /// The number of traces of which there were packets.
    pub(super) fn trace_count(&self) -> usize {
        self.traces.len()
    }

    /// The number of bytes of metadata of the traces of which there were packets.
    pub(super) fn metadata_bytes(&self) -> usize {
        self.traces.values().map(|trace| trace.metadata).sum()
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// If its events cannot be shown.
    pub(super) fn add(
        &mut self,
        packet: &LoggedPacket,
        events: &mut impl Events,
    ) -> Result<(), SinkError> {
        let (key, stream) = (packet.trace.info.key, &packet.stream);
        let stage = &mut EventStage(events);
        let trace = match self.traces.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut mux = Mux::with_memory(self.memory.clone());
                if !self.is_ordered {
                    // The packets of other streams may have been dropped: no event can wait for
                    // them.
                    mux.set_unordered();
                }
                mux.add_trace(key, packet.trace.info.name.clone());
                new.insert(ReplayedTrace {
                    mux,
                    metadata: 0,
                    streams: Vec::new(),
                })
            }
        };
        // More may have come since the last packet of the trace was added.
        let metadata = packet.trace.metadata_from(trace.metadata);
        if !metadata.is_empty() {
            trace.metadata += metadata.len();
            trace.mux.extend_metadata(key, &metadata, stage)?;
        }
        // The same as when the packet was decoded first, or more that agree with them.
        if let Some(corrections) = packet.trace.corrections() {
            trace.mux.correct_trace(key, |_| Some(corrections));
        }
        if !trace.streams.contains(&stream.key) {
            trace.streams.push(stream.key);
            // No source waits for this backlog: packets are added one after the other.
            let backlog = Backlog::default();
            trace
                .mux
                .add_stream(stream.key, key, stream.name.clone(), backlog);
        }
        // Nothing is reserved: the callers limit how many packets there are.
        let reservation = Reservation::none(&self.memory);
        let bytes = packet
            .bytes()
            .map_err(|error| SinkError::Sink(error.into()))?;
        let bytes = Packet::in_memory(bytes, reservation);
        trace.mux.push_packet(stream.key, bytes, stage);
        if !self.is_ordered {
            trace.mux.run(stage, &|| false)?;
        }
        Ok(())
    }

    /// Shows what has not been shown.
    ///
    /// # Errors
    /// If it cannot be shown.
    pub(super) fn finish(self, events: &mut impl Events) -> Result<(), SinkError> {
        let stage = &mut EventStage(events);
        let mut traces: Vec<_> = self.traces.into_iter().collect();
        // The order of a map is random, but files of the same range shall be equal.
        traces.sort_by_key(|(key, _)| *key);
        for (key, mut trace) in traces {
            for stream in trace.streams {
                trace.mux.end_stream(stream);
            }
            trace.mux.end_trace(key);
            trace.mux.run(stage, &|| false)?;
        }
        Ok(())
    }
}
