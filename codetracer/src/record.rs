//! One record of a recording.

use std::borrow::Cow;

/// One record, as an element of `trace.json` is. Text is borrowed from the input where it has no escapes.
///
/// Kinds that occur often, and definitions, which others refer to by position, have fields; all other kinds, those
/// that a later version of the format adds among them, keep their payload as JSON.
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
        /// Line, from 1.
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
        /// What it is; 12 is a message of the recorder itself.
        kind: u8,
        /// Further description.
        metadata: Cow<'a, str>,
        /// The text.
        content: Cow<'a, str>,
    },
    /// The last step did not happen.
    DropLastStep,
    /// Any other kind.
    Other {
        /// Name of the kind.
        kind: Cow<'a, str>,
        /// The payload.
        payload: Json<'a>,
    },
}

/// The text of one valid JSON value, without white space between its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json<'a>(Cow<'a, str>);

impl<'a> Json<'a> {
    /// Checks that the text is one JSON value, and removes white space between its tokens.
    ///
    /// # Errors
    /// When the text is not valid JSON.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<&serde_json::value::RawValue>(text)
            .map(|raw| Self::compact(raw.get()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Removes white space between the tokens of valid JSON.
    fn compact(text: &'a str) -> Self {
        let mut is_in_string = false;
        let mut is_escaped = false;
        let mut keep = |character: char| {
            if is_in_string {
                is_in_string = is_escaped || character != '"';
                is_escaped = !is_escaped && character == '\\';
                return true;
            }
            is_in_string = character == '"';
            !matches!(character, ' ' | '\t' | '\n' | '\r')
        };
        if text.contains([' ', '\t', '\n', '\r']) {
            Self(Cow::Owned(text.chars().filter(|c| keep(*c)).collect()))
        } else {
            Self(Cow::Borrowed(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_between_tokens_is_removed_and_in_strings_kept() {
        let json = Json::parse(" { \"a b\" : [ 1 ,\n\t2 ] , \"c\" : \" \\\" d \\\\\" } ").unwrap();
        assert_eq!(json.as_str(), r#"{"a b":[1,2],"c":" \" d \\"}"#);
        assert!(Json::parse("{} {}").is_err());
    }
}
