//! Values of properties that fragments and field classes share.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::problem::Problem;

/// A text that becomes a name in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(pub(super) Arc<str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|text| Self(text.into()))
    }
}

/// Names of the extensions that a fragment or a field class needs.
#[derive(Debug, Default)]
pub(super) struct Extensions(Option<String>);

impl Extensions {
    /// Refuses every extension, because none is known: an extension may change how packets are
    /// decoded.
    pub(super) fn check_known(&self) -> Result<(), Problem> {
        match &self.0 {
            None => Ok(()),
            Some(name) => Err(Problem::new(format!("unknown extension {name:?}"))),
        }
    }
}

impl<'de> Deserialize<'de> for Extensions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let named: Ordered<IgnoredAny> = Deserialize::deserialize(from)?;
        Ok(Self(named.0.first().map(|(name, _)| name.to_string())))
    }
}

/// Attributes of users: an object, of which only LTTng's attributes of event classes have a meaning
/// here.
#[derive(Debug, Default)]
pub(super) struct Attributes;

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let _: HashMap<String, IgnoredAny> = Deserialize::deserialize(from)?;
        Ok(Self)
    }
}

/// An object's entries in the order in which they were written, each name once.
#[derive(Debug)]
pub(super) struct Ordered<V>(pub(super) Vec<(Arc<str>, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Ordered<V> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Entries<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = Ordered<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                let mut names = HashSet::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    // JSON leaves open which of two members of one name counts: readers would
                    // differ.
                    if !names.insert(Arc::clone(&name)) {
                        return Err(A::Error::custom(format!("{name:?} twice")));
                    }
                    entries.push((name, value));
                }
                Ok(Ordered(entries))
            }
        }

        from.deserialize_map(Entries(PhantomData))
    }
}
