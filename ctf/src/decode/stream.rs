//! Decodes the packets of one data stream into events.

use super::error::{DecodeError, FieldError};
use super::event::Event;
use super::losses::Losses;
use super::packet::PacketHead;
use super::run::{Cursor, DecodeState};
use crate::metadata::{StreamClass, Trace};
use crate::model::Role;

/// Decodes one data stream. The caller keeps the bytes of its packets, and passes them to each call: first [`begin_packet`](Self::begin_packet), then [`advance`](Self::advance) until it says
/// that there is no further event; after each that there is, [`event`](Self::event) shows it.
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
    /// The number of bits behind the packet's head that have been removed (see
    /// [`remove_bytes`](Self::remove_bytes)). They are not counted in `position`, `content_end` and
    /// [`Current::fields_at`].
    shift: u64,
    current: Option<Current>,
}

/// The event that was found last.
#[derive(Debug, Clone, Copy)]
struct Current {
    /// Place in the list of its stream class.
    class: usize,
    /// The position of the event's contexts, in bits from the first of the given bytes.
    fields_at: u64,
    cycles: u64,
}

/// The result of [`StreamDecoder::advance_part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartStep {
    /// An event was found, and all of it is there.
    Event,
    /// The packet has no further event.
    PacketEnd,
    /// The next event is not all there: more bytes of the packet must be given.
    NeedMoreBytes,
}

impl StreamDecoder {
    /// A decoder for a stream of which no packet has been begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a packet: the first of `bytes` is its first, and all of it is there.
    ///
    /// # Errors
    /// If this is no packet of `trace`, or if its sizes contradict each other or `bytes`.
    pub fn begin_packet(&mut self, trace: &Trace, bytes: &[u8]) -> Result<PacketHead, DecodeError> {
        self.begin_part(trace, bytes, bytes.len() as u64)
    }

    /// Begins a packet of `size` bytes, of which `bytes` are the first. All of the packet's header and
    /// context must be among them; its events are found by [`advance_part`](Self::advance_part).
    ///
    /// # Errors
    /// If this is no packet of `trace`, if its sizes contradict each other or `size`, or if header and context
    /// are not all in `bytes`, which [`is_cut`](DecodeError::is_cut) tells.
    pub fn begin_part(
        &mut self,
        trace: &Trace,
        bytes: &[u8],
        size: u64,
    ) -> Result<PacketHead, DecodeError> {
        self.current = None;
        self.head = None;
        let (head, _) = PacketHead::decode(trace, bytes, size, &mut self.state)?;
        let here = bits(bytes);
        if head.events_at > here {
            // An array may have been passed without a look at its bytes.
            let what = FieldError::PastEnd {
                bits: head.events_at,
                end: here,
            };
            return Err(DecodeError::Field { at: 0, what });
        }
        self.losses.advance_to(&head);
        self.packets += 1;
        self.packet_bytes = size;
        self.position = head.events_at;
        self.content_end = head.content_bits;
        self.shift = 0;
        self.head = Some(head);
        Ok(head)
    }

    /// Finds the next event, as [`advance`](Self::advance) does, in a packet that was begun by
    /// [`begin_part`](Self::begin_part). `bytes` are the packet's first bytes, as many as there are,
    /// without those that were removed by [`remove_bytes`](Self::remove_bytes).
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn advance_part(&mut self, trace: &Trace, bytes: &[u8]) -> Result<PartStep, DecodeError> {
        let (head, position) = (self.head, self.position);
        let checkpoint = self.state.checkpoint();
        let is_all_there = bits(bytes) >= self.content_end;
        match self.advance(trace, bytes) {
            Ok(true) if self.position <= bits(bytes) => return Ok(PartStep::Event),
            Ok(false) => return Ok(PartStep::PacketEnd),
            Err(error) if is_all_there || !error.may_need_more_bytes() => {
                return Err(error.shifted_by(self.shift));
            }
            Ok(true) | Err(_) => {}
        }
        self.state.restore(&checkpoint);
        (self.head, self.position, self.current) = (head, position, None);
        Ok(PartStep::NeedMoreBytes)
    }

