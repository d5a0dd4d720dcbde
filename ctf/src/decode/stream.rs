//! One data stream: its packets into events, one after the other.

use super::error::{DecodeError, FieldError};
use super::event::Event;
use super::losses::Losses;
use super::packet::PacketHead;
use super::run::{Cursor, State};
use crate::metadata::{StreamClass, Trace};
use crate::model::Role;

/// Decodes one data stream. The bytes of its packets stay with the caller, who gives them to each
/// call: first [`begin_packet`](Self::begin_packet), then [`advance`](Self::advance) until it says
/// that there is no further event; after each that there is, [`event`](Self::event) shows it.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    state: State,
    head: Option<PacketHead>,
    /// The one before `head`.
    losses: Losses,
    /// Packets begun so far.
    packets: u64,
    /// Where the next event begins.
    position: u64,
    current: Option<Current>,
}

/// The event that was found last.
#[derive(Debug, Clone, Copy)]
struct Current {
    /// Place in the list of its stream class.
    class: usize,
    /// Where its contexts begin.
    fields_at: u64,
    cycles: u64,
}

impl StreamDecoder {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a packet: the first of `bytes` is its first, and all of it is there.
    ///
    /// # Errors
    /// If this is no packet of `trace`, or if its sizes cannot be.
    pub fn begin_packet(&mut self, trace: &Trace, bytes: &[u8]) -> Result<PacketHead, DecodeError> {
        self.current = None;
        self.head = None;
        let (head, _) = PacketHead::decode(trace, bytes, bytes.len() as u64, &mut self.state)?;
        self.losses.pass(&head);
        self.packets += 1;
        self.position = head.events_at;
        self.head = Some(head);
        Ok(head)
    }

    /// What was lost before the packet that was begun last.
    #[must_use]
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The packet that was begun last.
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
        if self.position >= head.content_bits {
            self.end_packet();
            return Ok(false);
        }
        let Some(stream) = trace.streams.get(&head.stream_class) else {
            let id = head.stream_class;
            return Err(DecodeError::UnknownStreamClass { id });
        };
        let end = head.content_bits;
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

    /// Keeps what the packet's header and context say that nobody referred to when it began.
    #[cold]
    fn catch_up(&mut self, trace: &Trace, bytes: &[u8]) -> Result<(), DecodeError> {
        let cycles = self.state.cycles;
        PacketHead::decode(trace, bytes, bytes.len() as u64, &mut self.state)?;
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

    /// The event that [`advance`](Self::advance) found last.
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
            end: head.content_bits,
            context_at: head.context_at,
            fields_at: current.fields_at,
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
