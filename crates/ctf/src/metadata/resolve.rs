//! Resolves parsed structures for decoding: each reference finds its field, whose value the decoder
//! then keeps in a [`Slot`], alignments are computed, and fields that are not shown are marked.

mod find;

use std::sync::Arc;

use self::find::display_path;
use super::hidden::mark_hidden;
use super::warning::{Deviation, Warnings};
use crate::error::MetadataError;
use crate::lookup::{FirstMatch, without_overlap};
use crate::model::{
    FieldClass, Labels, Length, Member, Reference, Scope, Selection, Slot, Structure, Variant,
    VariantOption,
};

/// Deepest nesting of structures, arrays and choices: deeper than any known trace, and bounded
/// because the functions that walk a class are recursive.
const MAX_DEPTH: u32 = 96;
/// Largest number of fields of all classes together. A type may be used many times, and each use is
/// a field.
const MAX_FIELDS: u32 = 1 << 20;
/// Largest number of names that are compared to resolve all references of a trace: some seconds of
/// time.
const MAX_COMPARISONS: u64 = 1 << 27;
/// Largest number of fields of one event class that others refer to.
const MAX_EVENT_SLOTS: u32 = 1 << 16;
/// Most fields of packet headers that others refer to: their slots come first.
const HEADER_SLOTS: u32 = 16;
/// Most fields of a stream class' packet context, event header and event context that others refer
/// to: their slots come next.
const STREAM_SLOTS: u32 = 112;
/// The first slot of an event class, after those of packets and streams.
pub(crate) const STREAM_SLOTS_END: u32 = HEADER_SLOTS + STREAM_SLOTS;

/// The slots that have been given to the fields of a trace, of a stream class or of an event class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    next: u32,
    end: u32,
}

impl Slots {
    pub(crate) const fn of_trace() -> Self {
        Self {
            next: 0,
            end: HEADER_SLOTS,
        }
    }

    pub(crate) const fn of_stream() -> Self {
        Self {
            next: HEADER_SLOTS,
            end: STREAM_SLOTS_END,
        }
    }

    pub(crate) const fn of_event() -> Self {
        Self {
            next: STREAM_SLOTS_END,
            end: STREAM_SLOTS_END + MAX_EVENT_SLOTS,
        }
    }

    /// The number of slots that a decoder must have so that all those given exist.
    pub(crate) const fn needed(self) -> u32 {
        self.next
    }

    fn allocate(&mut self) -> Option<Slot> {
        let slot = Slot(self.next);
        self.next += 1;
        (slot.0 < self.end).then_some(slot)
    }
}

/// The roots that a field may refer to, resolved so far, each with its slots.
#[derive(Debug)]
pub(crate) struct Roots<'a> {
    pub(crate) packet_header: &'a mut Option<Arc<Structure>>,
    pub(crate) packet_context: &'a mut Option<Arc<Structure>>,
    pub(crate) event_header: &'a mut Option<Arc<Structure>>,
    pub(crate) event_context: &'a mut Option<Arc<Structure>>,
    pub(crate) specific_context: &'a mut Option<Arc<Structure>>,
    pub(crate) trace_slots: &'a mut Slots,
    pub(crate) stream_slots: &'a mut Slots,
    pub(crate) event_slots: &'a mut Slots,
    /// Fields that may still be declared.
    pub(crate) fields_left: &'a mut FieldsLeft,
    pub(crate) warnings: &'a mut Warnings,
}

/// The number of fields that a trace may still declare, and of names that may still be compared to
/// find its references.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldsLeft {
    fields: u32,
    comparisons: u64,
    /// Whether a reference has been found whose value cannot be had from the event alone.
    pub(super) has_distant_references: bool,
}

impl Default for FieldsLeft {
    fn default() -> Self {
        Self {
            fields: MAX_FIELDS,
            comparisons: MAX_COMPARISONS,
            has_distant_references: false,
        }
    }
}

impl FieldsLeft {
    /// Counts a search among this number of names. Names are compared one by one, so that metadata
    /// could otherwise ask for a time that grows with the square of its length.
    fn count_comparisons(&mut self, names: usize) -> Result<(), &'static str> {
        let left = self.comparisons.checked_sub(names as u64);
        self.comparisons =
            left.ok_or("takes too long to find, together with the references before it")?;
        Ok(())
    }
}

