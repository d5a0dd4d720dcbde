//! An event, borrowed from its packet.

use std::cell::Cell;

use super::error::FieldError;
use super::fields::Fields;
use super::run::Cursor;
use super::visit::Visitor;
use super::walk::Walk;
use crate::clock::Timescale;
use crate::metadata::{EventClass, StreamClass, Trace};
use crate::model::Scope;

/// One event, borrowed from its packet, its metadata and its decoder. Nothing is copied.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) stream: &'a StreamClass,
    pub(crate) class: &'a EventClass,
    pub(crate) cycles: u64,
    pub(crate) bytes: &'a [u8],
    /// The end of the packet's content, in bits from the first of `bytes`.
    pub(crate) end: u64,
    pub(crate) context_at: u64,
    pub(crate) fields_at: u64,
    /// The number of bits between the packet's context and the event that are not in `bytes`.
    pub(crate) shift: u64,
    pub(crate) slots: &'a [Cell<u64>],
    pub(crate) packet: u64,
}

impl<'a> Event<'a> {
    /// The metadata of the event's trace.
    #[must_use]
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The stream class of the event.
    #[must_use]
    pub fn stream_class(&self) -> &'a StreamClass {
        self.stream
    }

    /// The event class of the event.
    #[must_use]
    pub fn class(&self) -> &'a EventClass {
        self.class
    }

    /// The time of the event in cycles of the stream's clock; 0 or the last known value if events
    /// have no time.
    #[must_use]
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// The time of the event in nanoseconds since the clock's origin, or since the [far
    /// seconds](Self::far_seconds) after it; `None` if the stream has no clock, or if the time is
    /// more than 292 years.
    #[inline]
    #[must_use]
    pub fn time(&self) -> Option<i64> {
        self.stream.timescale.as_ref()?.nanoseconds(self.cycles)
    }

    /// By how much the time of the event may be wrong, in nanoseconds; `None` if nothing is known
    /// of that, as where times are not corrected.
    #[must_use]
    pub fn time_error(&self) -> Option<u64> {
        self.stream.timescale.as_ref()?.error(self.cycles)
    }

    /// The time of the event in nanoseconds since the clock's origin, however far that is.
    #[must_use]
    pub fn exact_time(&self) -> Option<i128> {
        // `i128`, because 10^9 times more than 292 years in seconds is more than an `i64` holds.
        let far = i128::from(self.far_seconds()) * 1_000_000_000;
        Some(far + i128::from(self.time()?))
    }

    /// The seconds from the clock's origin to where the [time](Self::time) of the event is counted
    /// from: 0 unless the clock's zero is more than 292 years from the origin.
    #[inline]
    #[must_use]
    pub fn far_seconds(&self) -> i64 {
        self.stream
            .timescale
            .as_ref()
            .map_or(0, Timescale::far_seconds)
    }

    /// Shows all that is visible: the packet's context, the common and the event's own context, and
    /// the payload.
    ///
    /// # Errors
    /// If the bytes are not those that were decoded.
    #[inline]
    pub fn visit<V: Visitor>(&self, visitor: &mut V) -> Result<(), FieldError> {
        self.visit_packet_context(visitor)?;
        self.visit_fields(visitor)
    }

    /// Shows what is visible of the packet's context.
    ///
    /// # Errors
    /// If the bytes are not those that were decoded.
    pub fn visit_packet_context<V: Visitor>(&self, visitor: &mut V) -> Result<(), FieldError> {
        let Some(context) = &self.stream.packet_context else {
            return Ok(());
        };
        if context.is_hidden() {
            return Ok(());
        }
        // No shift: the caller may remove bytes after the packet's head only.
        let mut walk = self.walk(self.context_at, 0, visitor);
        walk.visit_scope(Scope::PacketContext, context)
    }

    /// Shows what is visible of the event itself.
    ///
    /// # Errors
    /// If the bytes are not those that were decoded.
    pub fn visit_fields<V: Visitor>(&self, visitor: &mut V) -> Result<(), FieldError> {
        let mut walk = self.walk(self.fields_at, self.shift, visitor);
        self.walk_contexts(&mut walk)?;
        match &self.class.payload {
            Some(payload) => walk.visit_scope(Scope::Payload, payload),
            None => Ok(()),
        }
    }

    /// Shows what is visible of the common and the event's own context, and nothing of the payload.
    ///
    /// # Errors
    /// If the bytes are not those that were decoded.
    pub fn visit_contexts<V: Visitor>(&self, visitor: &mut V) -> Result<(), FieldError> {
        self.walk_contexts(&mut self.walk(self.fields_at, self.shift, visitor))
    }

    fn walk_contexts<V: Visitor>(&self, walk: &mut Walk<'_, 'a, V>) -> Result<(), FieldError> {
        for (scope, root) in [
            (Scope::CommonContext, &self.stream.event_context),
            (Scope::SpecificContext, &self.class.context),
        ] {
            if let Some(structure) = root {
                walk.visit_scope(scope, structure)?;
            }
        }
        Ok(())
    }

    /// The number of the event's packet among those that the decoder has begun, from 1.
    #[inline]
    #[must_use]
    pub fn packet(&self) -> u64 {
        self.packet
    }

    /// The fields of the packet's context, one by one.
    #[must_use]
    pub fn packet_fields(&self) -> Fields<'a> {
        self.fields_at(self.context_at, 0)
    }

    /// The fields of the event, one by one: of the common context, of its own context, of the
    /// payload. Each is a structure that begins with its alignment.
    #[inline]
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        self.fields_at(self.fields_at, self.shift)
    }

    #[inline]
    fn fields_at(&self, position: u64, shift: u64) -> Fields<'a> {
        Fields {
            cursor: self.cursor(position, shift),
            slots: self.slots,
        }
    }

    fn walk<'w, V>(&self, position: u64, shift: u64, visitor: &'w mut V) -> Walk<'w, 'a, V>
    where
        'a: 'w,
    {
        Walk {
            cursor: self.cursor(position, shift),
            slots: self.slots,
            visitor,
        }
    }

    #[inline]
    fn cursor(&self, position: u64, shift: u64) -> Cursor<'a> {
        Cursor {
            bytes: self.bytes,
            position,
            end: self.end,
            shift,
        }
    }
}
