//! The attributes of a block or a type, and checks of their values.

use std::collections::HashMap;
use std::sync::Arc;

use super::syntax::{Attribute, Value};
use crate::error::MetadataError;
use crate::metadata::warning::Warnings;
use crate::model::{ByteOrder, Position, Uuid};

/// The attributes of a block or type that have not been evaluated yet, by name.
pub(super) struct Attributes<'a> {
    /// The block or type that has the attributes, for messages.
    owner: &'static str,
    at: Position,
    left: HashMap<String, &'a Attribute>,
}

impl<'a> Attributes<'a> {
    /// Collects the attributes of one block or type.
    ///
    /// # Errors
    ///
    /// If an attribute is given twice.
    pub(super) fn new(
        owner: &'static str,
        at: Position,
        attributes: impl IntoIterator<Item = &'a Attribute>,
    ) -> Result<Self, MetadataError> {
        // By name, because attributes may be in any order.
        let mut left = HashMap::new();
        for attribute in attributes {
            let name = attribute.path.joined();
            if left.insert(name, attribute).is_some() {
                let name = attribute.path.joined();
                let what = format!("`{name}` is given twice in one `{owner}`");
                return Err(MetadataError::text(attribute.path.at, what));
            }
        }
        Ok(Self { owner, at, left })
    }

    pub(super) fn take_attribute(&mut self, name: &str) -> Option<&'a Attribute> {
        self.left.remove(name)
    }

    /// Takes an attribute and reads its value; `None` if it is not given.
    ///
    /// # Errors
    ///
    /// If the value is not of the kind that `read` expects.
    pub(super) fn read_attribute<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&Attribute) -> Result<T, MetadataError>,
    ) -> Result<Option<T>, MetadataError> {
        self.take_attribute(name).map(read).transpose()
    }

    pub(super) fn require_attribute(&mut self, name: &str) -> Result<&'a Attribute, MetadataError> {
        self.take_attribute(name).ok_or_else(|| {
            MetadataError::text(self.at, format!("`{}` has no `{name}`", self.owner))
        })
    }

    /// Warns of the attributes that have not been taken. Tracers may add attributes of their own,
    /// so that an unknown one is no error.
    pub(super) fn finish(self, warnings: &mut Warnings) {
        let mut left: Vec<_> = self.left.into_iter().collect();
        // A hash map has no order, but warnings have that of the text.
        left.sort_unstable_by_key(|(_, attribute)| attribute.path.at);
        for (name, attribute) in left {
            let what = format!("unknown attribute `{name}` in `{}`", self.owner);
            warnings.add(attribute.path.at, &what);
        }
    }
}

impl Attribute {
    /// The value as a number.
    ///
    /// # Errors
    ///
    /// If the value is of another kind. All functions of this group fail so.
    pub(super) fn number(&self) -> Result<i128, MetadataError> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.expects("an integer")),
        }
    }

    pub(super) fn unsigned(&self) -> Result<u64, MetadataError> {
        u64::try_from(self.number()?).map_err(|_| self.expects("an integer of 0 or above"))
    }

    pub(super) fn signed(&self) -> Result<i64, MetadataError> {
        i64::try_from(self.number()?).map_err(|_| self.expects("an integer of 64 bits"))
    }

    /// The value as an alignment in bits, a power of two.
    pub(super) fn alignment(&self) -> Result<u32, MetadataError> {
        alignment(self.number()?).ok_or_else(|| self.expects("a power of two"))
    }

    pub(super) fn boolean(&self) -> Result<bool, MetadataError> {
        match &self.value {
            Value::Number(0) => Some(false),
            Value::Number(1) => Some(true),
            Value::Path(path) => match &*path.joined() {
                "true" | "TRUE" => Some(true),
                "false" | "FALSE" => Some(false),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| self.expects("`true` or `false`"))
    }

    /// The value as a text, written in quotes or as a plain name.
    pub(super) fn word(&self) -> Result<Arc<str>, MetadataError> {
        match &self.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Path(path) => Ok(path.joined().into()),
            _ => Err(self.expects("a text or a name")),
        }
    }

    pub(super) fn uuid(&self) -> Result<Uuid, MetadataError> {
        match &self.value {
            Value::Text(text) => Uuid::parse(text),
            _ => None,
        }
        .ok_or_else(|| self.expects("a UUID in quotes"))
    }

    /// The value as a byte order. `native` is the order of the trace, which the word `native`
    /// means; `None` in the `trace` block itself, where that word would have no meaning.
    pub(super) fn byte_order(&self, native: Option<ByteOrder>) -> Result<ByteOrder, MetadataError> {
        let order = match (&*self.word()?, native) {
            ("le", _) => Some(ByteOrder::Little),
            ("be" | "network", _) => Some(ByteOrder::Big),
            ("native", native) => native,
            _ => None,
        };
        order.ok_or_else(|| {
            self.expects(if native.is_some() {
                "`le`, `be`, `network` or `native`"
            } else {
                "`le`, `be` or `network`"
            })
        })
    }

    /// The error for a value that is not `what`.
    pub(super) fn expects(&self, what: &str) -> MetadataError {
        let name = self.path.joined();
        let found = match &self.value {
            Value::Number(number) => format!("{number}"),
            Value::Text(text) => format!("{text:?}"),
            Value::Path(path) => format!("`{}`", path.joined()),
            Value::Type(_) => "another type".to_owned(),
        };
        MetadataError::text(self.at, format!("`{name}` must be {what}, not {found}"))
    }
}

/// The alignment in bits; `None` if the number is not a power of two.
pub(super) fn alignment(number: i128) -> Option<u32> {
    u32::try_from(number)
        .ok()
        .filter(|alignment| alignment.is_power_of_two())
}
