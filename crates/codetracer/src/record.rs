//! One record of a recording.

mod parse;
mod readable;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;

use serde_json::value::RawValue;

pub(crate) use parse::has_fields;
pub(crate) use readable::{AnyValue, MAX_NESTING, nesting};
pub(crate) use write::write_text;

/// One record, as an element of `trace.json` is. Text is borrowed from the input where it has no
/// escapes.
///
/// Kinds that occur often, and definitions, which others refer to by position, have fields; all
/// other kinds, those that a later version of the format adds among them, keep their payload as
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    /// Defines the next path.
    Path(Cow<'a, str>),
    /// Defines the next function.
    Function {
        /// Number of the path of the file that defines the function.
        path_id: u64,
        /// Line in that file, from 1.
        line: i64,
        /// Name of the function.
        name: Cow<'a, str>,
    },
    /// Defines the next type: an object of `kind`, `lang_type` and `specific_info`.
    Type(Json<'a>),
    /// Defines the next variable. Old recordings name the kind `Variable`.
    Variable {
        /// Name of the variable.
        name: Cow<'a, str>,
        /// Whether the kind is `Variable`, not `VariableName`.
        is_legacy: bool,
    },
    /// The program has reached a line.
    Step {
        /// Number of the path.
        path_id: u64,
        /// The line in that file, from 1.
        line: i64,
    },
    /// The program has called a function.
    Call {
        /// Number of the function.
        function_id: u64,
        /// An array of objects of `variable_id` and `value`.
        args: Json<'a>,
    },
    /// The innermost function has returned this value.
    Return(Json<'a>),
    /// A variable has this value at the last step.
    Value {
        /// Number of the variable.
        variable_id: u64,
        /// The value, an object that begins with `kind`.
        value: Json<'a>,
    },
    /// Output, input, an error or a message of the program: `Event` in the format.
    Log {
        /// The kind of the entry; 12 is a message of the recorder itself.
        kind: u8,
        /// A further description of the content.
        metadata: Cow<'a, str>,
        /// The text of the output, input, error or message.
        content: Cow<'a, str>,
    },
    /// The last step did not happen.
    DropLastStep,
    /// A record of any other kind.
    Other {
        /// Name of the kind.
        kind: Cow<'a, str>,
        /// The payload of the record, whatever it is.
        payload: Json<'a>,
    },
}

/// A kind of record that defines something. Others refer to it by its position among those of its
/// kind, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Definition {
    /// A path, to which functions and steps refer.
    Path,
    /// A function, to which calls refer.
    Function,
    /// A type, to which values refer.
    Type,
    /// A variable, by either name of the kind.
    Variable,
}

impl Definition {
    /// The definition that records of this kind make; `None` if they make none.
    #[must_use]
    pub fn of_kind(kind: &str) -> Option<Self> {
        Some(match kind {
            "Path" => Self::Path,
            "Function" => Self::Function,
            "Type" => Self::Type,
            "VariableName" | "Variable" => Self::Variable,
            _ => return None,
        })
    }
}

impl Record<'_> {
    /// The name of the kind, as in the files of a recording.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Path(_) => "Path",
            Self::Function { .. } => "Function",
            Self::Type(_) => "Type",
            Self::Variable {
                is_legacy: false, ..
            } => "VariableName",
            Self::Variable {
                is_legacy: true, ..
            } => "Variable",
            Self::Step { .. } => "Step",
            Self::Call { .. } => "Call",
            Self::Return(_) => "Return",
            Self::Value { .. } => "Value",
            Self::Log { .. } => "Event",
            Self::DropLastStep => "DropLastStep",
            Self::Other { kind, .. } => kind,
        }
    }

    /// The kind of definition that the record makes; `None` if it makes none.
    #[must_use]
    pub fn definition(&self) -> Option<Definition> {
        match self {
            Self::Path(_) => Some(Definition::Path),
            Self::Function { .. } => Some(Definition::Function),
            Self::Type(_) => Some(Definition::Type),
            Self::Variable { .. } => Some(Definition::Variable),
            _ => None,
        }
    }

    /// Copies what is borrowed.
    #[must_use]
    pub fn into_owned(self) -> Record<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Path(path) => Record::Path(text(path)),
            Self::Function {
                path_id,
                line,
                name,
            } => Record::Function {
                path_id,
                line,
                name: text(name),
            },
            Self::Type(json) => Record::Type(json.into_owned()),
            Self::Variable { name, is_legacy } => Record::Variable {
                name: text(name),
                is_legacy,
            },
            Self::Step { path_id, line } => Record::Step { path_id, line },
            Self::Call { function_id, args } => Record::Call {
                function_id,
                args: args.into_owned(),
            },
            Self::Return(value) => Record::Return(value.into_owned()),
            Self::Value { variable_id, value } => Record::Value {
                variable_id,
                value: value.into_owned(),
            },
            Self::Log {
                kind,
                metadata,
                content,
            } => Record::Log {
                kind,
                metadata: text(metadata),
                content: text(content),
            },
            Self::DropLastStep => Record::DropLastStep,
            Self::Other { kind, payload } => Record::Other {
                kind: text(kind),
                payload: payload.into_owned(),
            },
        }
    }
}

/// The text of one valid JSON value, without white space between its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json<'a>(Cow<'a, str>);

impl<'a> Json<'a> {
    /// Checks that the text is one JSON value, and removes white space between its tokens.
    ///
    /// # Errors
    /// If the text is not valid JSON.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&RawValue>(text).map(Self::of_raw)
    }

    /// Takes a value that has been checked.
    pub(crate) fn of_raw(raw: &'a RawValue) -> Self {
        Self(compact(raw.get()))
    }

    /// Returns the text of the value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Copies what is borrowed.
    #[must_use]
    pub fn into_owned(self) -> Json<'static> {
        Json(Cow::Owned(self.0.into_owned()))
    }
}

/// Removes white space between the tokens of valid JSON.
fn compact(text: &str) -> Cow<'_, str> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    // Writers mostly put no white space: then nothing is copied.
    if !text.bytes().any(is_space) {
        return Cow::Borrowed(text);
    }
    let mut is_in_string = false;
    let mut is_escaped = false;
    let keep = |character: &char| {
        if is_in_string {
            is_in_string = is_escaped || *character != '"';
            is_escaped = !is_escaped && *character == '\\';
            return true;
        }
        is_in_string = *character == '"';
        !matches!(character, ' ' | '\t' | '\n' | '\r')
    };
    Cow::Owned(text.chars().filter(keep).collect())
}