    /// The number of bytes of the packet's header and context, which must not be removed.
    #[must_use]
    pub fn head_bytes(&self) -> u64 {
        self.head.map_or(0, |head| head.events_at.div_ceil(8))
    }

    /// The number of given bytes that come before the next event.
    #[must_use]
    pub fn passed_bytes(&self) -> u64 {
        self.position / 8
    }

    /// The number of given bytes that hold the packet's head and the event that was found last.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.position.div_ceil(8)
    }

    /// Says that the caller has removed so many bytes from behind the packet's
    /// [head](Self::head_bytes), of those that come [before the next event](Self::passed_bytes). The
    /// event that was found last cannot be shown any more.
    pub fn remove_bytes(&mut self, bytes: u64) {
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

    /// The head of the packet that was begun last; `None` before the first packet, behind the last event,
    /// and after an error.
    #[must_use]
    pub fn packet(&self) -> Option<&PacketHead> {
        self.head.as_ref()
    }

    /// Finds the next event. False: the packet has no further event.
    ///
    /// All of the event has been checked then. `bytes` and `trace` are those of
    /// [`begin_packet`](Self::begin_packet), where `trace` may have grown.
    ///
    /// # Errors
    /// If there is something else than an event of `trace`. The packet cannot be decoded further.
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

    /// Decodes the packet's header and context again, because metadata that has come since refers to fields
    /// in them.
    #[cold]
    fn catch_up(&mut self, trace: &Trace, bytes: &[u8]) -> Result<(), DecodeError> {
        let cycles = self.state.cycles;
        PacketHead::decode(trace, bytes, self.packet_bytes, &mut self.state)?;
        self.state.cycles = cycles;
        Ok(())
    }

    #[inline]
    fn find_event(
        &mut self,
        stream: &StreamClass,
        bytes: &[u8],
        end: u64,
    ) -> Result<Current, DecodeError> {
        let begin = self.position;
        let mut cursor = Cursor {
            bytes,
            position: begin,
            end,
            shift: self.shift,
        };
        let failed = |cursor: &Cursor<'_>, what| DecodeError::Field {
            at: cursor.position,
            what,
        };
        stream
            .header_plan
            .run(&mut cursor, &mut self.state)
            .map_err(|what| failed(&cursor, what))?;
        let cycles = self.state.cycles;
        let place = match self.state.roles.get(Role::EventClassId) {
            Some((id, _)) => stream.place(id),
            None if stream.events.is_empty() => None,
            None => Some(0),
        };
        let Some((place, class)) = place.and_then(|place| Some((place, stream.events.get(place)?)))
        else {
            return Err(DecodeError::UnknownEventClass {
                at: begin,
                id: self
                    .state
                    .roles
                    .get(Role::EventClassId)
                    .map_or(0, |(id, _)| id),
                stream_class: stream.id,
            });
        };
        self.state.need_slots(stream.slots);
        let fields_at = cursor.position;
        for plan in [&stream.event_context_plan, &class.plan] {
            plan.run(&mut cursor, &mut self.state)
                .map_err(|what| failed(&cursor, what))?;
        }
        if cursor.position > end {
            let bits = cursor.position - begin;
            return Err(failed(&cursor, FieldError::PastEnd { bits, end }));
        }
        if cursor.position == begin {
            return Err(failed(&cursor, FieldError::EmptyEvent));
        }
        self.position = cursor.position;
        Ok(Current {
            class: place,
            fields_at,
            cycles,
        })
    }

    fn end_packet(&mut self) {
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

    /// The clock value of the event that was found last, or where the stream stands.
    #[inline]
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.current
            .map_or(self.state.cycles, |current| current.cycles)
    }
}

fn bits(bytes: &[u8]) -> u64 {
    bytes.len() as u64 * 8
}
