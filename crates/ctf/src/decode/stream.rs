//! Decodes the packets of one data stream into events.

use super::error::{DecodeError, FieldError};
use super::event::Event;
use super::found::{FoundEvent, FoundEvents};
use super::losses::Losses;
use super::packet::PacketHead;
use super::run::{Cursor, DecodeState};
use crate::metadata::{EventClass, StreamClass, Trace};
use crate::model::Role;
use crate::short_header::ShortHeader;

/// Decodes one data stream. The caller keeps the bytes of the packet and passes them to each call:
/// first [`begin_packet`](Self::begin_packet), then [`advance`](Self::advance) until it returns
/// false. After each call that returned true, [`event`](Self::event) returns the event.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    state: DecodeState,
    head: Option<PacketHead>,
    /// The counters of the packet before `head`.
    losses: Losses,
    /// The number of packets begun so far.
    packets: u64,
    /// The size of the packet in bytes, whether or not all of them have been given.
    packet_bytes: u64,
    /// The position of the next event, in bits from the first of the given bytes.
    position: u64,
    /// The end of the packet's content, in bits from the first of the given bytes.
    content_end: u64,
    /// The number of bits after the packet's head that have been removed (see
    /// [`remove_bytes`](Self::remove_bytes)). They are not counted in `position`, `content_end` and
    /// [`FoundEvent::fields_at`].
    shift: u64,
    /// The event that was found last.
    current: Option<FoundEvent>,
}

/// The class of an event that was found.
#[derive(Debug, Clone, Copy)]
struct FoundClass<'t> {
    id: u64,
    /// The place in the list of the stream class.
    place: usize,
    class: &'t EventClass,
    /// The size of its events after their header, if that is fixed.
    bits: Option<u64>,
}

impl<'t> FoundClass<'t> {
    #[inline]
    fn new(stream: &'t StreamClass, id: u64) -> Option<Self> {
        let place = stream.place(id)?;
        let class = stream.events.get(place)?;
        let context = stream.event_context_plan.fixed_bits();
        let bits = context.zip(class.plan.fixed_bits());
        Some(Self {
            id,
            place,
            class,
            bits: bits.and_then(|(context, fields)| context.checked_add(fields)),
        })
    }
}

/// The result of [`StreamDecoder::advance_part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartStep {
    /// An event was found, and all of its bytes have been given.
    Event,
    /// The packet has no further event.
    PacketEnd,
    /// The given bytes end within the next event: more bytes of the packet must be given.
    NeedMoreBytes,
}

impl StreamDecoder {
    /// A decoder for a stream of which no packet has been begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a packet, of which `bytes` are all bytes.
    ///
    /// # Errors
    /// If `bytes` are not a packet of `trace`, or if its sizes contradict each other or `bytes`.
    pub fn begin_packet(&mut self, trace: &Trace, bytes: &[u8]) -> Result<PacketHead, DecodeError> {
        self.begin_part(trace, bytes, bytes.len() as u64)
    }

    /// Begins a packet of `size` bytes, of which `bytes` are the first. All of the packet's header
    /// and context must be among them; its events are found by
    /// [`advance_part`](Self::advance_part).
    ///
    /// # Errors
    /// If `bytes` do not begin with a packet of `trace`, if its sizes contradict each other or
    /// `size`, or if `bytes` end within header or context ([`is_cut`](DecodeError::is_cut)).
    pub fn begin_part(
        &mut self,
        trace: &Trace,
        bytes: &[u8],
        size: u64,
    ) -> Result<PacketHead, DecodeError> {
        // First of all, so that after an error `advance` does not go on with the packet before.
        self.current = None;
        self.head = None;
        let checkpoint = self.state.checkpoint();
        let head = match self.read_head(trace, bytes, size) {
            Ok(head) => head,
            Err(error) => {
                // The caller may try again with more bytes. A narrow `timestamp_begin` that was
                // read already would then count from itself, as if the clock had wrapped around.
                self.state.restore(&checkpoint);
                return Err(error);
            }
        };
        self.losses.advance_to(&head);
        self.packets += 1;
        self.packet_bytes = size;
        self.position = head.events_at;
        self.content_end = head.content_bits;
        self.shift = 0;
        self.head = Some(head);
        Ok(head)
    }