/// Resolves the root structure of `scope`.
///
/// # Errors
/// If a reference finds no field or an unfit one, or if the structure is too deep or too large.
pub(crate) fn resolve(
    scope: Scope,
    draft: &Structure<Reference>,
    roots: &mut Roots<'_>,
) -> Result<Arc<Structure>, MetadataError> {
    let mut resolver = Resolver {
        scope,
        roots,
        frames: Vec::new(),
        depth: 0,
    };
    let mut structure = resolver.structure(draft)?;
    // At the end, because a later field of the root may refer to an earlier one and so show it.
    mark_hidden(&mut structure);
    Ok(Arc::new(structure))
}

/// A structure that is being resolved: its members that are complete, and the current one.
struct Frame {
    members: Vec<Member>,
    current: Arc<str>,
    /// The options within the current member that lead to the next frame.
    options: Vec<Arc<str>>,
    /// The variants within the current member that are being resolved, each with its options that
    /// are complete.
    variants: Vec<Vec<VariantOption>>,
}

struct Resolver<'r, 'a> {
    scope: Scope,
    roots: &'r mut Roots<'a>,
    frames: Vec<Frame>,
    depth: u32,
}

/// The field that a reference has found.
struct Found {
    slot: Slot,
    kind: Kind,
    labels: Option<Arc<Labels>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Boolean,
}

impl Resolver<'_, '_> {
    fn structure(&mut self, draft: &Structure<Reference>) -> Result<Structure, MetadataError> {
        self.frames.push(Frame {
            // Bounded: the fields are counted one by one below, and may turn out to be too many.
            members: Vec::with_capacity(draft.members.len().min(1024)),
            current: "".into(),
            options: Vec::new(),
            variants: Vec::new(),
        });
        let mut alignment = draft.alignment.max(1);
        for member in &draft.members {
            if let Some(frame) = self.frames.last_mut() {
                frame.current = Arc::clone(&member.written);
                frame.options.clear();
            }
            let class = self.class(&member.class)?;
            alignment = alignment.max(class.alignment());
            if let Some(frame) = self.frames.last_mut() {
                frame.members.push(Member {
                    name: Arc::clone(&member.name),
                    written: Arc::clone(&member.written),
                    class,
                    hidden: false,
                });
            }
        }
        let members = self.frames.pop().map(|frame| frame.members);
        Ok(Structure {
            members: members.unwrap_or_default(),
            alignment,
        })
    }

