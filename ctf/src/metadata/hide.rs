//! Which fields are not shown.

use std::sync::Arc;

use crate::model::{FieldClass, Structure};

/// Marks the members that only steer decoding. A structure all of whose members are hidden is
/// hidden too, unless it has none.
pub(super) fn hide(structure: &mut Structure) {
    for member in &mut structure.members {
        member.hidden = hidden(&mut member.class);
    }
}

fn hidden(class: &mut FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.is_hidden(),
        FieldClass::VariableInteger(integer) => {
            (integer.role.is_some() || integer.clock.is_some()) && integer.slot.is_none()
        }
        FieldClass::Structure(structure) => {
            let structure = Arc::make_mut(structure);
            hide(structure);
            structure.is_hidden()
        }
        FieldClass::Array { element, role, .. } => hidden(Arc::make_mut(element)) || role.is_some(),
        FieldClass::Optional { class, .. } => hidden(Arc::make_mut(class)),
        FieldClass::Variant(variant) => {
            for option in &mut Arc::make_mut(variant).options {
                hidden(&mut option.class);
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
