//! Stream classes and event classes as declared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::resolve::Slots;
use crate::clock::Timescale;
use crate::model::{LogLevel, Structure};
use crate::plan::{KnownPosition, Plan};
use crate::short_header::ShortHeader;

/// Event classes below this id are found by their place in a list, others by search: few traces
/// have ids above it, and a list of all possible ids would take too much memory.
const DENSE_IDS: u64 = 1 << 16;

static NEXT_ORDINAL: AtomicUsize = AtomicUsize::new(0);

/// A kind of streams: what their packets and events have in common.
#[derive(Debug, Clone)]
pub struct StreamClass {
    pub(crate) id: u64,
    pub(crate) name: Option<Arc<str>>,
    /// The clock of the times of its packets and events: the given one, or the one that fields name
    /// which have been declared so far.
    pub(crate) clock: StreamClock,
    pub(crate) timescale: Option<Timescale>,
    /// Whether the stream class has timestamps, none of which names a clock.
    pub(super) unmapped: bool,
    pub(crate) packet_context: Option<Arc<Structure>>,
    pub(crate) event_header: Option<Arc<Structure>>,
    pub(crate) event_context: Option<Arc<Structure>>,
    pub(crate) context_plan: Plan,
    pub(crate) header_plan: Plan,
    pub(crate) short_header: Option<ShortHeader>,
    /// The plan of the common context, apart from those of the event classes: the context may be
    /// large, and each of many event classes would repeat it.
    pub(crate) event_context_plan: Plan,
    /// Whether there may be several event classes: the event header says of which class an event
    /// is, or it is CTF 2.
    pub(super) has_event_ids: bool,
    pub(crate) events: Vec<EventClass>,
    /// Place in `events` plus 1, by id; 0 if no event class has the id.
    pub(super) dense: Vec<u32>,
    pub(super) sparse: BTreeMap<u64, u32>,
    pub(super) stream_slots: Slots,
    /// The most that an event class of this stream class needs.
    pub(crate) slots: u32,
}

/// The clock of the times of a stream class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamClock {
    /// Packets and events have no time.
    None,
    /// The clock at this place of the trace's list.
    Declared(usize),
    /// A clock of 1 GHz since 1970, where none is declared.
    Implicit,
}

/// An event class: what all events of one kind have in common.
#[derive(Debug, Clone)]
pub struct EventClass {
    pub(crate) id: u64,
    pub(super) ordinal: usize,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) emf_uri: Option<Arc<str>>,
    pub(crate) context: Option<Arc<Structure>>,
    pub(crate) payload: Option<Arc<Structure>>,
    /// The plan of all fields after the common context.
    pub(crate) plan: Plan,
}

impl StreamClass {
    /// The id of the stream class in its trace.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name; `None` in CTF 1.8, and if CTF 2 does not have one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The event classes of the stream class, in order of declaration.
    #[must_use]
    pub fn events(&self) -> &[EventClass] {
        &self.events
    }

    /// The event class of this id.
    #[must_use]
    pub fn event(&self, id: u64) -> Option<&EventClass> {
        self.place(id).and_then(|place| self.events.get(place))
    }

    /// The conversion from cycles to nanoseconds; `None` if its events have no time.
    #[must_use]
    pub fn timescale(&self) -> Option<&Timescale> {
        self.timescale.as_ref()
    }

    /// The structure that each packet has after its header; `None` if it is not declared.
    /// (`packet.context`)
    #[must_use]
    pub fn packet_context(&self) -> Option<&Structure> {
        self.packet_context.as_deref()
    }

    /// The structure that each event begins with; `None` if it is not declared. (`event.header`)
    #[must_use]
    pub fn event_header(&self) -> Option<&Structure> {
        self.event_header.as_deref()
    }

    /// The structure that each event has after its header; `None` if it is not declared.
    /// (`event.context` of `stream`)
    #[must_use]
    pub fn event_context(&self) -> Option<&Structure> {
        self.event_context.as_deref()
    }

    /// The place of the class of an event that has no id.
    pub(crate) fn place_without_id(&self) -> Option<usize> {
        if self.events.len() == 1 {
            Some(0)
        } else {
            self.place(0)
        }
    }

    #[inline]
    pub(crate) fn place(&self, id: u64) -> Option<usize> {
        let place = if id < DENSE_IDS {
            let dense = usize::try_from(id).ok();
            dense.and_then(|id| self.dense.get(id)).copied()
        } else {
            self.sparse.get(&id).copied()
        };
        usize::try_from(place?).ok()?.checked_sub(1)
    }

    pub(super) fn add_event(&mut self, event: EventClass) {
        let id = event.id;
        self.events.push(event);
        // At most `MAX_EVENT_CLASSES`: the conversion does not fail.
        let place = u32::try_from(self.events.len()).unwrap_or(0);
        match usize::try_from(id) {
            Ok(dense) if id < DENSE_IDS => {
                // At most `DENSE_IDS` entries: an id from the metadata determines no more memory.
                if self.dense.len() <= dense {
                    self.dense.resize(dense + 1, 0);
                }
                if let Some(cell) = self.dense.get_mut(dense) {
                    *cell = place;
                }
            }
            _ => {
                self.sparse.insert(id, place);
            }
        }
    }

    pub(super) fn compile_plans(&mut self, begin: KnownPosition) {
        self.context_plan = Plan::over(begin, self.packet_context.as_deref());
        // The position of an event depends on the events before it.
        self.header_plan = Plan::over(KnownPosition::default(), self.event_header.as_deref());
        self.short_header = ShortHeader::of(&self.header_plan);
        self.event_context_plan = Plan::over(self.header_plan.end, self.event_context.as_deref());
    }

    pub(super) fn compile_event_plans(&mut self) {
        // By place, because `event_plan` borrows all of `self` while one event class is changed.
        for place in 0..self.events.len() {
            let Some(event) = self.events.get(place) else {
                return;
            };
            let plan = self.event_plan(event.context.as_deref(), event.payload.as_deref());
            if let Some(event) = self.events.get_mut(place) {
                event.plan = plan;
            }
        }
    }

    pub(super) fn event_plan(
        &self,
        context: Option<&Structure>,
        payload: Option<&Structure>,
    ) -> Plan {
        let structures = [context, payload].into_iter().flatten();
        Plan::over(self.event_context_plan.end, structures)
    }
}

impl EventClass {
    /// Takes the ordinal of a new event class.
    pub(super) fn next_ordinal() -> usize {
        // Relaxed, because nothing else is published with the number: it only has to differ.
        NEXT_ORDINAL.fetch_add(1, Ordering::Relaxed)
    }

    /// The id of the event class in its stream class.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// A small number that no other event class of any trace in this process has, with which
    /// programs can index lists of data about event classes.
    #[inline]
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The name; `None` if the class has none, which only CTF 2 allows.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The log level; `None` if it is not given or unknown.
    #[must_use]
    pub fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    /// The URI of a description of the event class; `None` if it is not given. (`model.emf.uri`)
    #[must_use]
    pub fn emf_uri(&self) -> Option<&str> {
        self.emf_uri.as_deref()
    }

    /// The structure before the payload that only events of this class have; `None` if it is not
    /// declared. (`context`)
    #[must_use]
    pub fn context(&self) -> Option<&Structure> {
        self.context.as_deref()
    }

    /// The structure of the payload; `None` if it is not declared. (`fields`)
    #[must_use]
    pub fn payload(&self) -> Option<&Structure> {
        self.payload.as_deref()
    }
}
