//! A trace as declared so far, ready for decoding.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::classes::{EventClass, StreamClass, StreamClock};
use super::decoder_fields::{MovedClocks, has_role};
use super::resolve::{FieldsLeft, Roots, Slots, resolve};
use super::warning::Warnings;
use crate::clock::{TimeCorrections, Timescale};
use crate::error::MetadataError;
use crate::model::{
    Clock, Declaration, EnvironmentValue, EventDraft, Position, Role, Scope, StreamDraft,
    Structure, TraceDraft, Uuid,
};
use crate::plan::{KnownPosition, Plan};

/// Largest number of event classes of one stream class.
const MAX_EVENT_CLASSES: usize = 1 << 16;
/// Largest number of clocks of a trace. Real ones have one or two.
const MAX_CLOCKS: usize = 1 << 10;
/// Largest number of stream classes of a trace.
const MAX_STREAM_CLASSES: usize = 1 << 16;

/// A trace as its metadata has declared it so far. Declarations never change, but more may be
/// added.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    pub(crate) uuid: Option<Uuid>,
    /// The UUID that each packet must have, if it has one. Packets of CTF 1.8 may have any.
    pub(crate) stream_uuid: Option<Uuid>,
    /// Whether it is CTF 2, where an id that is not given is 0, also if there are several classes.
    is_ctf_2: bool,
    pub(super) namespace: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    pub(super) uid: Option<Arc<str>>,
    pub(crate) environment: Vec<(Arc<str>, EnvironmentValue)>,
    /// The place of each name in `environment`.
    environment_places: HashMap<Arc<str>, usize>,
    pub(crate) clocks: Vec<Clock>,
    /// The place of each name in `clocks`.
    clock_places: HashMap<Arc<str>, usize>,
    pub(crate) packet_header: Option<Arc<Structure>>,
    pub(crate) header_plan: Plan,
    /// Whether the packet header says of which stream class a packet is.
    has_stream_ids: bool,
    /// Clocks that the packet header moves.
    header_clocks: MovedClocks,
    /// By how much the times of all streams are changed.
    corrections: Option<Arc<TimeCorrections>>,
    pub(crate) streams: BTreeMap<u64, StreamClass>,
    trace_slots: Slots,
    fields_left: FieldsLeft,
    /// Warnings of what is unusual in the use of types, which the parsers do not see.
    pub(super) warnings: Warnings,
}

impl Default for Slots {
    fn default() -> Self {
        Self::of_trace()
    }
}

impl Trace {
    /// The UUID of the trace, if it has one. In CTF 2 that is the UUID of the metadata stream, or
    /// else the unique ID of the trace class if that is a UUID.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// The name; `None` in CTF 1.8, and if CTF 2 does not have one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The environment, in order of first declaration.
    #[must_use]
    pub fn environment(&self) -> &[(Arc<str>, EnvironmentValue)] {
        &self.environment
    }

    /// The value of an entry of the environment.
    #[must_use]
    pub fn environment_value(&self, name: &str) -> Option<&EnvironmentValue> {
        let place = self.environment_places.get(name)?;
        self.environment.get(*place).map(|(_, value)| value)
    }

    /// The clocks, in order of declaration.
    #[must_use]
    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    /// The clock of a stream class of this trace; none if none was declared for it.
    #[must_use]
    pub fn clock_of(&self, stream: &StreamClass) -> Option<&Clock> {
        match stream.clock {
            StreamClock::Declared(place) => self.clocks.get(place),
            StreamClock::None | StreamClock::Implicit => None,
        }
    }

    /// The stream classes, in order of their ids.
    pub fn streams(&self) -> impl Iterator<Item = &StreamClass> {
        self.streams.values()
    }

    /// The stream class of this id.
    #[must_use]
    pub fn stream(&self, id: u64) -> Option<&StreamClass> {
        self.streams.get(&id)
    }

    /// The structure that each packet begins with; `None` if it is not declared. (`packet.header`)
    #[must_use]
    pub fn packet_header(&self) -> Option<&Structure> {
        self.packet_header.as_deref()
    }

    /// The number of fields of packets and event headers that others refer to.
    #[inline]
    pub(crate) fn shared_slots(&self, stream: &StreamClass) -> u32 {
        self.trace_slots.needed() + stream.stream_slots.needed()
    }

    /// Whether showing an event takes values that its decoder has only until it finds the next one:
    /// of the event header, or of an event before it.
    #[inline]
    #[must_use]
    pub fn has_distant_references(&self) -> bool {
        self.fields_left.has_distant_references
    }