    fn read_head(
        &mut self,
        trace: &Trace,
        bytes: &[u8],
        size: u64,
    ) -> Result<PacketHead, DecodeError> {
        let (head, _) = PacketHead::decode(trace, bytes, size, &mut self.state)?;
        let here = bits(bytes);
        if head.events_at > here {
            // An array is skipped without reading its bytes, some of which may not have been given.
            let what = FieldError::PastEnd {
                bits: head.events_at,
                end: here,
            };
            return Err(DecodeError::Field { at: 0, what });
        }
        Ok(head)
    }

    /// Finds the next event, as [`advance`](Self::advance) does, in a packet that was begun by
    /// [`begin_part`](Self::begin_part). `bytes` are the packet's first bytes, as many as the
    /// caller has, without those that were removed by [`remove_bytes`](Self::remove_bytes).
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn advance_part(&mut self, trace: &Trace, bytes: &[u8]) -> Result<PartStep, DecodeError> {
        let (head, position) = (self.head, self.position);
        let checkpoint = self.state.checkpoint();
        // Once all of the content has been given, more bytes would not mend an error.
        let is_all_there = bits(bytes) >= self.content_end;
        match self.advance(trace, bytes) {
            // An event may be found whose skipped bytes have not all been given.
            Ok(true) if self.position <= bits(bytes) => return Ok(PartStep::Event),
            Ok(false) => return Ok(PartStep::PacketEnd),
            Err(error) if is_all_there || !error.is_cut() => {
                return Err(error.shifted_by(self.shift));
            }
            Ok(true) | Err(_) => {}
        }
        // A plan cannot be resumed in the middle: with more bytes the event is decoded from its
        // beginning.
        self.state.restore(&checkpoint);
        (self.head, self.position, self.current) = (head, position, None);
        Ok(PartStep::NeedMoreBytes)
    }

