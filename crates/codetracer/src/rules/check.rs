//! Whether the published types of version 0.16.3 can parse a payload. One payload that they cannot
//! parse makes a whole file unreadable. Nothing is built: members are checked as they are read.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::record::{AnyValue, Json, MAX_NESTING, nesting};

/// Levels around a payload: the array of all records, the record, and the object with the value.
const OUTER_NESTING: usize = 3;
/// The last kind of types: `Slice`.
const MAX_TYPE_KIND: u8 = 33;
/// The last kind of log records: `EvmEvent`.
pub(super) const MAX_LOG_KIND: u8 = 13;

/// Whether the text is a value.
pub(super) fn is_value(json: &Json<'_>) -> bool {
    parse::<Value>(json).is_some()
}

/// Whether the text is the payload of a `Type`.
pub(super) fn is_type(json: &Json<'_>) -> bool {
    parse::<Type>(json).is_some_and(|payload| payload.kind <= MAX_TYPE_KIND)
}

/// Whether the text is an array of arguments.
pub(super) fn are_arguments(json: &Json<'_>) -> bool {
    parse::<Vec<Argument>>(json).is_some()
}

/// The arguments of an array that can be parsed; none if it is no array.
pub(super) fn valid_arguments(json: &Json<'_>) -> Json<'static> {
    let all: Vec<&RawValue> = serde_json::from_str(json.as_str()).unwrap_or_default();
    let is_valid =
        |text: &&str| Json::parse(text).is_ok_and(|json| parse::<Argument>(&json).is_some());
    let valid: Vec<_> = all.iter().map(|one| one.get()).filter(is_valid).collect();
    let text = format!("[{}]", valid.join(","));
    Json::parse(&text).map_or_else(|_| empty_array(), Json::into_owned)
}

fn empty_array() -> Json<'static> {
    Json::parse("[]").expect("it is valid")
}

/// The kinds of records that have no fields of their own here and that published types have, with
/// what the rules need of their payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload {
    /// A kind that may stand anywhere.
    Free,
    /// A kind that needs a step before it.
    AfterStep,
    /// A `VariableCell`, which needs a step before it and an open call.
    VariableCell,
    /// `CompoundValue` of a sequence at this place.
    Compound(i64),
    /// `CompoundValue` of another value.
    NoSequence,
    /// `AssignCompoundItem` of this place.
    CompoundItem(i64),
}

/// Returns what the rules need of a payload of this kind; `Err` with whether the kind is known if
/// published types cannot parse it.
pub(super) fn payload(kind: &str, json: &Json<'_>) -> Result<Payload, bool> {
    let found = match kind {
        "Asm" => parse::<Vec<Text<'_>>>(json).map(|_| Payload::AfterStep),
        "BindVariable" => parse::<VariablePlace>(json).map(|_| Payload::Free),
        "VariableCell" => parse::<VariablePlace>(json).map(|_| Payload::VariableCell),
        "DropVariables" => parse::<Vec<u64>>(json).map(|_| Payload::Free),
        "DropVariable" | "ThreadStart" | "ThreadExit" | "ThreadSwitch" => {
            parse::<u64>(json).map(|_| Payload::Free)
        }
        "CellValue" => parse::<PlaceValue>(json).map(|_| Payload::AfterStep),
        "CompoundValue" => parse::<PlaceValue>(json).map(|payload| match payload.value {
            Value { is_sequence: true } => Payload::Compound(payload.place),
            Value { is_sequence: false } => Payload::NoSequence,
        }),
        "AssignCompoundItem" => {
            parse::<CompoundItem>(json).map(|payload| Payload::CompoundItem(payload.place))
        }
        "AssignCell" => parse::<NewValue>(json).map(|_| Payload::AfterStep),
        "Assignment" => parse::<Assignment>(json).map(|_| Payload::Free),
        _ => return Err(false),
    };
    found.ok_or(true)
}

