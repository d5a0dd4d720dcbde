//! The fields of one event, collected before the event begins.
//!
//! `tracing` gives values one by one and without their types in advance, and a `Debug`
//! implementation may take long, panic or write events itself. So values are encoded into a buffer
//! of the thread first, and copied into the ring at once.

use std::cell::Cell;
use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

use crate::format::{FieldType, MAX_FIELDS, MAX_STRING_SIZE};

/// Largest number of fields of a call site; three more may be [our own](EventKind::own_fields).
const MAX_SITE_FIELDS: usize = MAX_FIELDS - 3;

/// A buffer that has grown beyond this number of bytes is not kept for the next event.
const MAX_KEPT_CAPACITY: usize = 256 << 10;

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventKind {
    /// An event of the program.
    Event,
    /// A span was made.
    SpanNew,
    /// A thread has entered a span.
    SpanEnter,
    /// A thread has left a span.
    SpanExit,
    /// Values of a span became known.
    SpanRecord,
    /// A span was closed.
    SpanClose,
}

impl EventKind {
    /// Returns the name of the event class, `None` when the call site has one.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Event => None,
            Self::SpanNew => Some("span:new"),
            Self::SpanEnter => Some("span:enter"),
            Self::SpanExit => Some("span:exit"),
            Self::SpanRecord => Some("span:record"),
            Self::SpanClose => Some("span:close"),
        }
    }

    /// Fields before those of the call site.
    pub(super) const fn own_fields(self) -> &'static [(&'static str, FieldType)] {
        const SPAN: (&str, FieldType) = ("span", FieldType::U64);
        const NAME: (&str, FieldType) = ("name", FieldType::Str);
        const PARENT: (&str, FieldType) = ("parent", FieldType::U64);
        match self {
            Self::Event => &[],
            Self::SpanNew => &[SPAN, NAME, PARENT],
            Self::SpanEnter | Self::SpanExit | Self::SpanRecord | Self::SpanClose => &[SPAN, NAME],
        }
    }
}

/// The encoded fields of one event, and their shape.
#[derive(Debug)]
pub(super) struct FieldBuffer {
    /// Index and type of each field of the call site that has a value.
    fields: [(u8, FieldType); MAX_SITE_FIELDS],
    field_count: usize,
    /// Hash of the kind of the event and of `fields`.
    shape: u64,
    /// The values as they are in the ring.
    bytes: Vec<u8>,
}

thread_local! {
    static BUFFER: Cell<Option<Box<FieldBuffer>>> = const { Cell::new(None) };
}

impl FieldBuffer {
    /// Lends the thread's buffer, emptied. An event inside of another one (from a `Debug`
    /// implementation), or one written while the thread ends, gets a new buffer.
    pub(super) fn with<R>(kind: EventKind, use_buffer: impl FnOnce(&mut Self) -> R) -> R {
        let kept = BUFFER.try_with(Cell::take).ok().flatten();
        let mut buffer = kept.unwrap_or_else(Self::new);
        buffer.bytes.clear();
        buffer.field_count = 0;
        buffer.shape = kind as u64;
        let result = use_buffer(&mut buffer);
        if buffer.bytes.capacity() <= MAX_KEPT_CAPACITY {
            let _ = BUFFER.try_with(|kept| kept.set(Some(buffer)));
        }
        result
    }

    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self {
            fields: [(0, FieldType::U8); MAX_SITE_FIELDS],
            field_count: 0,
            shape: 0,
            bytes: Vec::with_capacity(512),
        })
    }

    /// Returns the number that stands for the kind of the event and for the fields that have
    /// values. Different ones of a call site have the same number with a probability of 2^-64.
    pub(super) fn shape(&self) -> u64 {
        self.shape
    }

    /// Returns the index and type of each field of the call site that has a value.
    pub(super) fn fields(&self) -> &[(u8, FieldType)] {
        self.fields.get(..self.field_count).unwrap_or_default()
    }

    /// Returns the bytes of the encoded fields.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Puts one of the [own fields](EventKind::own_fields).
    pub(super) fn put_own_number(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Puts one of the [own fields](EventKind::own_fields).
    pub(super) fn put_own_text(&mut self, text: &str) {
        let kept = text.floor_char_boundary(MAX_STRING_SIZE);
        self.put_bytes(text.as_bytes().get(..kept).unwrap_or_default());
    }

    /// Puts the number of bytes, and then at most [`MAX_STRING_SIZE`] of them.
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).unwrap_or_default();
        self.bytes.reserve(size_of_val(&length) + bytes.len());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// Notes the type of a value that is about to be put. False when there are too many: the field
    /// is left out.
    #[inline]
    fn begin_field(&mut self, field: &Field, kind: FieldType) -> bool {
        let place = self.fields.get_mut(self.field_count);
        let (Some(place), Ok(index)) = (place, u8::try_from(field.index())) else {
            return false;
        };
        *place = (index, kind);
        self.field_count += 1;
        let number = u64::from(index) << 4 | u64::from(kind.code());
        // A multiplicative hash as of FxHash.
        self.shape = (self.shape.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
        true
    }

    #[inline]
    fn put_fixed<const N: usize>(&mut self, field: &Field, kind: FieldType, value: [u8; N]) {
        if self.begin_field(field, kind) {
            self.bytes.extend_from_slice(&value);
        }
    }

    /// Puts what `write` writes, cut to the size of a string.
    fn put_text(&mut self, write: impl FnOnce(&mut TextWriter<'_>) -> fmt::Result) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let mut writer = TextWriter {
            bytes: &mut self.bytes,
            room: MAX_STRING_SIZE,
            is_cut: false,
        };
        // An implementation of `Debug` that fails has written as much as it could.
        let _ = write(&mut writer);
        let length = MAX_STRING_SIZE - writer.room;
        self.set_length(start, length);
    }

    fn set_length(&mut self, start: usize, length: usize) {
        let length = u16::try_from(length).unwrap_or_default().to_le_bytes();
        if let Some(place) = self.bytes.get_mut(start..start + length.len()) {
            place.copy_from_slice(&length);
        }
    }
}

/// Appends text of a bounded size.
struct TextWriter<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
    /// Something was left out: nothing can follow.
    is_cut: bool,
}

impl Write for TextWriter<'_> {
    /// Leaves out what does not fit, without an error: some implementations of `Debug` panic on
    /// errors.
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if !self.is_cut {
            let kept = text.floor_char_boundary(self.room);
            self.is_cut = kept < text.len();
            self.bytes
                .extend_from_slice(text.as_bytes().get(..kept).unwrap_or_default());
            self.room -= kept;
        }
        Ok(())
    }
}

impl Visit for FieldBuffer {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put_fixed(field, FieldType::F64, value.to_le_bytes());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_fixed(field, FieldType::I64, value.to_le_bytes());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_fixed(field, FieldType::U64, value.to_le_bytes());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_fixed(field, FieldType::Bool, [u8::from(value)]);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if self.begin_field(field, FieldType::Str) {
            let kept = value.floor_char_boundary(MAX_STRING_SIZE);
            self.put_bytes(value.as_bytes().get(..kept).unwrap_or_default());
        }
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        if self.begin_field(field, FieldType::Bytes) {
            self.put_bytes(value.get(..MAX_STRING_SIZE).unwrap_or(value));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.begin_field(field, FieldType::Str) {
            self.put_text(|target| write!(target, "{value:?}"));
        }
    }
}
