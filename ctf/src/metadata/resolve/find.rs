//! Finds the fields that are lengths and selectors, by the paths that metadata gives.

use std::sync::Arc;

use super::{FieldsLeft, Found, Frame, Kind, Resolver, Slots};
use crate::error::MetadataError;
use crate::metadata::hidden::mark_hidden;
use crate::model::{
    BitField, FieldClass, Integer, Labels, Origin, Reference, Scope, Slot, VariableInteger,
    VariantOption,
};

impl Resolver<'_, '_> {
    pub(super) fn resolve_reference(
        &mut self,
        reference: &Reference,
    ) -> Result<Found, MetadataError> {
        self.find_field(reference)
            .and_then(|found| found.ok_or("has not been declared before"))
            .map_err(|why| {
                let what = format!("{} {why}", display_path(reference));
                MetadataError::text(reference.at, what)
            })
    }

    /// Finds the field that `reference` names; `None` if it has not been declared before.
    fn find_field(&mut self, reference: &Reference) -> Result<Option<Found>, &'static str> {
        const LEAVES_ROOT: &str = "leaves its root";
        if reference.origin == Origin::Enclosing {
            let mut frame = self.frames.len().saturating_sub(1);
            let mut down = Vec::new();
            for step in &reference.path {
                match step {
                    Some(name) => down.push(Arc::clone(name)),
                    None if !down.is_empty() => {
                        down.pop();
                    }
                    None if frame > 0 => frame -= 1,
                    None => return Err(LEAVES_ROOT),
                }
            }
            return self.find_in_current_root(frame, &down);
        }
        let names: Option<Vec<Arc<str>>> = reference.path.iter().cloned().collect();
        let names = names.ok_or(LEAVES_ROOT)?;
        match reference.origin {
            Origin::Root(scope) if scope != self.scope => self.find_in_root(scope, &names),
            Origin::Root(_) | Origin::Enclosing => self.find_in_current_root(0, &names),
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
                    None => Ok(None),
                }
            }
        }
    }

    /// Finds a field in the root that is being resolved, from the structure `frame` on.
    fn find_in_current_root(
        &mut self,
        mut frame: usize,
        mut names: &[Arc<str>],
    ) -> Result<Option<Found>, &'static str> {
        let slots = match self.scope {
            Scope::PacketHeader => &mut *self.roots.trace_slots,
            Scope::PacketContext | Scope::EventHeader | Scope::CommonContext => {
                &mut *self.roots.stream_slots
            }
            Scope::SpecificContext | Scope::Payload => &mut *self.roots.event_slots,
        };
        let left = &mut *self.roots.fields_left;
        loop {
            let (Some(here), Some((name, rest))) =
                (self.frames.get_mut(frame), names.split_first())
            else {
                return Ok(None);
            };
            left.count_comparisons(here.members.len())?;
            let mut members = here.members.iter_mut();
            if let Some(member) = members.find(|member| member.written == *name) {
                return assign_slot(&mut member.class, rest, slots, left);
            }
            if here.current != *name {
                return Ok(None);
            }
            // The path leads through a structure that is not complete yet: continue in its next frame.
            names = rest;
            for option in &here.options {
                if let Some((_, rest)) = names.split_first().filter(|(name, _)| *name == option) {
                    names = rest;
                }
            }
            frame += 1;
        }
    }

    fn find_in_root(
        &mut self,
        scope: Scope,
        names: &[Arc<str>],
    ) -> Result<Option<Found>, &'static str> {
        let roots = &mut *self.roots;
        let (root, slots) = match scope {
            Scope::PacketHeader => (&mut *roots.packet_header, &mut *roots.trace_slots),
            Scope::PacketContext => (&mut *roots.packet_context, &mut *roots.stream_slots),
            Scope::EventHeader => (&mut *roots.event_header, &mut *roots.stream_slots),
            Scope::CommonContext => (&mut *roots.event_context, &mut *roots.stream_slots),
            Scope::SpecificContext => (&mut *roots.specific_context, &mut *roots.event_slots),
            // The payload is the last root: nothing behind it can refer to it.
            Scope::Payload => return Ok(None),
        };
        let Some(root) = root else {
            return Ok(None);
        };
        let root = Arc::make_mut(root);
        let Some((name, rest)) = names.split_first() else {
            return Ok(None);
        };
        let left = &mut *roots.fields_left;
        // Who shows the fields of an event begins behind its header.
        left.has_distant_references |= scope == Scope::EventHeader;
        left.count_comparisons(root.members.len())?;
        let mut members = root.members.iter_mut();
        let Some(member) = members.find(|member| member.written == *name) else {
            return Ok(None);
        };
        let before = *slots;
        let found = assign_slot(&mut member.class, rest, slots, left);
        // A field that others refer to is no longer hidden.
        if *slots != before {
            mark_hidden(root);
        }
        found
    }
}

/// Gives the field at the end of the path a slot.
fn assign_slot(
    class: &mut FieldClass,
    names: &[Arc<str>],
    slots: &mut Slots,
    left: &mut FieldsLeft,
) -> Result<Option<Found>, &'static str> {
    let mut keep = |slot: &mut Option<Slot>, kind, labels: Option<&Arc<Labels>>| {
        if !names.is_empty() {
            return Ok(None);
        }
        if slot.is_none() {
            *slot = slots.allocate();
        }
        let slot = slot.ok_or("is one of too many fields that others refer to")?;
        Ok(Some(Found {
            slot,
            kind,
            labels: labels.cloned(),
        }))
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
        }) => keep(slot, kind(*signed), labels.as_ref()),
        FieldClass::Boolean(BitField { slot, .. }) => keep(slot, Kind::Boolean, None),
        FieldClass::Reversed(class) => assign_slot(Arc::make_mut(class), names, slots, left),
        FieldClass::Structure(structure) => {
            let Some((name, rest)) = names.split_first() else {
                return Err("is a structure, no number");
            };
            left.count_comparisons(structure.members.len())?;
            let mut members = Arc::make_mut(structure).members.iter_mut();
            match members.find(|member| member.written == *name) {
                Some(member) => assign_slot(&mut member.class, rest, slots, left),
                None => Ok(None),
            }
        }
        FieldClass::Variant(variant) => {
            let Some((name, rest)) = names.split_first() else {
                return Err("is a variant, no number");
            };
            // An event that takes another option leaves the value of the event before it.
            left.has_distant_references = true;
            left.count_comparisons(variant.options.len())?;
            let mut options = Arc::make_mut(variant).options.iter_mut();
            match options.find(|option| is_option(option, name)) {
                Some(option) => assign_slot(&mut option.class, rest, slots, left),
                None => Ok(None),
            }
        }
        FieldClass::Optional { class, .. } => {
            left.has_distant_references = true;
            assign_slot(Arc::make_mut(class), names, slots, left)
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

/// Whether a path names this option. Options keep only the name that is shown, while paths may have the name
/// as written, with an underscore.
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