    /// Adds a declaration that was parsed: resolves its fields, and compiles the plans that they
    /// change.
    pub(crate) fn declare(&mut self, declaration: Declaration) -> Result<(), MetadataError> {
        match declaration {
            Declaration::Trace(draft) => self.declare_trace(draft),
            Declaration::Environment(name, value) => {
                self.declare_environment(name, value);
                Ok(())
            }
            Declaration::Clock(clock, at) => self.declare_clock(clock, at),
            Declaration::Stream(draft) => self.declare_stream(draft),
            Declaration::Event(draft) => self.declare_event(draft),
        }
    }

    fn declare_trace(&mut self, draft: TraceDraft) -> Result<(), MetadataError> {
        (self.uuid, self.uid) = (draft.uuid, draft.uid);
        (self.stream_uuid, self.is_ctf_2) = (draft.stream_uuid, draft.is_ctf_2);
        (self.namespace, self.name) = (draft.namespace, draft.name);
        if let Some(header) = &draft.packet_header {
            // The header is the first root and can refer only to itself: the others are empty here.
            let header = resolve(
                Scope::PacketHeader,
                header,
                &mut Roots {
                    packet_header: &mut None,
                    packet_context: &mut None,
                    event_header: &mut None,
                    event_context: &mut None,
                    specific_context: &mut None,
                    trace_slots: &mut self.trace_slots,
                    stream_slots: &mut Slots::of_stream(),
                    event_slots: &mut Slots::of_event(),
                    fields_left: &mut self.fields_left,
                    warnings: &mut self.warnings,
                },
            )?;
            self.has_stream_ids = has_role(&header, Role::StreamClassId);
            self.header_clocks.add(&header);
            self.packet_header = Some(header);
            self.compile_header_plan();
        }
        Ok(())
    }

    fn compile_header_plan(&mut self) {
        self.header_plan = Plan::over(KnownPosition::BEGIN, self.packet_header.as_deref());
    }

    fn declare_environment(&mut self, name: Arc<str>, value: EnvironmentValue) {
        let end = self.environment.len();
        let place = *self
            .environment_places
            .entry(Arc::clone(&name))
            .or_insert(end);
        match self.environment.get_mut(place) {
            Some((_, before)) => *before = value,
            None => self.environment.push((name, value)),
        }
    }

    fn declare_clock(&mut self, clock: Clock, at: Position) -> Result<(), MetadataError> {
        if self.clock_places.contains_key(&clock.name) {
            let what = format!("a second clock {}", clock.name);
            return Err(MetadataError::text(at, what));
        }
        // The conversion to nanoseconds divides by it.
        if clock.frequency == 0 {
            let what = format!("clock {} has the frequency 0", clock.name);
            return Err(MetadataError::text(at, what));
        }
        if self.clocks.len() >= MAX_CLOCKS {
            let what = format!("more than {MAX_CLOCKS} clocks");
            return Err(MetadataError::text(at, what));
        }
        self.clock_places
            .insert(Arc::clone(&clock.name), self.clocks.len());
        self.clocks.push(clock);
        self.clock_unmapped(at)
    }

    /// Assigns a clock to timestamps that name none: the only clock of the trace, whether it is
    /// declared before or after the stream class.
    fn clock_unmapped(&mut self, at: Position) -> Result<(), MetadataError> {
        // With a second clock they are ambiguous and have none; a third changes nothing.
        let clock = match self.clocks.len() {
            1 => StreamClock::Declared(0),
            2 => StreamClock::None,
            _ => return Ok(()),
        };
        let timescale = self.timescale(clock, at)?;
        for stream in self.streams.values_mut().filter(|stream| stream.unmapped) {
            stream.clock = clock;
            stream.timescale.clone_from(&timescale);
        }
        Ok(())
    }

    pub(super) fn correct_times(&mut self, corrections: Arc<TimeCorrections>) {
        let scales = self
            .streams
            .values_mut()
            .map(|stream| &mut stream.timescale);
        for scale in scales.flatten() {
            scale.set_corrections(&corrections);
        }
        self.corrections = Some(corrections);
    }

