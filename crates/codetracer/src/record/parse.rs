//! One element of `trace.json` -> a record.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Definition, Json, Record};

impl<'a> Record<'a> {
    /// Parses one element: an object of one member, whose name is the kind, or a text for a kind
    /// without payload. Members of the payload that the format does not have are ignored. Values
    /// are checked to be JSON, no more.
    ///
    /// # Errors
    /// If the text is no element, or the payload of a kind with fields of its own is not what the
    /// format says.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The definition that takes the place of an element that cannot be parsed but says that it is
    /// a definition: without it, the numbers of all later definitions would change. `None` if the
    /// element is none.
    #[must_use]
    pub fn placeholder(text: &str) -> Option<Record<'static>> {
        let element: AnyElement<'_> = serde_json::from_str(text).ok()?;
        let name = Cow::Borrowed("<invalid>");
        Some(match Definition::of_kind(&element.0)? {
            Definition::Path => Record::Path(name),
            Definition::Function => Record::Function {
                path_id: 0,
                line: 0,
                name,
            },
            Definition::Type => {
                let unknown =
                    r#"{"kind":24,"lang_type":"<invalid>","specific_info":{"kind":"None"}}"#;
                Record::Type(Json(Cow::Borrowed(unknown)))
            }
            Definition::Variable => Record::Variable {
                name,
                is_legacy: false,
            },
        })
    }
}

/// A text, borrowed from the input if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct FunctionPayload<'a> {
    path_id: u64,
    line: i64,
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct StepPayload {
    path_id: u64,
    line: i64,
}

#[derive(Deserialize)]
struct CallPayload<'a> {
    function_id: u64,
    #[serde(borrow)]
    args: &'a RawValue,
}

#[derive(Deserialize)]
struct ReturnPayload<'a> {
    #[serde(borrow)]
    return_value: &'a RawValue,
}

#[derive(Deserialize)]
struct ValuePayload<'a> {
    variable_id: u64,
    #[serde(borrow)]
    value: &'a RawValue,
}

#[derive(Deserialize)]
struct LogPayload<'a> {
    kind: u8,
    #[serde(borrow)]
    metadata: Cow<'a, str>,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

impl<'de> Deserialize<'de> for Record<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

struct ElementVisitor;

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Record<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object of one member, or the name of a kind")
    }

    fn visit_str<E: Error>(self, kind: &str) -> Result<Self::Value, E> {
        Ok(match kind {
            "DropLastStep" => Record::DropLastStep,
            kind if has_fields(kind) => return Err(E::custom(format!("{kind} without payload"))),
            kind => Record::Other {
                // The parser lends this text only for the call.
                kind: Cow::Owned(kind.to_owned()),
                payload: Json(Cow::Borrowed("null")),
            },
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some(Text(kind)) = map.next_key()? else {
            return Err(A::Error::custom("an element without kind"));
        };
        let record = parse_payload(kind, &mut map)?;
        // With two kinds readers would take different ones.
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Err(A::Error::custom("an element of two kinds"));
        }
        Ok(record)
    }
}

/// Whether the kind is one whose payload is parsed.
pub(crate) fn has_fields(kind: &str) -> bool {
    Definition::of_kind(kind).is_some()
        || matches!(kind, "Step" | "Call" | "Return" | "Value" | "Event")
}

fn parse_payload<'de, A: MapAccess<'de>>(
    kind: Cow<'de, str>,
    map: &mut A,
) -> Result<Record<'de>, A::Error> {
    Ok(match &*kind {
        "Step" => {
            let StepPayload { path_id, line } = map.next_value()?;
            Record::Step { path_id, line }
        }
        "Value" => {
            let ValuePayload { variable_id, value } = map.next_value()?;
            let value = Json::of_raw(value);
            Record::Value { variable_id, value }
        }
        "Call" => {
            let CallPayload { function_id, args } = map.next_value()?;
            let args = Json::of_raw(args);
            Record::Call { function_id, args }
        }
        "Return" => {
            let payload: ReturnPayload<'de> = map.next_value()?;
            Record::Return(Json::of_raw(payload.return_value))
        }
        "Event" => {
            let LogPayload {
                kind,
                metadata,
                content,
            } = map.next_value()?;
            Record::Log {
                kind,
                metadata,
                content,
            }
        }
        "Path" => Record::Path(map.next_value::<Text<'de>>()?.0),
        "Function" => {
            let FunctionPayload {
                path_id,
                line,
                name,
            } = map.next_value()?;
            Record::Function {
                path_id,
                line,
                name,
            }
        }
        "Type" => Record::Type(Json::of_raw(map.next_value()?)),
        "VariableName" | "Variable" => Record::Variable {
            name: map.next_value::<Text<'de>>()?.0,
            is_legacy: kind == "Variable",
        },
        "DropLastStep" => {
            // Published descriptions show `null`; writers leave the payload out.
            map.next_value::<()>()?;
            Record::DropLastStep
        }
        _ => Record::Other {
            payload: Json::of_raw(map.next_value()?),
            kind,
        },
    })
}

/// The kind of an element whatever its payload.
struct AnyElement<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for AnyElement<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KindVisitor;
        impl<'de> Visitor<'de> for KindVisitor {
            type Value = AnyElement<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object of one member")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                match map.next_entry::<Text<'de>, IgnoredAny>()? {
                    Some((Text(kind), _)) if map.next_key::<IgnoredAny>()?.is_none() => {
                        Ok(AnyElement(kind))
                    }
                    _ => Err(A::Error::custom("not an object of one member")),
                }
            }
        }
        deserializer.deserialize_map(KindVisitor)
    }
}
