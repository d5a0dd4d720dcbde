//! Searches for fields that the decoder needs: those with a role, and those that move a clock.

use std::sync::Arc;

use crate::model::{FieldClass, Role, Structure};

/// Whether a field of this role is anywhere in `structure`.
pub(super) fn has_role(structure: &Structure, role: Role) -> bool {
    let mut members = structure.members.iter();
    members.any(|member| class_has_role(&member.class, role))
}

fn class_has_role(class: &FieldClass, role: Role) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.role == Some(role),
        FieldClass::VariableInteger(integer) => integer.role == Some(role),
        FieldClass::Reversed(class) => class_has_role(class, role),
        FieldClass::Structure(structure) => has_role(structure, role),
        FieldClass::Variant(variant) => {
            let mut options = variant.options.iter();
            options.any(|option| class_has_role(&option.class, role))
        }
        FieldClass::Optional { class, .. } => class_has_role(class, role),
        _ => false,
    }
}

/// The clocks that the fields of a stream class move.
#[derive(Debug, Clone, Default)]
pub(super) struct MovedClocks {
    /// The first two names: a stream has one clock, so that two are enough to report an error.
    pub(super) names: Vec<Arc<str>>,
    /// Whether one of the fields is a timestamp that names no clock.
    pub(super) timed: bool,
}

impl MovedClocks {
    /// Adds the clocks of the fields of a structure.
    pub(super) fn add(&mut self, structure: &Structure) {
        for member in &structure.members {
            add_clocks_of(&member.class, self);
        }
    }

    /// Adds the clocks that have been found in other structures.
    pub(super) fn merge(&mut self, others: &Self) {
        others.names.iter().for_each(|name| self.add_name(name));
        self.timed |= others.timed;
    }

    fn add_name(&mut self, name: &Arc<str>) {
        if self.names.len() < 2 && !self.names.contains(name) {
            self.names.push(Arc::clone(name));
        }
    }
}

fn add_clocks_of(class: &FieldClass, moved: &mut MovedClocks) {
    let mut number = |clock: &Option<Arc<str>>, role: Option<Role>| {
        match clock {
            Some(clock) => moved.add_name(clock),
            None => moved.timed |= matches!(role, Some(Role::Timestamp | Role::PacketEnd)),
        };
    };
    match class {
        FieldClass::Integer(integer) => number(&integer.clock, integer.role),
        FieldClass::VariableInteger(integer) => number(&integer.clock, integer.role),
        FieldClass::Reversed(class) => add_clocks_of(class, moved),
        FieldClass::Structure(structure) => moved.add(structure),
        FieldClass::Variant(variant) => {
            for option in &variant.options {
                add_clocks_of(&option.class, moved);
            }
        }
        FieldClass::Optional { class, .. } => add_clocks_of(class, moved),
        FieldClass::Array { element, .. } => add_clocks_of(element, moved),
        _ => {}
    }
}