    fn class(&mut self, draft: &FieldClass<Reference>) -> Result<FieldClass, MetadataError> {
        let Some(left) = self.roots.fields_left.fields.checked_sub(1) else {
            return Err(too_large(format!("more than {MAX_FIELDS} fields")));
        };
        self.roots.fields_left.fields = left;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_large(format!("fields nested deeper than {MAX_DEPTH}")));
        }
        let class = self.class_at_depth(draft);
        self.depth -= 1;
        class
    }

    fn class_at_depth(
        &mut self,
        draft: &FieldClass<Reference>,
    ) -> Result<FieldClass, MetadataError> {
        Ok(match draft {
            FieldClass::Integer(integer) => FieldClass::Integer(integer.clone()),
            FieldClass::VariableInteger(integer) => FieldClass::VariableInteger(integer.clone()),
            FieldClass::Float(field) => FieldClass::Float(field.clone()),
            FieldClass::Boolean(field) => FieldClass::Boolean(field.clone()),
            FieldClass::BitArray(field) => FieldClass::BitArray(field.clone()),
            FieldClass::BitMap(field, flags) => {
                FieldClass::BitMap(field.clone(), Arc::clone(flags))
            }
            FieldClass::Reversed(draft) => {
                // Not counted again, because it is the same field.
                FieldClass::Reversed(Arc::new(self.class_at_depth(draft)?))
            }
            FieldClass::String(encoding) => FieldClass::String(*encoding),
            FieldClass::Text { length, encoding } => FieldClass::Text {
                length: self.length(length)?,
                encoding: *encoding,
            },
            FieldClass::Blob {
                length,
                media_type,
                role,
            } => FieldClass::Blob {
                length: self.length(length)?,
                media_type: Arc::clone(media_type),
                role: *role,
            },
            FieldClass::Structure(draft) => FieldClass::Structure(Arc::new(self.structure(draft)?)),
            FieldClass::Array {
                element,
                length,
                alignment,
                role,
            } => {
                let length = self.length(length)?;
                let element = self.class(element)?;
                FieldClass::Array {
                    alignment: (*alignment).max(element.alignment()),
                    element: Arc::new(element),
                    length,
                    role: *role,
                }
            }
            FieldClass::Optional {
                selector,
                ranges,
                class,
                ..
            } => {
                let found = self.resolve_reference(selector)?;
                if ranges.is_empty() && found.kind != Kind::Boolean {
                    let what = format!(
                        "{} is no boolean, and no ranges are given",
                        display_path(selector)
                    );
                    return Err(MetadataError::text(selector.at, what));
                }
                // A boolean says all, also beside ranges.
                let ranges = match found.kind {
                    Kind::Boolean => Vec::new(),
                    _ => without_overlap(ranges),
                };
                FieldClass::Optional {
                    selector: found.slot,
                    ranges,
                    class: Arc::new(self.class(class)?),
                    signed: found.kind == Kind::Signed,
                }
            }
            FieldClass::Variant(variant) => FieldClass::Variant(Arc::new(self.variant(variant)?)),
        })
    }

    fn length(&mut self, draft: &Length<Reference>) -> Result<Length, MetadataError> {
        match draft {
            Length::Static(length) => Ok(Length::Static(*length)),
            Length::Dynamic(reference) => {
                let found = self.resolve_reference(reference)?;
                if found.kind == Kind::Unsigned {
                    Ok(Length::Dynamic(found.slot))
                } else {
                    let what = format!("{} is no unsigned number", display_path(reference));
                    Err(MetadataError::text(reference.at, what))
                }
            }
        }
    }

    fn variant(&mut self, draft: &Variant<Reference>) -> Result<Variant, MetadataError> {
        let found = self.resolve_reference(&draft.selector)?;
        let at = draft.selector.at;
        if found.kind == Kind::Boolean {
            let what = format!("{} is a boolean", display_path(&draft.selector));
            return Err(MetadataError::text(at, what));
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.variants.push(Vec::with_capacity(draft.options.len()));
        }
        for option in &draft.options {
            let ranges = match &option.ranges {
                Selection::Ranges(ranges) => ranges.clone(),
                Selection::Label(written) => {
                    let Some(labels) = found.labels.as_deref().map(Labels::as_slice) else {
                        let what = format!("{} is no enumeration", display_path(&draft.selector));
                        return Err(MetadataError::text(at, what));
                    };
                    if let Err(why) = self.roots.fields_left.count_comparisons(labels.len()) {
                        let what = format!("option {written} {why}");
                        return Err(MetadataError::text(at, what));
                    }
                    let label = labels.iter().find(|label| label.name == *written);
                    if label.is_none() {
                        let tag = display_path(&draft.selector);
                        let what =
                            format!("option {written} is no label of {tag}: no event has it");
                        let warnings = &mut self.roots.warnings;
                        warnings.add_deviation(Deviation::OptionWithoutLabel, at, &what);
                    }
                    label.map_or_else(Vec::new, |label| label.ranges.clone())
                }
            };
            let name = match (&option.ranges, &option.name) {
                (Selection::Label(written), _) => Some(written),
                (Selection::Ranges(_), name) => name.as_ref(),
            };
            // Paths of CTF 1.8 that begin outside of the variant may name its option.
            if let (Some(frame), Some(name)) = (self.frames.last_mut(), name) {
                frame.options.push(Arc::clone(name));
            }
            let class = self.class(&option.class)?;
            let Some(frame) = self.frames.last_mut() else {
                continue;
            };
            if name.is_some() {
                frame.options.pop();
            }
            if let Some(options) = frame.variants.last_mut() {
                options.push(VariantOption {
                    name: option.name.clone(),
                    ranges: Selection::Ranges(ranges),
                    class,
                });
            }
        }
        let options = self
            .frames
            .last_mut()
            .and_then(|frame| frame.variants.pop());
        let options = options.unwrap_or_default();
        let signed = found.kind == Kind::Signed;
        let ranges = options.iter().map(|option| match &option.ranges {
            Selection::Ranges(ranges) => ranges.as_slice(),
            Selection::Label(_) => &[],
        });
        // The plan shares it: it selects among the same options.
        let lookup = Arc::new(FirstMatch::new(ranges, signed));
        Ok(Variant {
            selector: found.slot,
            options,
            signed,
            lookup,
        })
    }
}

fn too_large(what: String) -> MetadataError {
    MetadataError::text(crate::model::Position::default(), what)
}
