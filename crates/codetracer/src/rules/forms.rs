//! Records in forms that the published types cannot parse -> the same in the form that they can.
//!
//! - Recordings before 2025-11-12 have floats as numbers; later types take them as texts only. Then
//!   `null` stood for what JSON has no number for: NaN and the infinities.
//! - The `from` of an `Assignment` is an object in the description of the format, and as this
//!   project converts it from the binary form 0. Published types can neither write nor read that.
//!   The derived parser does take an array, whose first element is the kind: `["Compound", 1, 2]`.
//!   In `["Simple", 1]` it finds no number, so that one variable is written as a compound of one.

use memchr::memmem;
use serde::Deserialize;

use crate::record::{Json, Record};

/// The end of the name of a member and the colon after it, in JSON without white space.
const FLOAT_MEMBER: &[u8] = br#""f":"#;

/// The text that stands for a float that JSON has no number for.
const NOT_A_NUMBER: &str = "NaN";

/// The record in the form that published types parse; `None` if it is in that form, or in none of
/// those above.
pub(super) fn convert(record: &Record<'_>) -> Option<Record<'static>> {
    Some(match record {
        Record::Value { variable_id, value } => Record::Value {
            variable_id: *variable_id,
            value: with_float_texts(value)?,
        },
        Record::Call { function_id, args } => Record::Call {
            function_id: *function_id,
            args: with_float_texts(args)?,
        },
        Record::Return(value) => Record::Return(with_float_texts(value)?),
        Record::Other { kind, payload } => {
            let payload = match &**kind {
                "Assignment" => assignment(payload)?,
                _ => with_float_texts(payload)?,
            };
            let kind = kind.clone().into_owned().into();
            Record::Other { kind, payload }
        }
        _ => return None,
    })
}

/// Makes texts of the floats in a value. `None` if there are none but texts. In valid JSON, a
/// quotation mark before a colon ends the name of a member. A member `f` of another kind than
/// `Float` is one that readers ignore.
fn with_float_texts(json: &Json<'_>) -> Option<Json<'static>> {
    let text = json.as_str();
    let mut converted = String::new();
    let mut copied = 0;
    for place in memmem::find_iter(text.as_bytes(), FLOAT_MEMBER) {
        let begin = place + FLOAT_MEMBER.len();
        let rest = text.get(begin..)?;
        let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let number = rest.len() - rest.trim_start_matches(is_of_number).len();
        let (float, length) = match rest.get(..number)? {
            "" if rest.starts_with("null") => (NOT_A_NUMBER, "null".len()),
            // A text already, or a member of another kind.
            "" => continue,
            number => (number, number.len()),
        };
        for part in [text.get(copied..begin)?, "\"", float, "\""] {
            converted.push_str(part);
        }
        copied = begin + length;
    }
    if copied == 0 {
        return None;
    }
    converted.push_str(text.get(copied..)?);
    Json::parse(&converted).ok().map(Json::into_owned)
}

#[derive(Deserialize)]
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

/// The description of the format calls the member `0`.
#[derive(Deserialize)]
#[serde(tag = "kind")]
enum Source {
    Simple {
        #[serde(alias = "0")]
        variable_id: u64,
    },
    Compound {
        #[serde(alias = "0")]
        variable_ids: Vec<u64>,
    },
}

/// The payload of an `Assignment` of which `from` is an object.
fn assignment(json: &Json<'_>) -> Option<Json<'static>> {
    // Assignments of the published writer are left as they are, without parsing them twice.
    if !json.as_str().contains(r#""from":{"#) {
        return None;
    }
    let Assignment { to, pass_by, from } = serde_json::from_str(json.as_str()).ok()?;
    let pass_by = match pass_by {
        PassBy::Value => "Value",
        PassBy::Reference => "Reference",
    };
    let mut text = format!(r#"{{"to":{to},"pass_by":"{pass_by}","from":["Compound""#);
    let ids = match from {
        Source::Simple { variable_id } => vec![variable_id],
        Source::Compound { variable_ids } => variable_ids,
    };
    for id in ids {
        text.push(',');
        text.push_str(&id.to_string());
    }
    text.push_str("]}");
    Json::parse(&text).ok().map(Json::into_owned)
}
