//! Builds field classes that contain no others, and parses the properties that all classes share.

use std::sync::Arc;

use super::class::RawClass;
use super::problem::Problem;
use crate::model::{
    Base, BitField, ByteOrder, Encoding, FieldClass, Integer, Labels, Length, Reference, Role,
    Scope, VariableInteger,
};

/// The use of a field class: its root, and the properties that it inherits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassContext<'a> {
    /// `None` where an alias is declared: any may use it.
    pub(super) scope: Option<Scope>,
    /// The default clock of the stream class; `None` if it has none, and outside of stream classes.
    pub(super) clock: Option<&'a Arc<str>>,
    /// The number of field classes around this one.
    pub(super) depth: usize,
}

pub(super) type Built = Result<FieldClass<Reference>, Problem>;

pub(super) fn needed<'a, T>(property: Option<&'a T>, name: &str) -> Result<&'a T, Problem> {
    property.ok_or_else(|| Problem::new(format!("missing property {name:?}")))
}

pub(super) fn unsupported(raw: &RawClass) -> Problem {
    let length = raw.length.unwrap_or_default();
    Problem::new(format!("{} of {length} bits is not supported", raw.kind))
}

pub(super) fn alignment(bits: Option<u64>) -> Result<u32, Problem> {
    let bits = bits.unwrap_or(1);
    u32::try_from(bits)
        .ok()
        .filter(|bits| bits.is_power_of_two())
        .ok_or_else(|| Problem::new(format!("alignment {bits} is not a power of two")))
}

pub(super) fn fixed_length(
    raw: &RawClass,
    supported: std::ops::RangeInclusive<u64>,
) -> Result<BitField, Problem> {
    let length = *needed(raw.length.as_ref(), "length")?;
    let bits = u8::try_from(length).map_err(|_| unsupported(raw))?;
    if !supported.contains(&length) {
        return Err(unsupported(raw));
    }
    let order = match &**needed(raw.byte_order.as_ref(), "byte-order")? {
        "little-endian" => ByteOrder::Little,
        "big-endian" => ByteOrder::Big,
        unknown => return Err(Problem::new(format!("unknown byte order {unknown:?}"))),
    };
    Ok(BitField {
        bits,
        order,
        alignment: alignment(raw.alignment)?,
        slot: None,
    })
}

/// Gives a class of a fixed number of bits the bit order that is asked for.
pub(super) fn in_bit_order(raw: &RawClass, class: FieldClass<Reference>) -> Built {
    let (bits, order) = match &class {
        FieldClass::Integer(integer) => (integer.bits, integer.order),
        FieldClass::Float(field)
        | FieldClass::Boolean(field)
        | FieldClass::BitArray(field)
        | FieldClass::BitMap(field, _) => (field.bits, field.order),
        _ => return Ok(class),
    };
    let usual = match raw.bit_order.as_deref() {
        None => return Ok(class),
        Some("first-to-last") => ByteOrder::Little,
        Some("last-to-first") => ByteOrder::Big,
        Some(unknown) => return Err(Problem::new(format!("unknown bit order {unknown:?}"))),
    };
    // One bit is the same in both orders.
    if order == usual || bits == 1 {
        return Ok(class);
    }
    Ok(FieldClass::Reversed(Arc::new(class)))
}

pub(super) fn integer(raw: &RawClass, signed: bool, place: ClassContext<'_>) -> Built {
    let bits = fixed_length(raw, 1..=64)?;
    let role = role(raw, signed, place)?;
    if role == Some(Role::PacketMagic) && bits.bits != 32 {
        return Err(Problem::new("a magic number that does not have 32 bits"));
    }
    Ok(FieldClass::Integer(Integer {
        signed,
        base: base(raw)?,
        labels: labels(raw, signed)?,
        role,
        clock: moved_clock(role, place)?,
        ..Integer::unsigned(bits.bits, bits.alignment, bits.order)
    }))
}

pub(super) fn variable_integer(raw: &RawClass, signed: bool, place: ClassContext<'_>) -> Built {
    let role = role(raw, signed, place)?;
    if role == Some(Role::PacketMagic) {
        return Err(Problem::new("a magic number that does not have 32 bits"));
    }
    Ok(FieldClass::VariableInteger(VariableInteger {
        signed,
        base: base(raw)?,
        labels: labels(raw, signed)?,
        role,
        clock: moved_clock(role, place)?,
        slot: None,
    }))
}

pub(super) fn labels(raw: &RawClass, signed: bool) -> Result<Option<Arc<Labels>>, Problem> {
    let Some(labels) = raw.mappings.as_ref().map(|mappings| &mappings.0) else {
        return Ok(None);
    };
    let mut ranges = labels.as_slice().iter().flat_map(|label| &label.ranges);
    if let Some((low, _)) = ranges.find(|(low, _)| !signed && *low < 0) {
        let what = format!("a label for {low} of an unsigned integer");
        return Err(Problem::new(what));
    }
    Ok((!labels.as_slice().is_empty()).then(|| Arc::clone(labels)))
}