    /// The number of bytes of the packet's header and context, which must not be removed.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        self.head.map_or(0, |head| head.events_at.div_ceil(8))
    }

    /// The number of given bytes before the next event.
    #[must_use]
    pub fn passed_bytes(&self) -> u64 {
        self.position / 8
    }

    /// The number of given bytes that hold the packet's head and the event that was found last.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.position.div_ceil(8)
    }

    /// Records that the caller has removed this number of bytes from after the packet's
    /// [head](Self::head_bytes), all of them [before the next event](Self::passed_bytes). The event
    /// that was found last can no longer be shown.
    pub fn remove_bytes(&mut self, bytes: u64) {
        // Saturating: a caller that removes too much gets errors or wrong values, but no panic.
        let bits = bytes.saturating_mul(8);
        self.current = None;
        self.position = self.position.saturating_sub(bits);
        self.content_end = self.content_end.saturating_sub(bits);
        self.shift = self.shift.saturating_add(bits);
    }

    /// The losses before the packet that was begun last.
    #[must_use]
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The head of the packet that was begun last; `None` before the first packet, after the last
    /// event, and after an error.
    #[must_use]
    pub fn packet(&self) -> Option<&PacketHead> {
        self.head.as_ref()
    }

    /// Finds the next event. Returns false if the packet has no further event.
    ///
    /// An event that is found has been checked to its end. `bytes` and `trace` are those of
    /// [`begin_packet`](Self::begin_packet), where `trace` may have grown.
    ///
    /// # Errors
    /// If the next bits are not an event of `trace`. The packet cannot be decoded further.
    #[inline]
    pub fn advance(&mut self, trace: &Trace, bytes: &[u8]) -> Result<bool, DecodeError> {
        self.current = None;
        let Some(head) = &self.head else {
            return Ok(false);
        };
        if self.position >= self.content_end {
            self.end_packet();
            return Ok(false);
        }
        let Some(stream) = trace.streams.get(&head.stream_class) else {
            let id = head.stream_class;
            return Err(DecodeError::UnknownStreamClass { id });
        };
        let end = self.content_end;
        if self.state.shared_slots != trace.shared_slots(stream) {
            self.catch_up(trace, bytes)?;
        }
        self.state.need_slots(stream.slots);
        match self.find_event(stream, bytes, end) {
            Ok(current) => {
                self.current = Some(current);
                Ok(true)
            }
            Err(error) => {
                self.head = None;
                Err(error)
            }
        }
    }

    /// Finds the next events of the packet, at most `max`, and replaces those in `found` by them.
    /// Returns false if the packet has no further event after them. It finds what
    /// [`advance`](Self::advance) would, one by one; in the rare traces whose events have to be
    /// shown in the order in which they are found, it finds one at a time.
    ///
    /// # Errors
    /// As [`advance`](Self::advance). The events before the error are in `found`.
    pub fn find_events(
        &mut self,
        trace: &Trace,
        bytes: &[u8],
        max: usize,
        found: &mut FoundEvents,
    ) -> Result<bool, DecodeError> {
        found.events.clear();
        self.current = None;
        let Some(head) = self.head else {
            return Ok(false);
        };
        let Some(stream) = trace.streams.get(&head.stream_class) else {
            let id = head.stream_class;
            return Err(DecodeError::UnknownStreamClass { id });
        };
        if self.state.shared_slots != trace.shared_slots(stream) {
            self.catch_up(trace, bytes)?;
        }
        let end = self.content_end;
        let max = if trace.has_distant_references() {
            max.min(1)
        } else {
            max
        };
        let mut failed = None;
        self.state.need_slots(stream.slots);
        while found.events.len() < max && self.position < end {
            let short = stream.short_header.as_ref();
            let short = short.map_or(Ok(()), |header| {
                self.find_short_events(stream, header, bytes, max, &mut found.events)
            });
            if short.is_ok() && (found.events.len() >= max || self.position >= end) {
                break;
            }
            match short.and_then(|()| self.find_event(stream, bytes, end)) {
                Ok(event) => found.events.push(event),
                Err(error) => {
                    self.head = None;
                    failed = Some(error);
                    break;
                }
            }
        }
        // Also before an error is returned: the caller may show the events in front of it.
        self.set_packet(&head, found);
        if let Some(error) = failed {
            return Err(error);
        }
        let is_end = self.position >= end;
        if is_end {
            self.end_packet();
        }
        Ok(!is_end)
    }

    /// Replaces the events in `found` by the one that [`advance`](Self::advance) or
    /// [`advance_part`](Self::advance_part) found last, if any.
    pub fn copy_event(&self, found: &mut FoundEvents) {
        found.events.clear();
        if let (Some(event), Some(head)) = (self.current, self.head) {
            found.events.push(event);
            self.set_packet(&head, found);
        }
    }

    fn set_packet(&self, head: &PacketHead, found: &mut FoundEvents) {
        found.stream_class = head.stream_class;
        found.end = self.content_end;
        found.context_at = head.context_at;
        found.shift = self.shift;
        found.packet = self.packets;
        // Copied, because the caller may show the events while the decoder overwrites its own
        // slots. `clone_from` takes no new memory for each batch.
        found.slots.clone_from(&self.state.slots);
    }

    /// Decodes the packet's header and context again, because metadata that arrived since refers to
    /// fields in them.
    #[cold]
    fn catch_up(&mut self, trace: &Trace, bytes: &[u8]) -> Result<(), DecodeError> {
        // Decoding `timestamp_begin` again moves the clock back.
        let cycles = self.state.cycles;
        PacketHead::decode(trace, bytes, self.packet_bytes, &mut self.state)?;
        self.state.cycles = cycles;
        Ok(())
    }

    /// Finds the next events, as many as have a short header, at most until there are `max`. What
    /// else follows, also an unknown event, is left to [`find_event`](Self::find_event).
    fn find_short_events(
        &mut self,
        stream: &StreamClass,
        header: &ShortHeader,
        bytes: &[u8],
        max: usize,
        found: &mut Vec<FoundEvent>,
    ) -> Result<(), DecodeError> {
        // Position and clock are in registers as long as events have a fixed size.
        let mut cursor = Cursor {
            bytes,
            position: self.position,
            end: self.content_end,
            shift: self.shift,
        };
        let mut cycles = self.state.cycles;
        // Most events are of the same class as the one before: a processor that guesses so need not
        // wait for the lookup of where the event ends. For the others, what has been looked up is
        // kept by the low bits of the id.
        let mut last = None;
        let mut known = [None; 16];
        while found.len() < max {
            let Some(values) = header.read(&cursor) else {
                break;
            };
            let is_class = |class: &FoundClass<'_>| class.id == values.id;
            let class = match last.filter(is_class) {
                Some(class) => class,
                None => {
                    // Tracers number event classes from 0, so that classes of low ids do not share
                    // a place.
                    let place = usize::from(values.id.to_le_bytes()[0]) % known.len();
                    let Some(known) = known.get_mut(place) else {
                        break;
                    };
                    let class = known.filter(is_class);
                    let Some(class) = class.or_else(|| FoundClass::new(stream, values.id)) else {
                        break;
                    };
                    *known = Some(class);
                    class
                }
            };
            last = Some(class);
            let begin = cursor.position;
            let after = header.advance_clock(cycles, values);
            cursor.position = match class.bits {
                // No underflow: `read` refuses a header that passes the end.
                Some(bits) if bits <= cursor.end - values.end => {
                    cycles = after;
                    values.end + bits
                }
                _ => {
                    // A copy, because a cursor that is lent to another function would leave its
                    // register.
                    let mut cursor = cursor;
                    header.pass(values, after, &mut cursor, &mut self.state);
                    self.position = begin;
                    self.pass_fields(stream, class.class, &mut cursor, begin)?;
                    cycles = self.state.cycles;
                    cursor.position
                }
            };
            found.push(FoundEvent {
                class: class.place,
                fields_at: values.end,
                cycles: after,
            });
        }
        // Once for all: an event of fixed size reads no slot, and `pass` stores the id of any
        // other.
        if let Some(last) = last {
            header.store_id(last.id, &self.state);
        }
        (self.position, self.state.cycles) = (cursor.position, cycles);
        Ok(())
    }

    /// Moves to the end of the fields of an event that begins at `begin`, and whose header has been
    /// passed.
    #[inline]
    fn pass_fields(
        &mut self,
        stream: &StreamClass,
        class: &EventClass,
        cursor: &mut Cursor<'_>,
        begin: u64,
    ) -> Result<(), DecodeError> {
        for plan in [&stream.event_context_plan, &class.plan] {
            plan.run(cursor, &mut self.state)?;
        }
        let end = cursor.end;
        // Aligning checks no end, so that a structure may begin after the content.
        if cursor.position > end {
            let bits = cursor.position - begin;
            return Err(cursor.error(FieldError::PastEnd { bits, end }));
        }
        // Such an event would be found again without end; babeltrace2 2.0.4 prints it forever.
        if cursor.position == begin {
            return Err(cursor.error(FieldError::EmptyEvent));
        }
        Ok(())
    }

    fn find_event(
        &mut self,
        stream: &StreamClass,
        bytes: &[u8],
        end: u64,
    ) -> Result<FoundEvent, DecodeError> {
        let begin = self.position;
        let mut cursor = Cursor {
            bytes,
            position: begin,
            end,
            shift: self.shift,
        };
        let short = stream.short_header.as_ref();
        let id = match short.and_then(|header| Some((header, header.read(&cursor)?))) {
            Some((header, values)) => {
                let cycles = header.advance_clock(self.state.cycles, values);
                header.pass(values, cycles, &mut cursor, &mut self.state);
                Some(values.id)
            }
            None => {
                stream.header_plan.run(&mut cursor, &mut self.state)?;
                self.state.roles.value(Role::EventClassId)
            }
        };
        // Taken here: a field of a context or of the payload moves the clock for later events only.
        let cycles = self.state.cycles;
        let place = id.map_or_else(|| stream.place_without_id(), |id| stream.place(id));
        let Some((place, class)) = place.and_then(|place| Some((place, stream.events.get(place)?)))
        else {
            return Err(DecodeError::UnknownEventClass {
                at: begin,
                id: id.unwrap_or(0),
                stream_class: stream.id,
            });
        };
        let fields_at = cursor.position;
        self.pass_fields(stream, class, &mut cursor, begin)?;
        self.position = cursor.position;
        Ok(FoundEvent {
            class: place,
            fields_at,
            cycles,
        })
    }

    fn end_packet(&mut self) {
        // The next event may have a narrow timestamp, which counts from the end of this packet.
        if let Some(end) = self.head.take().and_then(|head| head.end) {
            self.state.cycles = end;
        }
    }

    /// The event that [`advance`](Self::advance) found last; `None` if it found none.
    #[inline]
    #[must_use]
    pub fn event<'a>(&'a self, trace: &'a Trace, bytes: &'a [u8]) -> Option<Event<'a>> {
        let current = self.current.as_ref()?;
        let head = self.head.as_ref()?;
        let stream = trace.streams.get(&head.stream_class)?;
        Some(Event {
            trace,
            stream,
            class: stream.events.get(current.class)?,
            cycles: current.cycles,
            bytes,
            end: self.content_end,
            context_at: head.context_at,
            fields_at: current.fields_at,
            shift: self.shift,
            slots: &self.state.slots,
            packet: self.packets,
        })
    }

    /// The clock value of the event that was found last, else that of the stream, in cycles.
    #[inline]
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.current
            .map_or(self.state.cycles, |current| current.cycles)
    }
}

fn bits(bytes: &[u8]) -> u64 {
    // No slice has 2^61 bytes: the product does not overflow.
    bytes.len() as u64 * 8
}
