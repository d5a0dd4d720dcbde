//! What the ring knows of each call site of `tracing`.
//!
//! A call site is found by the address of its metadata, which `tracing` keeps for ever. The type of
//! a field is known only when it has a value, and may differ from event to event (`Option`, or a
//! value recorded late). So a call site has a class for each *shape*: which fields have values, and
//! of which types. Nearly every call site has one.

use std::ptr;

use tracing::{Level, Metadata};

use super::append_list::AppendList;
use super::field_buffer::{EventKind, FieldBuffer};
use crate::{CallSite, FieldTypes, Severity};

/// Lists of call sites; a power of two.
const BUCKETS: usize = 1024;

static SITES: [AppendList<TracingSite>; BUCKETS] = [const { AppendList::new() }; BUCKETS];

/// One call site of `tracing`.
#[derive(Debug)]
pub(super) struct TracingSite {
    metadata: &'static Metadata<'static>,
    /// Keeps the answer of the filter; writes no events.
    gate: CallSite,
    shapes: AppendList<Shape>,
}

/// The events of a call site whose fields have the same names and types.
#[derive(Debug)]
struct Shape {
    /// The number that [`FieldBuffer::shape`] returns.
    key: u64,
    call_site: CallSite,
    types: FieldTypes,
}

impl TracingSite {
    /// Returns the call site with this metadata.
    #[inline]
    pub(super) fn of(metadata: &'static Metadata<'static>) -> &'static Self {
        Self::find(metadata).unwrap_or_else(|| Self::add(metadata))
    }

    /// Returns the call site with this metadata, if it has been seen before.
    #[inline]
    pub(super) fn find(metadata: &Metadata<'_>) -> Option<&'static Self> {
        let address = ptr::from_ref(metadata).addr();
        bucket(metadata).find(|site| ptr::from_ref(site.metadata).addr() == address)
    }

    #[cold]
    fn add(metadata: &'static Metadata<'static>) -> &'static Self {
        let site = Self {
            metadata,
            gate: call_site(metadata, metadata.name(), &[]),
            shapes: AppendList::new(),
        };
        bucket(metadata).append(site, |site| ptr::eq(site.metadata, metadata))
    }

    /// Whether the filter lets the call site's events pass.
    #[inline]
    pub(super) fn is_enabled(&'static self) -> bool {
        self.gate.is_enabled()
    }

    /// Writes the event that is in the buffer.
    #[inline]
    pub(super) fn write(&'static self, kind: EventKind, buffer: &FieldBuffer) {
        let shape = self
            .shapes
            .find(|shape| shape.key == buffer.shape())
            .unwrap_or_else(|| self.add_shape(kind, buffer));
        if let Some(mut event) = shape.call_site.begin(&shape.types, buffer.bytes().len()) {
            event.put_raw(buffer.bytes());
            event.commit_in_place();
        }
    }

    #[cold]
    fn add_shape(&self, kind: EventKind, buffer: &FieldBuffer) -> &'static Shape {
        let mut names: Vec<&'static str> = Vec::new();
        let mut types = Vec::new();
        for (name, field_type) in kind.own_fields() {
            names.push(name);
            types.push(*field_type);
        }
        let all_names: Vec<_> = self
            .metadata
            .fields()
            .iter()
            .map(|field| field.name())
            .collect();
        for (index, field_type) in buffer.fields() {
            let name = all_names
                .get(usize::from(*index))
                .copied()
                .unwrap_or_default();
            names.push(unique_name(name, &names));
            types.push(*field_type);
        }
        let name = kind.name().unwrap_or(self.metadata.name());
        let shape = Shape {
            key: buffer.shape(),
            call_site: call_site(self.metadata, name, names.leak()),
            types: FieldTypes::new(types.leak()),
        };
        self.shapes
            .append(shape, |shape| shape.key == buffer.shape())
    }
}

#[inline]
fn bucket(metadata: &Metadata<'_>) -> &'static AppendList<TracingSite> {
    let address = ptr::from_ref(metadata).addr();
    // Metadata is larger than 64 bytes: the low bits say little.
    let index = (address >> 4 ^ address >> 12) % BUCKETS;
    let [first, ..] = &SITES;
    SITES.get(index).unwrap_or(first)
}

fn call_site(
    metadata: &'static Metadata<'static>,
    name: &'static str,
    fields: &'static [&'static str],
) -> CallSite {
    CallSite::new(
        severity(*metadata.level()),
        metadata.target(),
        name,
        metadata.file().unwrap_or_default(),
        metadata.line().unwrap_or_default(),
        fields,
    )
}

fn severity(level: Level) -> Severity {
    match level {
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warn,
        Level::INFO => Severity::Info,
        Level::DEBUG => Severity::Debug,
        Level::TRACE => Severity::Trace,
    }
}

/// Returns the name, with underscores after it when it is in the event already: readers find fields
/// by name.
fn unique_name(name: &'static str, names: &[&'static str]) -> &'static str {
    let mut unique = name.to_owned();
    while names.contains(&unique.as_str()) {
        unique.push('_');
    }
    if unique == name { name } else { unique.leak() }
}