    fn declare_stream(&mut self, draft: StreamDraft) -> Result<(), MetadataError> {
        let id = draft.id.unwrap_or(0);
        let refuse = |what: String| Err(MetadataError::text(draft.at, what));
        if self.streams.contains_key(&id) {
            return refuse(format!("a second stream class {id}"));
        }
        if self.streams.len() >= MAX_STREAM_CLASSES {
            return refuse(format!("more than {MAX_STREAM_CLASSES} stream classes"));
        }
        if !self.streams.is_empty() && !self.has_stream_ids && !self.is_ctf_2 {
            return refuse("several stream classes, and no packet says of which it is".to_owned());
        }
        let mut stream_slots = Slots::of_stream();
        let (mut context, mut event_header, mut event_context) = (None, None, None);
        let before = self.trace_slots;
        for (scope, root) in [
            (Scope::PacketContext, &draft.packet_context),
            (Scope::EventHeader, &draft.event_header),
            (Scope::CommonContext, &draft.event_context),
        ] {
            let Some(root) = root else { continue };
            let resolved = resolve(
                scope,
                root,
                &mut Roots {
                    packet_header: &mut self.packet_header,
                    packet_context: &mut context,
                    event_header: &mut event_header,
                    event_context: &mut event_context,
                    specific_context: &mut None,
                    trace_slots: &mut self.trace_slots,
                    stream_slots: &mut stream_slots,
                    event_slots: &mut Slots::of_event(),
                    fields_left: &mut self.fields_left,
                    warnings: &mut self.warnings,
                },
            )?;
            match scope {
                Scope::PacketContext => context = Some(resolved),
                Scope::EventHeader => event_header = Some(resolved),
                _ => event_context = Some(resolved),
            }
        }
        // A field of this stream class refers to one of the packet header, which its plan skips so
        // far.
        if self.trace_slots != before {
            self.compile_header_plan();
        }
        let has_event_ids = self.is_ctf_2
            || (event_header.as_deref()).is_some_and(|header| has_role(header, Role::EventClassId));
        let mut stream = StreamClass {
            id,
            has_event_ids,
            name: draft.name,
            clock: StreamClock::None,
            timescale: None,
            unmapped: false,
            packet_context: context,
            event_header,
            event_context,
            context_plan: Plan::default(),
            header_plan: Plan::default(),
            short_header: None,
            event_context_plan: Plan::default(),
            events: Vec::new(),
            dense: Vec::new(),
            sparse: BTreeMap::new(),
            stream_slots,
            slots: stream_slots.needed(),
        };
        stream.compile_plans(self.header_plan.end);
        (stream.clock, stream.unmapped) =
            self.find_clock(&stream, draft.clock.as_ref(), draft.at)?;
        stream.timescale = self.timescale(stream.clock, draft.at)?;
        self.streams.insert(id, stream);
        Ok(())
    }

    /// The stream class of a packet that names none.
    pub(crate) fn stream_without_id(&self) -> Option<&StreamClass> {
        let only = self
            .streams
            .values()
            .next()
            .filter(|_| self.streams.len() == 1);
        only.or_else(|| self.streams.get(&0))
    }

    /// Finds the clock of a stream class' times; also returns whether none of its fields names the
    /// clock.
    fn find_clock(
        &self,
        stream: &StreamClass,
        given: Option<&Arc<str>>,
        at: Position,
    ) -> Result<(StreamClock, bool), MetadataError> {
        let mut moved = MovedClocks::default();
        moved.names.extend(given.cloned());
        moved.merge(&self.header_clocks);
        let roots = [
            &stream.packet_context,
            &stream.event_header,
            &stream.event_context,
        ];
        for root in roots.into_iter().flatten() {
            moved.add(root);
        }
        match (moved.names.as_slice(), self.clocks.as_slice()) {
            ([], _) if !moved.timed => Ok((StreamClock::None, false)),
            // As in babeltrace2: 1 GHz since 1970.
            ([], []) => Ok((StreamClock::Implicit, true)),
            ([], [_]) => Ok((StreamClock::Declared(0), true)),
            ([], _) => Ok((StreamClock::None, true)),
            ([name, other, ..], _) => {
                let what = format!("fields of one stream move the clocks {name} and {other}");
                Err(MetadataError::text(at, what))
            }
            ([name], _) => {
                let place = self.clock_places.get(name).copied();
                let place = place.ok_or_else(|| {
                    MetadataError::text(at, format!("the clock {name} is not declared"))
                })?;
                Ok((StreamClock::Declared(place), false))
            }
        }
    }

    fn timescale(
        &self,
        clock: StreamClock,
        at: Position,
    ) -> Result<Option<Timescale>, MetadataError> {
        let clock = match clock {
            StreamClock::None => return Ok(None),
            StreamClock::Implicit => return Ok(Some(Timescale::UNIX)),
            StreamClock::Declared(place) => self.clocks.get(place),
        };
        let Some(clock) = clock else { return Ok(None) };
        let Some(mut scale) = Timescale::new(clock) else {
            let what = format!("the offset of clock {} is out of range", clock.name);
            return Err(MetadataError::text(at, what));
        };
        if let Some(corrections) = &self.corrections {
            scale.set_corrections(corrections);
        }
        Ok(Some(scale))
    }

