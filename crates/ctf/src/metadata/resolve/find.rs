//! Finds the fields that are lengths and selectors, by the paths that metadata gives.

use std::sync::Arc;

use super::{FieldsLeft, Found, Frame, Kind, Resolver, Slots};
use crate::error::MetadataError;
use crate::metadata::hidden::mark_hidden;
use crate::model::{
    BitField, FieldClass, Integer, Labels, Member, Origin, Reference, Scope, Slot, VariableInteger,
    Variant, VariantOption,
};

const NOT_DECLARED: &str = "has not been declared before";
const LEAVES_ROOT: &str = "leaves its root";

/// The field at the end of a path. Where the path leads through a variant there is one in each
/// option, all of the same kind.
struct Located {
    kind: Kind,
    labels: Option<Arc<Labels>>,
    /// The slot that it has already, or one of them has.
    slot: Option<Slot>,
    /// Whether all of them have it.
    has_slots: bool,
}

impl Resolver<'_, '_> {
    pub(super) fn resolve_reference(
        &mut self,
        reference: &Reference,
    ) -> Result<Found, MetadataError> {
        self.find_field(reference).map_err(|why| {
            let what = format!("{} {why}", display_path(reference));
            MetadataError::text(reference.at, what)
        })
    }

    /// Finds the field that `reference` names, and gives it a slot.
    fn find_field(&mut self, reference: &Reference) -> Result<Found, &'static str> {
        let mut frame = match reference.origin {
            Origin::Enclosing => self.frames.len().saturating_sub(1),
            Origin::Root(_) | Origin::Innermost => 0,
        };
        let mut names = Vec::new();
        for step in &reference.path {
            match step {
                Some(name) => names.push(Arc::clone(name)),
                None if names.pop().is_some() => {}
                None if frame > 0 => frame -= 1,
                None => return Err(LEAVES_ROOT),
            }
        }
        match reference.origin {
            Origin::Root(scope) if scope != self.scope => self.find_in_root(scope, &names),
            Origin::Root(_) | Origin::Enclosing => self.find_in_current_root(frame, &names),
            // A relative name never means a field of another root; babeltrace2 refuses that too.
            Origin::Innermost => {
                let around = self.frames.iter().map(|frame| frame.members.len()).sum();
                self.roots.fields_left.count_comparisons(around)?;
                let declares = |frame: &Frame| {
                    let mut members = frame.members.iter();
                    members.any(|member| Some(&member.written) == names.first())
                };
                match self.frames.iter().rposition(declares) {
                    Some(frame) => self.find_in_current_root(frame, &names),
                    None => Err(NOT_DECLARED),
                }
            }
        }
    }

    /// Finds a field in the root that is being resolved, from the structure `frame` on.
    fn find_in_current_root(
        &mut self,
        frame: usize,
        names: &[Arc<str>],
    ) -> Result<Found, &'static str> {
        let left = &mut *self.roots.fields_left;
        let (frame, names, located) = locate_in_frames(&self.frames, frame, names, left)?;
        let slot = match located.slot {
            Some(slot) => Some(slot),
            None => self.slot_of_sibling(frame, names)?,
        };
        let slots = match self.scope {
            Scope::PacketHeader => &mut *self.roots.trace_slots,
            Scope::PacketContext | Scope::EventHeader | Scope::CommonContext => {
                &mut *self.roots.stream_slots
            }
            Scope::SpecificContext | Scope::Payload => &mut *self.roots.event_slots,
        };
        let slot = slot_or_new(slot, slots)?;
        let left = &mut *self.roots.fields_left;
        if let Some((name, rest)) = names.split_first()
            && let Some(frame) = self.frames.get_mut(frame)
            && let Some(member) = frame
                .members
                .iter_mut()
                .find(|member| member.written == *name)
        {
            set_slot(&mut member.class, rest, slot, left)?;
        }
        Ok(located.found(slot))
    }

    /// The slot that the field of this path in the structure `frame` has in another option of a
    /// variant around it, one that is complete. All options share it, so that a path through the
    /// variant finds one slot.
    fn slot_of_sibling(
        &mut self,
        frame: usize,
        names: &[Arc<str>],
    ) -> Result<Option<Slot>, &'static str> {
        let left = &mut *self.roots.fields_left;
        let mut path = names.to_vec();
        let around = self.frames.get(..frame).unwrap_or_default();
        for (place, outer) in around.iter().enumerate().rev() {
            for option in outer.variants.iter().flatten() {
                left.count_comparisons(1)?;
                if let Ok(Located {
                    slot: Some(slot), ..
                }) = locate(&option.class, &path, left)
                {
                    return Ok(Some(slot));
                }
            }
            if place > 0 {
                path.insert(0, Arc::clone(&outer.current));
            }
        }
        Ok(None)
    }

    fn find_in_root(&mut self, scope: Scope, names: &[Arc<str>]) -> Result<Found, &'static str> {
        let roots = &mut *self.roots;
        let (root, slots) = match scope {
            Scope::PacketHeader => (&mut *roots.packet_header, &mut *roots.trace_slots),
            Scope::PacketContext => (&mut *roots.packet_context, &mut *roots.stream_slots),
            Scope::EventHeader => (&mut *roots.event_header, &mut *roots.stream_slots),
            Scope::CommonContext => (&mut *roots.event_context, &mut *roots.stream_slots),
            Scope::SpecificContext => (&mut *roots.specific_context, &mut *roots.event_slots),
            // The payload is the last root: nothing after it can refer to it.
            Scope::Payload => return Err(NOT_DECLARED),
        };
        let root = root.as_mut().ok_or(NOT_DECLARED)?;
        let left = &mut *roots.fields_left;
        // A visitor of an event's fields begins after the header.
        left.has_distant_references |= scope == Scope::EventHeader;
        let (member, rest) = find_member(&root.members, names, left)?;
        let class = root.members.get(member).map(|member| &member.class);
        let located = locate(class.ok_or(NOT_DECLARED)?, rest, left)?;
        if let (Some(slot), true) = (located.slot, located.has_slots) {
            return Ok(located.found(slot));
        }
        let slot = slot_or_new(located.slot, slots)?;
        // A clone of the trace may share the root, and its fields must not change.
        let root = Arc::make_mut(root);
        if let Some(member) = root.members.get_mut(member) {
            set_slot(&mut member.class, rest, slot, left)?;
        }
        // A field that others refer to is no longer hidden.
        mark_hidden(root);
        Ok(located.found(slot))
    }
}

