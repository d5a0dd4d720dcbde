//! The library for C: call sites and events as the functions in `c_api/ffi.rs` use them.
//! `crates/trace-ring/include/trace_ring.h`
//! says what a program may rely on.

mod ffi;

use crate::format::{FieldType, MAX_FIELDS, MAX_STRING_SIZE};
use crate::producer::count_lost_without_ring;
use crate::{CallSite, EventWriter, FieldTypes, Severity, Value, report};

/// A call site of a C program, made at its first use and never freed.
#[derive(Debug)]
struct CSite {
    call_site: CallSite,
    types: FieldTypes,
    /// The types again, in the order of the fields.
    kinds: &'static [FieldType],
    /// Bytes of the fields without the content of strings and byte sequences.
    fixed_size: usize,
}

/// What a C program says about a call site. Texts are copied: the library that has them may be
/// unloaded.
struct SiteDescription {
    severity: u32,
    line: u32,
    target: String,
    file: String,
    name: String,
    fields: Vec<(String, u32)>,
}

impl CSite {
    /// A call site as described; numbers that mean nothing become `Info` and `u8`.
    fn new(description: SiteDescription) -> Self {
        let mut names: Vec<&'static str> = Vec::new();
        let mut kinds = Vec::new();
        for (name, kind) in description.fields.into_iter().take(MAX_FIELDS) {
            let kind = u8::try_from(kind).ok().and_then(FieldType::from_code);
            names.push(name.leak());
            kinds.push(kind.unwrap_or(FieldType::U8));
        }
        let kinds: &'static [FieldType] = kinds.leak();
        let severity = u8::try_from(description.severity).ok();
        Self {
            call_site: CallSite::new(
                severity
                    .and_then(Severity::from_code)
                    .unwrap_or(Severity::Info),
                description.target.leak(),
                description.name.leak(),
                description.file.leak(),
                description.line,
                names.leak(),
            ),
            types: FieldTypes::new(kinds),
            kinds,
            fixed_size: kinds
                .iter()
                .map(|kind| kind.fixed_size().unwrap_or(2))
                .sum(),
        }
    }

    /// Begins an event whose strings and byte sequences have at most `content_size` bytes in all.
    // Inlined always, as `CallSite::begin` is: an event that is returned through memory costs more.
    #[inline(always)]
    fn begin(&'static self, content_size: usize) -> Option<CEvent> {
        let size = self.fixed_size.saturating_add(content_size);
        if size > u32::MAX as usize {
            count_lost_without_ring();
            return None;
        }
        Some(CEvent {
            writer: self.call_site.begin(&self.types, size)?,
            rest: self.kinds,
            is_wrong: false,
        })
    }
}

/// An event that a C program has begun.
#[derive(Debug)]
struct CEvent {
    writer: EventWriter,
    /// Types of the fields that have no value yet.
    rest: &'static [FieldType],
    /// A value had another type than its field.
    is_wrong: bool,
}

impl CEvent {
    #[inline]
    fn put<V: Value + ?Sized>(&mut self, value: &V) {
        if self.is_next(V::TYPE) {
            self.writer.put(value);
        }
    }

    /// Puts text as it is, whether it is UTF-8 or not.
    fn put_text(&mut self, text: &[u8]) {
        if self.is_next(FieldType::Str) {
            let text = text.get(..MAX_STRING_SIZE).unwrap_or(text);
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            self.writer.put_raw(&length.to_le_bytes());
            self.writer.put_raw(text);
        }
    }

    /// Goes on to the next field, which must be of this type.
    #[inline]
    fn is_next(&mut self, kind: FieldType) -> bool {
        match self.rest.split_first() {
            Some((next, rest)) if *next == kind => {
                self.rest = rest;
                true
            }
            _ => {
                self.is_wrong = true;
                false
            }
        }
    }

    /// Commits an event that is complete; another one is lost, and counted. The caller drops the
    /// event next.
    #[inline]
    fn end(&mut self) {
        if self.is_wrong || !self.rest.is_empty() {
            report_wrong_fields();
        } else {
            self.writer.commit_in_place();
        }
    }
}

#[cold]
fn report_wrong_fields() {
    count_lost_without_ring();
    if let Some(_busy) = crate::busy::Busy::enter() {
        report::report("the values of an event are not those of its call site; the event is lost");
    }
}