    fn declare_event(&mut self, draft: EventDraft) -> Result<(), MetadataError> {
        let refuse = |what: String| Err(MetadataError::text(draft.at, what));
        let name = draft.name.as_deref().unwrap_or("(no name)");
        let stream_id = match (draft.stream_id, self.streams.len()) {
            (Some(id), _) => id,
            (None, 0) => {
                self.declare_stream(StreamDraft::default())?;
                0
            }
            (None, 1) => self.streams.keys().next().copied().unwrap_or(0),
            (None, _) => {
                return refuse(format!(
                    "event class {name} does not say of which stream class"
                ));
            }
        };
        // Taken out of the map, because resolving its fields borrows both trace and stream class.
        let Some(mut stream) = self.streams.remove(&stream_id) else {
            return refuse(format!(
                "event class {name} is of stream class {stream_id}, which is not declared"
            ));
        };
        let declared = self.declare_event_of(&mut stream, &draft, name);
        // Also after an error: the stream class itself is as valid as before.
        self.streams.insert(stream_id, stream);
        declared
    }

    fn declare_event_of(
        &mut self,
        stream: &mut StreamClass,
        draft: &EventDraft,
        name: &str,
    ) -> Result<(), MetadataError> {
        let id = draft.id.unwrap_or(0);
        check_event_id(stream, id, name).map_err(|what| MetadataError::text(draft.at, what))?;
        let mut event_slots = Slots::of_event();
        let before = (self.trace_slots, stream.stream_slots);
        let (mut context, mut payload) = (None, None);
        for (scope, root) in [
            (Scope::SpecificContext, &draft.context),
            (Scope::Payload, &draft.payload),
        ] {
            let Some(root) = root else { continue };
            let resolved = resolve(
                scope,
                root,
                &mut Roots {
                    packet_header: &mut self.packet_header,
                    packet_context: &mut stream.packet_context,
                    event_header: &mut stream.event_header,
                    event_context: &mut stream.event_context,
                    specific_context: &mut context,
                    trace_slots: &mut self.trace_slots,
                    stream_slots: &mut stream.stream_slots,
                    event_slots: &mut event_slots,
                    fields_left: &mut self.fields_left,
                    warnings: &mut self.warnings,
                },
            )?;
            match scope {
                Scope::SpecificContext => context = Some(resolved),
                _ => payload = Some(resolved),
            }
        }
        if self.trace_slots != before.0 {
            self.compile_header_plan();
        }
        // The event refers to a field of a header or context that no plan has read so far.
        if stream.stream_slots != before.1 {
            stream.compile_plans(self.header_plan.end);
            // They begin where the contexts end, of which the new plans may know something else.
            stream.compile_event_plans();
        }
        // Before the class is added, so that one that is refused is not there.
        self.move_clocks(stream, [&context, &payload], draft.at)?;
        stream.slots = stream.slots.max(event_slots.needed());
        let plan = stream.event_plan(context.as_deref(), payload.as_deref());
        stream.add_event(EventClass {
            id,
            ordinal: EventClass::next_ordinal(),
            name: draft.name.clone(),
            log_level: draft.log_level,
            emf_uri: draft.emf_uri.clone(),
            context,
            payload,
            plan,
        });
        Ok(())
    }

    /// Checks that the fields of a new event class move only the clock of its stream class. A
    /// stream class without a clock gets theirs.
    fn move_clocks(
        &self,
        stream: &mut StreamClass,
        roots: [&Option<Arc<Structure>>; 2],
        at: Position,
    ) -> Result<(), MetadataError> {
        let refuse = |what: String| Err(MetadataError::text(at, what));
        let mut moved = MovedClocks::default();
        for root in roots.into_iter().flatten() {
            moved.add(root);
        }
        for name in moved.names {
            let Some(place) = self.clock_places.get(&name).copied() else {
                return refuse(format!("the clock {name} is not declared"));
            };
            match stream.clock {
                StreamClock::Declared(known) if known == place => {}
                StreamClock::None => {
                    stream.clock = StreamClock::Declared(place);
                    stream.unmapped = false;
                    stream.timescale = self.timescale(stream.clock, at)?;
                }
                StreamClock::Declared(_) | StreamClock::Implicit => {
                    return refuse(format!("{name} is not the clock of the stream class"));
                }
            }
        }
        Ok(())
    }
}

/// Whether `stream` may have an event class of this id, and one more at all.
fn check_event_id(stream: &StreamClass, id: u64, name: &str) -> Result<(), String> {
    let of = stream.id;
    if stream.place(id).is_some() {
        Err(format!(
            "event class {name} has the id {id}, which another of stream class {of} has"
        ))
    } else if !stream.events.is_empty() && !stream.has_event_ids {
        Err(format!(
            "several event classes in stream class {of}, and no event says of which it is"
        ))
    } else if stream.events.len() >= MAX_EVENT_CLASSES {
        Err(format!("more than {MAX_EVENT_CLASSES} event classes"))
    } else {
        Ok(())
    }
}
