//! Builds field classes of the model from those that were parsed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::class::{ClassOrAlias, Location, Ranges, RawClass};
use super::limits::{MAX_CLASSES, MAX_DEPTH, MAX_MEMBERS};
use super::problem::Problem;
use super::property::Name;
use super::scalar::{
    Built, ClassContext, alignment, encoding, fixed_length, in_bit_order, integer, media_type,
    needed, static_length, static_text, unsupported, uuid_role, variable_integer,
};
use crate::model::{
    FieldClass, Length, Member, Origin, Position, Reference, Scope, Selection, Structure, Variant,
    VariantOption,
};

/// Builds field classes, and keeps those that have a name.
#[derive(Debug, Default)]
pub(super) struct Builder {
    aliases: HashMap<Arc<str>, ClassOrAlias>,
    /// The number of field classes so far, ranges and parts of paths included, which is limited.
    class_count: usize,
    /// The position of the fragment that is being read.
    at: Position,
}

impl Builder {
    /// The field classes of another fragment follow.
    pub(super) fn begin_fragment(&mut self, at: Position) {
        self.at = at;
    }

    /// Gives a class a name. The class is built once and dropped, so that its errors are reported
    /// at the alias, and so that it can refer to earlier aliases only.
    pub(super) fn declare_alias(
        &mut self,
        name: Arc<str>,
        class: ClassOrAlias,
    ) -> Result<(), Problem> {
        let place = ClassContext {
            scope: None,
            clock: None,
            depth: 0,
        };
        self.class(&class, place)?;
        if self.aliases.contains_key(&name) {
            return Err(Problem::new(format!("a second field class {name:?}")));
        }
        self.aliases.insert(name, class);
        Ok(())
    }

    /// Builds a class to be used as a root.
    pub(super) fn build_root(
        &mut self,
        class: &ClassOrAlias,
        scope: Scope,
        clock: Option<&Arc<str>>,
    ) -> Built {
        let place = ClassContext {
            scope: Some(scope),
            clock,
            depth: 0,
        };
        self.class(class, place)
    }

    fn class(&mut self, class: &ClassOrAlias, mut place: ClassContext<'_>) -> Built {
        place.depth += 1;
        if place.depth > MAX_DEPTH {
            return Err(Problem::new(format!(
                "field classes within field classes, more than {MAX_DEPTH} deep"
            )));
        }
        self.count_classes(1)?;
        match class {
            ClassOrAlias::Class(raw) => self.raw(raw, place),
            // Cloning takes a count of references, and lets `self` be borrowed for the class.
            ClassOrAlias::Alias(name) => match self.aliases.get(name).cloned() {
                Some(class) => self.class(&class, place),
                None => Err(Problem::new(format!("no field class {name:?} before it"))),
            },
        }
    }

    fn count_classes(&mut self, count: usize) -> Result<(), Problem> {
        self.class_count = self.class_count.saturating_add(count);
        if self.class_count > MAX_CLASSES {
            return Err(Problem::new(format!(
                "more than {MAX_CLASSES} field classes"
            )));
        }
        Ok(())
    }

    fn raw(&mut self, raw: &RawClass, place: ClassContext<'_>) -> Built {
        raw.extensions.check_known()?;
        let length = |bits| fixed_length(raw, bits);
        let class = match &*raw.kind {
            "fixed-length-bit-array" => FieldClass::BitArray(length(1..=64)?),
            "fixed-length-bit-map" => {
                let flags = needed(raw.flags.as_ref(), "flags")?;
                if flags.0.as_slice().is_empty() {
                    return Err(Problem::new("a bit map without flags"));
                }
                FieldClass::BitMap(length(1..=64)?, Arc::clone(&flags.0))
            }
            "fixed-length-boolean" => FieldClass::Boolean(length(1..=64)?),
            "fixed-length-unsigned-integer" => integer(raw, false, place)?,
            "fixed-length-signed-integer" => integer(raw, true, place)?,
            "fixed-length-floating-point-number" => {
                let bits = length(1..=u64::MAX)?;
                match bits.bits {
                    // CTF 2 has 16 and 128 bits too, for which Rust has no type.
                    32 | 64 => FieldClass::Float(bits),
                    _ => return Err(unsupported(raw)),
                }
            }
            "variable-length-unsigned-integer" => variable_integer(raw, false, place)?,
            "variable-length-signed-integer" => variable_integer(raw, true, place)?,
            "null-terminated-string" => FieldClass::String(encoding(raw)?),
            "static-length-string" => static_text(raw)?,
            "dynamic-length-string" => FieldClass::Text {
                length: self.dynamic_length(raw)?,
                encoding: encoding(raw)?,
            },
            "static-length-blob" => FieldClass::Blob {
                length: static_length(raw)?,
                media_type: media_type(raw),
                role: uuid_role(raw, place, raw.length == Some(16))?,
            },
            "dynamic-length-blob" => FieldClass::Blob {
                length: self.dynamic_length(raw)?,
                media_type: media_type(raw),
                // The UUID has a fixed length.
                role: None,
            },
            "structure" => self.structure(raw, place)?,
            "static-length-array" => self.array(raw, static_length(raw)?, place)?,
            "dynamic-length-array" => {
                let length = self.dynamic_length(raw)?;
                self.array(raw, length, place)?
            }
            "optional" => self.optional(raw, place)?,
            "variant" => self.variant(raw, place)?,
            unknown => return Err(Problem::new(format!("unknown field class {unknown:?}"))),
        };
        in_bit_order(raw, class)
    }