impl Located {
    fn found(self, slot: Slot) -> Found {
        Found {
            slot,
            kind: self.kind,
            labels: self.labels,
        }
    }

    /// Joins this field with the one of the same path in another option.
    fn and(self, other: Self) -> Result<Self, &'static str> {
        if self.kind != other.kind {
            return Err("is of different kinds in the options of a variant");
        }
        let slot = match (self.slot, other.slot) {
            (Some(one), Some(other)) if one != other => {
                return Err("is in options whose fields others refer to one by one");
            }
            (one, other) => one.or(other),
        };
        Ok(Self {
            kind: self.kind,
            // The labels that select the options of a variant are those of one enumeration.
            labels: None,
            slot,
            has_slots: self.has_slots && other.has_slots,
        })
    }
}

fn slot_or_new(slot: Option<Slot>, slots: &mut Slots) -> Result<Slot, &'static str> {
    slot.or_else(|| slots.allocate())
        .ok_or("is one of too many fields that others refer to")
}

/// Finds the structure that is being resolved and the rest of the path, from which on all fields
/// are complete.
fn locate_in_frames<'n>(
    frames: &[Frame],
    place: usize,
    names: &'n [Arc<str>],
    left: &mut FieldsLeft,
) -> Result<(usize, &'n [Arc<str>], Located), &'static str> {
    let frame = frames.get(place).ok_or(NOT_DECLARED)?;
    if let Ok((member, rest)) = find_member(&frame.members, names, left) {
        let class = frame.members.get(member).map(|member| &member.class);
        let located = locate(class.ok_or(NOT_DECLARED)?, rest, left)?;
        return Ok((place, names, located));
    }
    let Some((_, rest)) = names
        .split_first()
        .filter(|(name, _)| **name == frame.current)
    else {
        return Err(NOT_DECLARED);
    };
    // The path leads through a structure that is not complete yet: continue in its next frame.
    let found = locate_in_frames(frames, place + 1, rest, left);
    // Paths of CTF 1.8 may name the options on the way.
    let mut named = rest;
    for option in &frame.options {
        if let Some((_, rest)) = named.split_first().filter(|(name, _)| *name == option) {
            named = rest;
        }
    }
    if found.is_err() && named.len() < rest.len() {
        return locate_in_frames(frames, place + 1, named, left);
    }
    found
}

/// The place of the member that a path names first, and the rest of the path.
fn find_member<'n>(
    members: &[Member],
    names: &'n [Arc<str>],
    left: &mut FieldsLeft,
) -> Result<(usize, &'n [Arc<str>]), &'static str> {
    // At least one, so that many empty structures are not searched for nothing.
    left.count_comparisons(members.len().max(1))?;
    let (name, rest) = names.split_first().ok_or("is a structure, no number")?;
    let place = members.iter().position(|member| member.written == *name);
    Ok((place.ok_or(NOT_DECLARED)?, rest))
}

/// Finds the field at the end of a path in a complete class.
fn locate(
    class: &FieldClass,
    names: &[Arc<str>],
    left: &mut FieldsLeft,
) -> Result<Located, &'static str> {
    let number = |slot: Option<Slot>, kind, labels: Option<&Arc<Labels>>| {
        if !names.is_empty() {
            return Err(NOT_DECLARED);
        }
        Ok(Located {
            kind,
            labels: labels.cloned(),
            slot,
            has_slots: slot.is_some(),
        })
    };
    let kind = |signed| {
        if signed { Kind::Signed } else { Kind::Unsigned }
    };
    match class {
        FieldClass::Integer(Integer {
            slot,
            signed,
            labels,
            ..
        })
        | FieldClass::VariableInteger(VariableInteger {
            slot,
            signed,
            labels,
            ..
        }) => number(*slot, kind(*signed), labels.as_ref()),
        FieldClass::Boolean(BitField { slot, .. }) => number(*slot, Kind::Boolean, None),
        FieldClass::Reversed(class) => locate(class, names, left),
        FieldClass::Structure(structure) => {
            let (member, rest) = find_member(&structure.members, names, left)?;
            let class = structure.members.get(member).map(|member| &member.class);
            locate(class.ok_or(NOT_DECLARED)?, rest, left)
        }
        FieldClass::Variant(variant) => locate_option(variant, names, left).map(|(_, found)| found),
        FieldClass::Optional { class, .. } => {
            // An event without it leaves the value of the event before it.
            left.has_distant_references = true;
            locate(class, names, left)
        }
        FieldClass::Array { .. } => Err("is an array, no number"),
        FieldClass::Float(_) => Err("is a floating point number, no whole one"),
        FieldClass::BitArray(_)
        | FieldClass::BitMap(..)
        | FieldClass::String(_)
        | FieldClass::Text { .. }
        | FieldClass::Blob { .. } => Err("is no number"),
    }
}

