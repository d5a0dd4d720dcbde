//! Field classes as written: one table of the properties of all types. [`build`](super::build)
//! checks which of them a type needs.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::property::{Attributes, Extensions, Name, Ordered};
use crate::model::{Label, Labels};

/// A field class, or the name of one.
#[derive(Debug, Clone)]
pub(super) enum ClassOrAlias {
    Alias(Arc<str>),
    Class(Arc<RawClass>),
}

/// The JSON object of a field class, with the properties of all types.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawClass {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) extensions: Extensions,
    #[serde(default, rename = "attributes")]
    _attributes: Attributes,
    pub(super) length: Option<u64>,
    pub(super) length_field_location: Option<Location>,
    pub(super) byte_order: Option<String>,
    pub(super) bit_order: Option<String>,
    pub(super) alignment: Option<u64>,
    pub(super) minimum_alignment: Option<u64>,
    pub(super) preferred_display_base: Option<u64>,
    pub(super) mappings: Option<Mappings>,
    pub(super) flags: Option<Mappings>,
    #[serde(default)]
    pub(super) roles: Vec<String>,
    pub(super) encoding: Option<String>,
    pub(super) media_type: Option<Name>,
    #[serde(default)]
    pub(super) member_classes: Vec<RawMember>,
    pub(super) element_field_class: Option<ClassOrAlias>,
    pub(super) field_class: Option<ClassOrAlias>,
    pub(super) selector_field_location: Option<Location>,
    pub(super) selector_field_ranges: Option<Ranges>,
    #[serde(default)]
    pub(super) options: Vec<RawOption>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawMember {
    pub(super) name: Name,
    pub(super) field_class: ClassOrAlias,
    #[serde(default)]
    pub(super) extensions: Extensions,
    #[serde(default, rename = "attributes")]
    _attributes: Attributes,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RawOption {
    pub(super) name: Option<Name>,
    pub(super) field_class: ClassOrAlias,
    pub(super) selector_field_ranges: Ranges,
    #[serde(default)]
    pub(super) extensions: Extensions,
    #[serde(default, rename = "attributes")]
    _attributes: Attributes,
}

/// The location of the field that is a length or a selector.
#[derive(Debug, Deserialize)]
pub(super) struct Location {
    pub(super) origin: Option<String>,
    pub(super) path: Vec<Option<Name>>,
}

/// Ranges of integers, first and last value, both included; at least one.
#[derive(Debug, Clone)]
pub(super) struct Ranges(pub(super) Vec<(i128, i128)>);

/// Labels with their ranges of numbers.
#[derive(Debug)]
pub(super) struct Mappings(pub(super) Arc<Labels>);

impl<'de> Deserialize<'de> for ClassOrAlias {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // By hand, because an untagged enum of serde buffers the value and loses the position of an
        // error in it.
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ClassOrAlias;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field class or the name of one")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(ClassOrAlias::Alias(name.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                RawClass::deserialize(MapAccessDeserializer::new(map))
                    .map(|class| ClassOrAlias::Class(Arc::new(class)))
            }
        }

        from.deserialize_any(Either)
    }
}

/// An integer of 64 bits, signed or unsigned: `i64` or `u64` alone would refuse half of the valid
/// bounds.
struct Bound(i128);

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = i128;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer of 64 bits")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
                Ok(number.into())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
                Ok(number.into())
            }
        }

        from.deserialize_any(Number).map(Self)
    }
}

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pairs: Vec<(Bound, Bound)> = Deserialize::deserialize(from)?;
        if pairs.is_empty() {
            return Err(D::Error::custom("a set without a range"));
        }
        let range = |(low, high): (Bound, Bound)| {
            if low.0 <= high.0 {
                Ok((low.0, high.0))
            } else {
                let (low, high) = (low.0, high.0);
                Err(D::Error::custom(format!("a range from {low} to {high}")))
            }
        };
        pairs
            .into_iter()
            .map(range)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Mappings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries: Ordered<Ranges> = Deserialize::deserialize(from)?;
        let label = |(name, Ranges(ranges))| Label { name, ranges };
        let labels = entries.0.into_iter().map(label).collect();
        Ok(Self(Arc::new(Labels::new(labels))))
    }
}
