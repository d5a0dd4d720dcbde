//! Marks the fields that are not shown.

use std::sync::Arc;

use crate::model::{FieldClass, Structure};

/// Marks the members that only the decoder needs. A structure all of whose members are hidden is
/// hidden too, unless it has none.
pub(super) fn mark_hidden(structure: &mut Structure) {
    for member in &mut structure.members {
        member.hidden = mark_class_hidden(&mut member.class);
    }
}

fn mark_class_hidden(class: &mut FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.is_hidden(),
        FieldClass::VariableInteger(integer) => {
            (integer.role.is_some() || integer.clock.is_some()) && integer.slot.is_none()
        }
        // `make_mut` copies only what a clone of the trace shares: a class that has just been
        // resolved has one owner.
        FieldClass::Reversed(class) => mark_class_hidden(Arc::make_mut(class)),
        FieldClass::Structure(structure) => {
            let structure = Arc::make_mut(structure);
            mark_hidden(structure);
            structure.is_hidden()
        }
        FieldClass::Array { element, role, .. } => {
            mark_class_hidden(Arc::make_mut(element)) || role.is_some()
        }
        FieldClass::Optional { class, .. } => mark_class_hidden(Arc::make_mut(class)),
        FieldClass::Variant(variant) => {
            for option in &mut Arc::make_mut(variant).options {
                mark_class_hidden(&mut option.class);
            }
            false
        }
        FieldClass::Blob { role, .. } => role.is_some(),
        FieldClass::Float(_)
        | FieldClass::Boolean(_)
        | FieldClass::BitArray(_)
        | FieldClass::BitMap(..)
        | FieldClass::String(_)
        | FieldClass::Text { .. } => false,
    }
}
