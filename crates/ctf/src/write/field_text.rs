//! Writes the TSDL of the fields of an event class.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::declare::{DeclareError, FieldType, Width};
use super::text::{identifier, quoted};

/// The TSDL of each field, without its semicolon. Every name gets one underscore in front, so that
/// it cannot be a keyword; readers remove it.
pub(super) fn field_lines(fields: &[(String, FieldType)]) -> Result<Vec<String>, DeclareError> {
    let mut names = BTreeSet::new();
    let mut lines = Vec::new();
    for (name, of) in fields {
        if name.is_empty() {
            return Err(DeclareError::Nameless);
        }
        let mut declare = |of: &str, prefix: &str, written: &str| {
            if !names.insert(format!("{prefix}{written}")) {
                return Err(DeclareError::FieldTwice(name.clone()));
            }
            lines.push(format!("{of} {prefix}{written}"));
            Ok(())
        };
        let written = identifier(name);
        match of {
            FieldType::Unsigned(width) => declare(&unsigned(*width), "_", &written)?,
            FieldType::Signed(width) => declare(&signed(*width), "_", &written)?,
            FieldType::Hexadecimal(width) => declare(&hexadecimal(*width), "_", &written)?,
            FieldType::Float => declare("double", "_", &written)?,
            FieldType::Boolean => declare("enum bool_t", "_", &written)?,
            FieldType::Text => declare("string", "_", &written)?,
            FieldType::Enumeration(of) => {
                let fits = |(_, value): &(_, u64)| *value <= of.width.highest();
                if of.labels.is_empty() || !of.labels.iter().all(fits) {
                    return Err(DeclareError::Labels(name.clone()));
                }
                let mut text = format!("enum : {} {{", unsigned(of.width));
                for (place, (label, value)) in of.labels.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    // Writing to a `String` does not fail.
                    let _ = write!(text, "{comma} {} = {value}", quoted(label));
                }
                text.push_str(" }");
                declare(&text, "_", &written)?;
            }
            FieldType::Arguments => {
                let length = format!("{written}_length");
                // As LTTng's user space tracer names the length of a sequence.
                declare("uint8_t", "__", &length)?;
                declare("struct arg", "_", &written)?;
                if let Some(line) = lines.last_mut() {
                    let _ = write!(line, "[__{length}]");
                }
            }
            FieldType::Bytes => {
                let length = format!("{written}_length");
                declare("uint32_t", "__", &length)?;
                declare("uint8_t", "_", &written)?;
                if let Some(line) = lines.last_mut() {
                    let _ = write!(line, "[__{length}]");
                }
            }
        }
    }
    Ok(lines)
}

pub(super) fn unsigned(width: Width) -> String {
    format!("uint{}_t", width.bits())
}

pub(super) fn signed(width: Width) -> String {
    format!("int{}_t", width.bits())
}

pub(super) fn hexadecimal(width: Width) -> String {
    format!("hex{}_t", width.bits())
}