pub(super) fn base(raw: &RawClass) -> Result<Base, Problem> {
    Ok(match raw.preferred_display_base {
        None | Some(10) => Base::Decimal,
        Some(2) => Base::Binary,
        Some(8) => Base::Octal,
        Some(16) => Base::Hexadecimal,
        Some(base) => return Err(Problem::new(format!("unknown base {base}"))),
    })
}

/// The role of an integer; `None` if its roles have no meaning in this scope. That is no error,
/// because an alias may be used in several scopes.
pub(super) fn role(
    raw: &RawClass,
    signed: bool,
    place: ClassContext<'_>,
) -> Result<Option<Role>, Problem> {
    let mut found = None;
    for name in &raw.roles {
        let (role, scopes): (_, &[Scope]) = match &**name {
            "packet-magic-number" => (Role::PacketMagic, &[Scope::PacketHeader]),
            "data-stream-class-id" => (Role::StreamClassId, &[Scope::PacketHeader]),
            "data-stream-id" => (Role::StreamId, &[Scope::PacketHeader]),
            "packet-total-length" => (Role::PacketSize, &[Scope::PacketContext]),
            "packet-content-length" => (Role::ContentSize, &[Scope::PacketContext]),
            "default-clock-timestamp" => {
                (Role::Timestamp, &[Scope::PacketContext, Scope::EventHeader])
            }
            "packet-end-default-clock-timestamp" => (Role::PacketEnd, &[Scope::PacketContext]),
            "packet-sequence-number" => (Role::PacketSequence, &[Scope::PacketContext]),
            "discarded-event-record-counter-snapshot" => {
                (Role::DiscardedEvents, &[Scope::PacketContext])
            }
            "event-record-class-id" => (Role::EventClassId, &[Scope::EventHeader]),
            unknown => return Err(Problem::new(format!("unknown role {unknown:?}"))),
        };
        // Negative ids, sizes and times have no meaning.
        if signed {
            return Err(Problem::new(format!("a signed integer with role {name:?}")));
        }
        if !place.scope.is_some_and(|scope| scopes.contains(&scope)) {
            continue;
        }
        if found.is_some_and(|found| found != role) {
            return Err(Problem::new("two roles of one field are not supported"));
        }
        found = Some(role);
    }
    Ok(found)
}

/// The clock that a field of this role moves.
pub(super) fn moved_clock(
    role: Option<Role>,
    place: ClassContext<'_>,
) -> Result<Option<Arc<str>>, Problem> {
    match (role, place.clock) {
        (Some(Role::Timestamp), Some(clock)) => Ok(Some(Arc::clone(clock))),
        (Some(Role::Timestamp | Role::PacketEnd), None) => {
            Err(Problem::new("a timestamp without default clock"))
        }
        _ => Ok(None),
    }
}

/// The role of a field of bytes; `fits` if it has 16 of them.
pub(super) fn uuid_role(
    raw: &RawClass,
    place: ClassContext<'_>,
    fits: bool,
) -> Result<Option<Role>, Problem> {
    match raw
        .roles
        .iter()
        .find(|name| *name != "metadata-stream-uuid")
    {
        Some(unknown) => return Err(Problem::new(format!("unknown role {unknown:?}"))),
        None if raw.roles.is_empty() => return Ok(None),
        None if !fits => return Err(Problem::new("a UUID that does not have 16 bytes")),
        None => {}
    }
    Ok((place.scope == Some(Scope::PacketHeader)).then_some(Role::MetadataUuid))
}

pub(super) fn static_length(raw: &RawClass) -> Result<Length<Reference>, Problem> {
    needed(raw.length.as_ref(), "length").map(|length| Length::Static(*length))
}

pub(super) fn static_text(raw: &RawClass) -> Built {
    let (length, encoding) = (static_length(raw)?, encoding(raw)?);
    let unit = encoding.unit();
    if let Length::Static(bytes) = length
        && bytes % u64::from(unit) != 0
    {
        return Err(Problem::new(format!(
            "{bytes} bytes are not whole code units of {unit} bytes"
        )));
    }
    Ok(FieldClass::Text { length, encoding })
}

pub(super) fn media_type(raw: &RawClass) -> Arc<str> {
    match &raw.media_type {
        Some(media_type) => Arc::clone(&media_type.0),
        None => "application/octet-stream".into(),
    }
}

pub(super) fn encoding(raw: &RawClass) -> Result<Encoding, Problem> {
    Ok(match raw.encoding.as_deref() {
        None | Some("utf-8") => Encoding::Utf8,
        Some("utf-16be") => Encoding::Utf16(ByteOrder::Big),
        Some("utf-16le") => Encoding::Utf16(ByteOrder::Little),
        Some("utf-32be") => Encoding::Utf32(ByteOrder::Big),
        Some("utf-32le") => Encoding::Utf32(ByteOrder::Little),
        Some(unknown) => return Err(Problem::new(format!("unknown encoding {unknown:?}"))),
    })
}
