//! Gives roles to members of headers and packet contexts by their names, and checks their types.

use std::sync::Arc;

use crate::error::MetadataError;
use crate::model::{
    FieldClass, Integer, Length, Member, Position, Reference, Role, Scope, Structure, Variant,
    VariantOption,
};

/// The rule that a field must keep to have its role.
#[derive(Debug, Clone, Copy)]
enum Demand {
    Magic,
    Uuid,
    Unsigned,
    UnsignedOrEnum,
}

/// The root of `scope` with the roles of its members. `at` is the position for errors.
pub(super) fn assigned(
    root: &Arc<Structure<Reference>>,
    scope: Scope,
    at: Position,
) -> Result<Arc<Structure<Reference>>, MetadataError> {
    match scope {
        Scope::PacketHeader | Scope::PacketContext | Scope::EventHeader => {
            structure(root, scope, at)
        }
        Scope::CommonContext | Scope::SpecificContext | Scope::Payload => Ok(root.clone()),
    }
}

fn rule(scope: Scope, name: &str) -> Option<(Role, Demand)> {
    Some(match (scope, name) {
        (Scope::PacketHeader, "magic") => (Role::PacketMagic, Demand::Magic),
        (Scope::PacketHeader, "uuid") => (Role::MetadataUuid, Demand::Uuid),
        (Scope::PacketHeader, "stream_id") => (Role::StreamClassId, Demand::Unsigned),
        (Scope::PacketHeader, "stream_instance_id") => (Role::StreamId, Demand::Unsigned),
        (Scope::PacketContext, "packet_size") => (Role::PacketSize, Demand::Unsigned),
        (Scope::PacketContext, "content_size") => (Role::ContentSize, Demand::Unsigned),
        (Scope::PacketContext, "timestamp_begin") => (Role::Timestamp, Demand::Unsigned),
        (Scope::PacketContext, "timestamp_end") => (Role::PacketEnd, Demand::Unsigned),
        (Scope::PacketContext, "packet_seq_num") => (Role::PacketSequence, Demand::Unsigned),
        (Scope::PacketContext, "events_discarded") => (Role::DiscardedEvents, Demand::Unsigned),
        (Scope::EventHeader, "id") => (Role::EventClassId, Demand::UnsignedOrEnum),
        (Scope::EventHeader, "timestamp") => (Role::Timestamp, Demand::Unsigned),
        _ => return None,
    })
}

fn structure(
    structure: &Structure<Reference>,
    scope: Scope,
    at: Position,
) -> Result<Arc<Structure<Reference>>, MetadataError> {
    let mut members = Vec::with_capacity(structure.members.len());
    for (place, member) in structure.members.iter().enumerate() {
        let class = match rule(scope, &member.name) {
            Some((Role::PacketMagic, _)) if place != 0 => {
                let what = "`magic` must be the first member of the packet header";
                return Err(MetadataError::text(at, what));
            }
            Some((role, demand)) => given(&member.class, role, demand)
                .map_err(|what| MetadataError::text(at, format!("`{}` {what}", member.name)))?,
            None => within(&member.class, scope, at)?,
        };
        members.push(Member {
            class,
            ..member.clone()
        });
    }
    Ok(Arc::new(Structure {
        members,
        alignment: structure.alignment,
    }))
}

/// Gives roles to the members of nested structures and variants, which only event headers may have.
/// Event headers of LTTng have an `id` in front of a variant and another one in its option
/// `extended`, and a `timestamp` in each option: the decoder keeps the value that it reads last.
fn within(
    class: &FieldClass<Reference>,
    scope: Scope,
    at: Position,
) -> Result<FieldClass<Reference>, MetadataError> {
    Ok(match (class, scope) {
        (FieldClass::Structure(inner), Scope::EventHeader) => {
            FieldClass::Structure(structure(inner, scope, at)?)
        }
        (FieldClass::Variant(variant), Scope::EventHeader) => {
            let mut options = Vec::with_capacity(variant.options.len());
            for option in &variant.options {
                options.push(VariantOption {
                    class: within(&option.class, scope, at)?,
                    ..option.clone()
                });
            }
            FieldClass::Variant(Arc::new(Variant {
                options,
                selector: variant.selector.clone(),
                signed: variant.signed,
                // `resolve` makes it, when it knows the ranges of the labels.
                lookup: Arc::default(),
            }))
        }
        _ => class.clone(),
    })
}

fn given(
    class: &FieldClass<Reference>,
    role: Role,
    demand: Demand,
) -> Result<FieldClass<Reference>, &'static str> {
    match (demand, class) {
        (
            Demand::Uuid,
            FieldClass::Array {
                element,
                length: Length::Static(16),
                alignment,
                ..
            },
        ) if is_byte(element) => Ok(FieldClass::Array {
            element: element.clone(),
            length: Length::Static(16),
            alignment: *alignment,
            role: Some(role),
        }),
        (Demand::Uuid, _) => Err("must be an array of 16 bytes"),
        (Demand::Magic, FieldClass::Integer(integer))
            if integer.bits == 32 && is_plain(integer) =>
        {
            Ok(with(integer, role))
        }
        (Demand::Magic, _) => Err("must be an unsigned integer of 32 bits"),
        (Demand::Unsigned, FieldClass::Integer(integer)) if is_plain(integer) => {
            Ok(with(integer, role))
        }
        (Demand::Unsigned, _) => Err("must be an unsigned integer"),
        (Demand::UnsignedOrEnum, FieldClass::Integer(integer))
            if !integer.signed || integer.labels.is_some() =>
        {
            Ok(with(integer, role))
        }
        (Demand::UnsignedOrEnum, _) => Err("must be an unsigned integer or an enum"),
    }
}

fn with(integer: &Integer, role: Role) -> FieldClass<Reference> {
    FieldClass::Integer(Integer {
        role: Some(role),
        ..integer.clone()
    })
}

const fn is_plain(integer: &Integer) -> bool {
    !integer.signed && integer.labels.is_none()
}

fn is_byte(element: &FieldClass<Reference>) -> bool {
    matches!(
        element,
        FieldClass::Integer(integer)
            if integer.bits == 8 && integer.alignment == 8 && is_plain(integer)
    )
}
