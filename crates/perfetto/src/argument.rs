//! Arguments of events, with the types of their values.

use compact_str::CompactString;

/// A text of an event. Short ones, as most names are, need no memory of their own.
pub type Text = CompactString;

/// An argument: its name and its value.
#[expect(missing_docs, reason = "the names say all")]
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    pub name: Text,
    pub value: Value,
}

/// A value of an argument.
#[expect(missing_docs, reason = "the names say all")]
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing; it is not written.
    Nothing,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Text),
    /// A number that has a name, which is what is written.
    Label(i128, Text),
    /// The members of a structure.
    Structure(Vec<Argument>),
    /// The elements of an array.
    Array(Vec<Self>),
}

impl Argument {
    /// Returns the argument of this name and value.
    #[must_use]
    pub fn new(name: impl Into<Text>, value: Value) -> Self {
        Self {
            name: name.into(),
            value,
        }
    }

    /// The number of bytes of memory that the argument takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.value.bytes()
    }
}

impl Value {
    /// The value as a number, if it is an integer.
    #[must_use]
    pub fn number(&self) -> Option<i128> {
        match self {
            Self::Unsigned(value) => Some((*value).into()),
            Self::Signed(value) => Some((*value).into()),
            Self::Label(value, _) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is one or a number that has a name.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Label(_, text) => Some(text),
            _ => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Label(_, text) => text.len(),
            Self::Structure(members) => members.iter().map(Argument::bytes).sum(),
            Self::Array(elements) => {
                let bytes = |element: &Self| size_of::<Self>() + element.bytes();
                elements.iter().map(bytes).sum()
            }
            _ => 0,
        }
    }
}