/// Finds the field of this path in all options, or else in the one that the path names, as paths of
/// CTF 1.8 may. Returns the place of that option too.
fn locate_option(
    variant: &Variant,
    names: &[Arc<str>],
    left: &mut FieldsLeft,
) -> Result<(Option<usize>, Located), &'static str> {
    // At least one, as for members.
    left.count_comparisons(variant.options.len().max(1))?;
    let mut all: Option<Located> = None;
    let mut why = None;
    for option in &variant.options {
        let found = locate(&option.class, names, left);
        let merged = found.and_then(|found| match all.take() {
            Some(all) => all.and(found),
            None => Ok(found),
        });
        match merged {
            Ok(merged) => all = Some(merged),
            Err(error) => {
                why = Some(error);
                break;
            }
        }
    }
    let why = match (all, why) {
        (Some(all), None) => return Ok((None, all)),
        (_, why) => why.unwrap_or(NOT_DECLARED),
    };
    let (name, rest) = names.split_first().ok_or(why)?;
    let place = variant
        .options
        .iter()
        .position(|option| is_option(option, name))
        .ok_or(why)?;
    let class = variant.options.get(place).map(|option| &option.class);
    let found = locate(class.ok_or(why)?, rest, left)?;
    // An event that takes another option leaves the value of the event before it.
    left.has_distant_references = true;
    Ok((Some(place), found))
}

/// Gives the field at the end of the path, where [`locate`] finds it, a slot.
fn set_slot(
    class: &mut FieldClass,
    names: &[Arc<str>],
    new: Slot,
    left: &mut FieldsLeft,
) -> Result<(), &'static str> {
    match class {
        FieldClass::Integer(Integer { slot, .. })
        | FieldClass::VariableInteger(VariableInteger { slot, .. })
        | FieldClass::Boolean(BitField { slot, .. }) => *slot = Some(new),
        FieldClass::Reversed(class) => set_slot(Arc::make_mut(class), names, new, left)?,
        FieldClass::Structure(structure) => {
            let (member, rest) = find_member(&structure.members, names, left)?;
            if let Some(member) = Arc::make_mut(structure).members.get_mut(member) {
                set_slot(&mut member.class, rest, new, left)?;
            }
        }
        FieldClass::Variant(variant) => {
            let (place, _) = locate_option(variant, names, left)?;
            let rest = names
                .get(usize::from(place.is_some())..)
                .unwrap_or_default();
            let options = Arc::make_mut(variant).options.iter_mut().enumerate();
            for (_, option) in options.filter(|(number, _)| place.is_none_or(|of| of == *number)) {
                set_slot(&mut option.class, rest, new, left)?;
            }
        }
        FieldClass::Optional { class, .. } => set_slot(Arc::make_mut(class), names, new, left)?,
        // `locate` has refused them.
        FieldClass::Array { .. }
        | FieldClass::Float(_)
        | FieldClass::BitArray(_)
        | FieldClass::BitMap(..)
        | FieldClass::String(_)
        | FieldClass::Text { .. }
        | FieldClass::Blob { .. } => {}
    }
    Ok(())
}

/// Whether a path names this option. Options keep only the name that is shown, while paths may have
/// the name as written, with an underscore.
fn is_option(option: &VariantOption, name: &str) -> bool {
    let shown = option.name.as_deref();
    shown == Some(name) || shown == name.strip_prefix('_')
}

/// The path of a reference as CTF 1.8 writes it, for messages.
pub(super) fn display_path(reference: &Reference) -> String {
    let root = match reference.origin {
        Origin::Root(scope) => Some(scope.name()),
        Origin::Enclosing | Origin::Innermost => None,
    };
    let names = reference
        .path
        .iter()
        .map(|name| name.as_deref().unwrap_or("(up)"));
    root.into_iter().chain(names).collect::<Vec<_>>().join(".")
}
