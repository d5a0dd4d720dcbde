//! Which fields steer decoding: those with a role, and those that move a clock.

use std::sync::Arc;

use crate::model::{FieldClass, Role, Structure};

/// Whether a field of this role is anywhere in `structure`.
pub(super) fn has(structure: &Structure, role: Role) -> bool {
    let mut members = structure.members.iter();
    members.any(|member| class_has(&member.class, role))
}

fn class_has(class: &FieldClass, role: Role) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.role == Some(role),
        FieldClass::VariableInteger(integer) => integer.role == Some(role),
        FieldClass::Structure(structure) => has(structure, role),
        FieldClass::Variant(variant) => {
            let mut options = variant.options.iter();
            options.any(|option| class_has(&option.class, role))
        }
        FieldClass::Optional { class, .. } => class_has(class, role),
        _ => false,
    }
}

/// Collects the clocks that fields move, and whether there is a time without one.
pub(super) fn clocks_in_structure<'a>(
    structure: &'a Structure,
    names: &mut Vec<&'a Arc<str>>,
    timed: &mut bool,
) {
    for member in &structure.members {
        clocks_in(&member.class, names, timed);
    }
}

fn clocks_in<'a>(class: &'a FieldClass, names: &mut Vec<&'a Arc<str>>, timed: &mut bool) {
    let mut number = |clock: &'a Option<Arc<str>>, role: Option<Role>| {
        match clock {
            Some(clock) => names.push(clock),
            None => *timed |= matches!(role, Some(Role::Timestamp | Role::PacketEnd)),
        };
    };
    match class {
        FieldClass::Integer(integer) => number(&integer.clock, integer.role),
        FieldClass::VariableInteger(integer) => number(&integer.clock, integer.role),
        FieldClass::Structure(structure) => clocks_in_structure(structure, names, timed),
        FieldClass::Variant(variant) => {
            for option in &variant.options {
                clocks_in(&option.class, names, timed);
            }
        }
        FieldClass::Optional { class, .. } => clocks_in(class, names, timed),
        FieldClass::Array { element, .. } => clocks_in(element, names, timed),
        _ => {}
    }
}
