//! The value of a field.

use std::fmt::{self, Write};
use std::sync::Arc;

/// The value of a field. A variant has the value of the option that is taken.
///
/// `Display` writes it as `babeltrace2` does, but all integers in base 10.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned integer, or bits.
    Unsigned(u64),
    /// A signed integer without labels.
    Signed(i64),
    /// A floating point number.
    Float(f64),
    /// A boolean of CTF 2; that of CTF 1.8 is an enumeration.
    Boolean(bool),
    /// A text. Bytes that are not UTF-8 are replaced by U+FFFD.
    Text(String),
    /// The bytes of a BLOB.
    Bytes(Vec<u8>),
    /// An integer or bits with labels for its values.
    Enumeration(Box<Enumeration>),
    /// An array or sequence.
    Array(Vec<Self>),
    /// A structure within another, or as an element of an array.
    Structure(Structure),
    /// An optional field that is not present.
    Absent,
}

/// An integer with labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// The integer, in the range of `u64` or `i64`.
    pub value: i128,
    /// The labels of the value, in order of declaration; empty if it has none.
    pub labels: Vec<Arc<str>>,
}

/// Values with names, in the order in which they are in the packet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Structure {
    members: Vec<(Arc<str>, Value)>,
}

impl Value {
    /// The number, if it is an integer of this range. That of an enumeration is its integer.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.as_integer()?.try_into().ok()
    }

    /// The number, if it is an integer of this range. That of an enumeration is its integer.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        self.as_integer()?.try_into().ok()
    }

    /// The number as floating point number, rounded if it is a large integer.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            #[expect(clippy::cast_precision_loss, reason = "documented")]
            _ => self.as_integer().map(|number| number as f64),
        }
    }

    /// The boolean. Tracers of CTF 1.8 record one as enumeration with the labels `true` and
    /// `false`.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Boolean(value) => Some(*value),
            Self::Enumeration(of) => match of.labels.as_slice() {
                [label] => label.parse().ok(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The text, or the first label of an enumeration.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Enumeration(of) => of.labels.first().map(|label| &**label),
            _ => None,
        }
    }

    /// The elements of an array or sequence.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(elements) => Some(elements),
            _ => None,
        }
    }

    /// The members of a structure.
    #[must_use]
    pub fn as_structure(&self) -> Option<&Structure> {
        match self {
            Self::Structure(structure) => Some(structure),
            _ => None,
        }
    }

    fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Unsigned(number) => Some((*number).into()),
            Self::Signed(number) => Some((*number).into()),
            Self::Enumeration(of) => Some(of.value),
            _ => None,
        }
    }
}

impl Structure {
    pub(super) fn new(members: Vec<(Arc<str>, Value)>) -> Self {
        Self { members }
    }

    /// The value of the first member of this name; `None` if there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.members.iter().find(|(member, _)| &**member == name);
        found.map(|(_, value)| value)
    }

    /// The names and values of its members, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether the structure has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Boolean(value) => value.fmt(f),
            Self::Text(text) => write_quoted(f, text),
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Enumeration(of) => of.fmt(f),
            Self::Array(elements) => {
                f.write_str("[")?;
                for (index, element) in elements.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} [{index}] = {element}")?;
                }
                f.write_str(" ]")
            }
            Self::Structure(structure) => structure.fmt(f),
            Self::Absent => f.write_str("<absent>"),
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (number, (name, value)) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma} {name} = {value}")?;
        }
        f.write_str(" }")
    }
}

impl fmt::Display for Enumeration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("( ")?;
        if self.labels.is_empty() {
            f.write_str("<unknown>")?;
        }
        for (number, label) in self.labels.iter().enumerate() {
            if number > 0 {
                f.write_str(", ")?;
            }
            write_quoted(f, label)?;
        }
        write!(f, " : container = {} )", self.value)
    }
}

/// Writes a text in quotation marks. Control characters are escaped: a terminal would act on them.
fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for character in text.chars() {
        match character {
            '"' | '\\' => write!(f, "\\{character}")?,
            _ if character.is_control() => write!(f, "{}", character.escape_default())?,
            _ => f.write_char(character)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(value: i128, labels: &[&str]) -> Value {
        let labels = labels.iter().map(|label| (*label).into()).collect();
        Value::Enumeration(Box::new(Enumeration { value, labels }))
    }

    #[test]
    fn a_number_converts_only_to_types_that_hold_it() {
        assert_eq!(Value::Signed(-1).as_u64(), None);
        assert_eq!(Value::Signed(-1).as_i64(), Some(-1));
        assert_eq!(Value::Unsigned(u64::MAX).as_i64(), None);
        assert_eq!(labelled(7, &["seven"]).as_u64(), Some(7));
        assert_eq!(Value::Unsigned(2).as_f64(), Some(2.0));
        assert_eq!(Value::Float(0.5).as_f64(), Some(0.5));
        assert_eq!(Value::Float(0.5).as_u64(), None);
        assert_eq!(Value::Text("7".into()).as_u64(), None);
    }

    #[test]
    fn a_labelled_value_is_a_boolean_only_if_its_label_says_so() {
        assert_eq!(labelled(1, &["true"]).as_bool(), Some(true));
        assert_eq!(labelled(0, &["false"]).as_bool(), Some(false));
        assert_eq!(labelled(1, &["yes"]).as_bool(), None);
        assert_eq!(labelled(1, &["true", "yes"]).as_bool(), None);
        assert_eq!(Value::Unsigned(1).as_bool(), None);
    }

    #[test]
    fn values_are_displayed_as_babeltrace2_prints_them() {
        let inner = Structure::new(vec![("x".into(), Value::Float(-1.5))]);
        let structure = Structure::new(vec![
            ("text".into(), Value::Text("a\"b\u{1b}".into())),
            (
                "list".into(),
                Value::Array(vec![Value::Signed(-1), Value::Structure(inner)]),
            ),
            ("none".into(), Value::Array(Vec::new())),
            ("label".into(), labelled(1, &["one", "odd"])),
            ("empty".into(), Value::Structure(Structure::default())),
        ]);
        assert_eq!(
            structure.to_string(),
            "{ text = \"a\\\"b\\u{1b}\", list = [ [0] = -1, [1] = { x = -1.5 } ], none = [ ], \
             label = ( \"one\", \"odd\" : container = 1 ), empty = { } }"
        );
    }
}
