//! Parses attributes: those of a block, and those of a type such as `integer`.

use super::cursor::Cursor;
use super::lexer::Kind;
use super::limits::MAX_MEMBERS;
use super::syntax::{Attribute, Name, Need, Path, TypeSyntax, Value};
use crate::error::MetadataError;

/// The function that reads the type after `:=`. Types have attributes and attributes have types;
/// with this parameter only `type_syntax` depends on both.
pub(super) type ParseType = fn(&mut Cursor<'_>) -> Result<TypeSyntax, MetadataError>;

/// Parses `{ name = value; ... }`, as after `integer`.
pub(super) fn attributes(
    cursor: &mut Cursor<'_>,
    parse_type: ParseType,
) -> Result<Vec<Attribute>, MetadataError> {
    let mut attributes = Vec::new();
    cursor.demand_mark("{")?;
    while !cursor.take_end() {
        if attributes.len() == MAX_MEMBERS {
            return Err(cursor.wrong(format!("more than {MAX_MEMBERS} attributes")));
        }
        let attribute = attribute(cursor, parse_type)?;
        if let ("map", Value::Path(path)) = (&*attribute.path.joined(), &attribute.value)
            && let Some(clock) = mapped_clock(path)
        {
            cursor.needs.push_back(Need::Clock(clock));
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// The name of the clock in `clock.name.value`; `None` for any other path.
pub(super) fn mapped_clock(path: &Path) -> Option<Name> {
    let [clock, name, value] = path.words.as_slice() else {
        return None;
    };
    (**clock == *"clock" && **value == *"value").then(|| Name {
        text: name.clone(),
        at: path.at,
    })
}

/// Whether an attribute follows. The mark after the name decides, because attributes may have the
/// names of keywords, as `align` does.
pub(super) fn begins_attribute(cursor: &Cursor<'_>) -> bool {
    let mut ahead = 0;
    while let Some(Kind::Word(_)) = cursor.peek_at(ahead) {
        match cursor.peek_at(ahead + 1) {
            Some(Kind::Mark("." | "->")) => ahead += 2,
            Some(Kind::Mark("=" | ":=")) => return true,
            _ => return false,
        }
    }
    false
}

/// Parses `name = value;` or `name := type;`.
pub(super) fn attribute(
    cursor: &mut Cursor<'_>,
    parse_type: ParseType,
) -> Result<Attribute, MetadataError> {
    let path = cursor.path()?;
    let is_type = cursor.take_mark(":=");
    if !is_type {
        cursor.demand_mark("=")?;
    }
    let at = cursor.at();
    let value = if is_type {
        Value::Type(parse_type(cursor)?)
    } else {
        value(cursor)?
    };
    cursor.demand_mark(";")?;
    Ok(Attribute { path, value, at })
}

fn value(cursor: &mut Cursor<'_>) -> Result<Value, MetadataError> {
    if let Some(number) = cursor.take_number() {
        return Ok(Value::Number(number));
    }
    match cursor.peek() {
        Some(Kind::Text(text)) => {
            cursor.skip();
            Ok(Value::Text(text.clone()))
        }
        Some(Kind::Word(_)) => Ok(Value::Path(cursor.path()?)),
        _ => Err(cursor.expected("a number, a text or a name")),
    }
}