fn parse<'a, T: Deserialize<'a>>(json: &'a Json<'_>) -> Option<T> {
    let text = json.as_str();
    // A text of a few bytes cannot be nested too deeply.
    if text.len() > MAX_NESTING && nesting(text) + OUTER_NESTING > MAX_NESTING {
        return None;
    }
    serde_json::from_str(text).ok()
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct Argument {
    variable_id: u64,
    value: Value,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct VariablePlace {
    variable_id: u64,
    place: i64,
}

#[derive(Deserialize)]
struct PlaceValue {
    place: i64,
    value: Value,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct NewValue {
    place: i64,
    new_value: Value,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct CompoundItem {
    place: i64,
    index: u64,
    item_place: i64,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct Assignment {
    to: u64,
    pass_by: PassBy,
    from: Source,
}

#[derive(Deserialize)]
enum PassBy {
    Value,
    Reference,
}

/// The derived parser takes what that of the published types does: `Compound` in an array, and no
/// `Simple` at all.
#[derive(Deserialize)]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "it is only checked that the members are there")]
enum Source {
    Simple(u64),
    Compound(Vec<u64>),
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct Type {
    kind: u8,
    lang_type: String,
    specific_info: TypeDetails,
}

#[derive(Deserialize)]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "it is only checked that the members are there")]
enum TypeDetails {
    None,
    Struct { fields: Vec<FieldType> },
    Pointer { dereference_type_id: u64 },
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "it is only checked that the members are there")]
struct FieldType {
    name: String,
    type_id: u64,
}

/// A value that published types can parse.
struct Value {
    is_sequence: bool,
}

#[derive(Debug, Clone, Copy)]
enum Member {
    Signed,
    Unsigned,
    Bool,
    Text,
    FloatText,
    Character,
    Base64,
    Value,
    Values,
}

type Members = [(&'static str, Member)];

const TYPE_ID: (&str, Member) = ("type_id", Member::Unsigned);

/// The members of each kind of value. All of them must be there.
fn members(kind: &str) -> Option<&'static Members> {
    Some(match kind {
        "Int" => &[("i", Member::Signed), TYPE_ID],
        "Float" => &[("f", Member::FloatText), TYPE_ID],
        "Bool" => &[("b", Member::Bool), TYPE_ID],
        "String" => &[("text", Member::Text), TYPE_ID],
        "Sequence" => &[
            ("elements", Member::Values),
            ("is_slice", Member::Bool),
            TYPE_ID,
        ],
        "Tuple" => &[("elements", Member::Values), TYPE_ID],
        "Struct" => &[("field_values", Member::Values), TYPE_ID],
        "Variant" => &[
            ("discriminator", Member::Text),
            ("contents", Member::Value),
            TYPE_ID,
        ],
        "Reference" => &[
            ("dereferenced", Member::Value),
            ("address", Member::Unsigned),
            ("mutable", Member::Bool),
            TYPE_ID,
        ],
        "Raw" => &[("r", Member::Text), TYPE_ID],
        "Error" => &[("msg", Member::Text), TYPE_ID],
        "None" => &[TYPE_ID],
        "Cell" => &[("place", Member::Signed)],
        "BigInt" => &[("b", Member::Base64), ("negative", Member::Bool), TYPE_ID],
        "Char" => &[("c", Member::Character), TYPE_ID],
        _ => return None,
    })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kind = None;
        let mut is_sequence = false;
        // Writers put the kind first; members before it wait until it is known.
        let mut early: Vec<(Text<'de>, &'de RawValue)> = Vec::new();
        let mut found = Found::default();
        while let Some(Text(name)) = map.next_key()? {
            match (&*name, kind) {
                ("kind", Some(_)) => return Err(A::Error::duplicate_field("kind")),
                ("kind", None) => {
                    let Text(named) = map.next_value()?;
                    is_sequence = named == "Sequence";
                    kind = Some(members(&named).ok_or(A::Error::custom("unknown kind"))?);
                }
                (_, None) => early.push((Text(name), map.next_value()?)),
                (name, Some(members)) => map.next_value_seed(found.seed(members, name)?)?,
            }
        }
        let members = kind.ok_or(A::Error::missing_field("kind"))?;
        for (Text(name), value) in early {
            let seed = found.seed(members, &name)?;
            let value = &mut serde_json::Deserializer::from_str(value.get());
            seed.deserialize(value).map_err(A::Error::custom)?;
        }
        if found.0.count_ones() as usize != members.len() {
            return Err(A::Error::custom("a member is missing"));
        }
        Ok(Value { is_sequence })
    }
}

/// The members that have been found, as bits.
#[derive(Default)]
struct Found(u32);

impl Found {
    /// The seed that checks a member, which may not be there twice. A member that the kind has not
    /// may be anything.
    fn seed<E: Error>(&mut self, members: &Members, name: &str) -> Result<MemberSeed, E> {
        let Some(place) = members.iter().position(|(known, _)| *known == name) else {
            return Ok(MemberSeed(None));
        };
        // No kind has as many members as a `u32` has bits.
        if self.0 & 1 << place != 0 {
            return Err(E::custom("a member is there twice"));
        }
        self.0 |= 1 << place;
        Ok(MemberSeed(members.get(place).map(|(_, member)| *member)))
    }
}

struct MemberSeed(Option<Member>);

impl<'de> DeserializeSeed<'de> for MemberSeed {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let is_valid = match self.0 {
            // Not `IgnoredAny`, which takes numbers and escapes that readers refuse.
            None => AnyValue::deserialize(deserializer).map(|_| true),
            Some(Member::Signed) => i64::deserialize(deserializer).map(|_| true),
            Some(Member::Unsigned) => u64::deserialize(deserializer).map(|_| true),
            Some(Member::Bool) => bool::deserialize(deserializer).map(|_| true),
            Some(Member::Character) => char::deserialize(deserializer).map(|_| true),
            Some(Member::Text) => Text::deserialize(deserializer).map(|_| true),
            Some(Member::FloatText) => {
                Text::deserialize(deserializer).map(|text| text.0.parse::<f64>().is_ok())
            }
            Some(Member::Base64) => {
                Text::deserialize(deserializer).map(|text| STANDARD.decode(&*text.0).is_ok())
            }
            Some(Member::Value) => Value::deserialize(deserializer).map(|_| true),
            Some(Member::Values) => deserializer.deserialize_seq(ValuesVisitor).map(|()| true),
        }?;
        if is_valid {
            Ok(())
        } else {
            Err(D::Error::custom("a text that is no number"))
        }
    }
}

struct ValuesVisitor;

impl<'de> Visitor<'de> for ValuesVisitor {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an array of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while values.next_element::<Value>()?.is_some() {}
        Ok(())
    }
}