    fn structure(&mut self, raw: &RawClass, place: ClassContext<'_>) -> Built {
        check_member_count(raw.member_classes.len())?;
        let mut names = HashSet::new();
        let mut members = Vec::with_capacity(raw.member_classes.len());
        for member in &raw.member_classes {
            let name = &member.name.0;
            if !names.insert(name) {
                return Err(Problem::new(format!("a second member {name:?}")));
            }
            member.extensions.check_known()?;
            let class = self.class(&member.field_class, place);
            members.push(Member {
                name: Arc::clone(name),
                written: Arc::clone(name),
                class: class.map_err(|problem| problem.within(name))?,
                hidden: false,
            });
        }
        Ok(FieldClass::Structure(Arc::new(Structure {
            members,
            alignment: alignment(raw.minimum_alignment)?,
        })))
    }

    fn array(
        &mut self,
        raw: &RawClass,
        length: Length<Reference>,
        place: ClassContext<'_>,
    ) -> Built {
        let element = needed(raw.element_field_class.as_ref(), "element-field-class")?;
        let element = self.class(element, place)?;
        let is_byte = matches!(&element, FieldClass::Integer(of) if of.bits == 8 && !of.signed);
        Ok(FieldClass::Array {
            role: uuid_role(raw, place, length == Length::Static(16) && is_byte)?,
            element: Arc::new(element),
            length,
            alignment: alignment(raw.minimum_alignment)?,
        })
    }

    fn optional(&mut self, raw: &RawClass, place: ClassContext<'_>) -> Built {
        let class = needed(raw.field_class.as_ref(), "field-class")?;
        let ranges = raw.selector_field_ranges.clone();
        let ranges = ranges.map_or_else(Vec::new, |ranges| ranges.0);
        self.count_classes(ranges.len())?;
        Ok(FieldClass::Optional {
            selector: self.selector(raw)?,
            ranges,
            class: Arc::new(self.class(class, place)?),
            // Known only when the selector has been found: `resolve` sets it.
            signed: false,
        })
    }

    fn variant(&mut self, raw: &RawClass, place: ClassContext<'_>) -> Built {
        check_member_count(raw.options.len())?;
        if raw.options.is_empty() {
            return Err(Problem::new("a variant without options"));
        }
        let mut names = HashSet::new();
        let mut options = Vec::with_capacity(raw.options.len());
        for option in &raw.options {
            option.extensions.check_known()?;
            let name = option.name.as_ref().map(|name| Arc::clone(&name.0));
            if let Some(name) = &name
                && !names.insert(Arc::clone(name))
            {
                return Err(Problem::new(format!("a second option {name:?}")));
            }
            let Ranges(ranges) = option.selector_field_ranges.clone();
            self.count_classes(ranges.len())?;
            let class = self.class(&option.field_class, place);
            options.push(VariantOption {
                class: class.map_err(|problem| match &name {
                    Some(name) => problem.within(name),
                    None => problem,
                })?,
                name,
                ranges: Selection::Ranges(ranges),
            });
        }
        check_overlap(&options)?;
        Ok(FieldClass::Variant(Arc::new(Variant {
            selector: self.selector(raw)?,
            options,
            // Known only when the selector has been found: `resolve` sets both.
            signed: false,
            lookup: Arc::default(),
        })))
    }

    fn dynamic_length(&mut self, raw: &RawClass) -> Result<Length<Reference>, Problem> {
        let location = needed(raw.length_field_location.as_ref(), "length-field-location")?;
        self.reference(location).map(Length::Dynamic)
    }

    fn selector(&mut self, raw: &RawClass) -> Result<Reference, Problem> {
        let location = raw.selector_field_location.as_ref();
        self.reference(needed(location, "selector-field-location")?)
    }

    fn reference(&mut self, location: &Location) -> Result<Reference, Problem> {
        self.count_classes(location.path.len())?;
        if !matches!(location.path.last(), Some(Some(_))) {
            return Err(Problem::new(
                "a field location that does not end with a name",
            ));
        }
        let origin = match location.origin.as_deref() {
            None => Origin::Enclosing,
            Some("packet-header") => Origin::Root(Scope::PacketHeader),
            Some("packet-context") => Origin::Root(Scope::PacketContext),
            Some("event-record-header") => Origin::Root(Scope::EventHeader),
            Some("event-record-common-context") => Origin::Root(Scope::CommonContext),
            Some("event-record-specific-context") => Origin::Root(Scope::SpecificContext),
            Some("event-record-payload") => Origin::Root(Scope::Payload),
            Some(unknown) => {
                return Err(Problem::new(format!("unknown origin {unknown:?}")));
            }
        };
        let name = |name: &Option<Name>| name.as_ref().map(|name| Arc::clone(&name.0));
        Ok(Reference {
            origin,
            path: location.path.iter().map(name).collect(),
            at: self.at,
        })
    }
}

fn check_member_count(count: usize) -> Result<(), Problem> {
    if count > MAX_MEMBERS {
        return Err(Problem::new(format!("more than {MAX_MEMBERS} members")));
    }
    Ok(())
}

fn check_overlap(options: &[VariantOption<Reference>]) -> Result<(), Problem> {
    let mut ranges: Vec<(i128, i128, usize)> = Vec::new();
    for (number, option) in options.iter().enumerate() {
        if let Selection::Ranges(of) = &option.ranges {
            ranges.extend(of.iter().map(|&(low, high)| (low, high, number)));
        }
    }
    ranges.sort_unstable();
    // Not only neighbours are compared: a long range of one option may reach over several ranges.
    let mut reach: Option<(i128, usize)> = None;
    for (low, high, number) in ranges {
        if let Some((end, other)) = reach
            && low <= end
            && other != number
        {
            return Err(Problem::new(format!("two options for the value {low}")));
        }
        if reach.is_none_or(|(end, _)| end < high) {
            reach = Some((high, number));
        }
    }
    Ok(())
}
