//! Tokens of one outermost declaration into its tree: blocks and their attributes.

use super::cursor::Cursor;
use super::lexer::{Kind, Token};
use super::limits::MEMBERS;
use super::syntax::{
    Attribute, BlockKind, Entry, Name, Need, Outermost, OutermostKind, Path, Value,
};
use super::type_syntax;
use crate::error::MetadataError;

/// Reads all of `tokens`, which are one declaration with its closing `;` or `}`. Nothing if they
/// are a lone `;`.
pub(super) fn outermost(tokens: &[Token]) -> Result<Option<Outermost>, MetadataError> {
    let mut cursor = Cursor::new(tokens);
    let at = cursor.at();
    if cursor.take_mark(";") {
        return Ok(None);
    }
    let kind = match block_kind(tokens) {
        Some(kind) => {
            cursor.skip();
            OutermostKind::Block(kind, entries(&mut cursor)?)
        }
        None => OutermostKind::Type(type_syntax::declaration(&mut cursor)?),
    };
    if cursor.peek().is_some() {
        return Err(cursor.expected("the end of the declaration"));
    }
    Ok(Some(Outermost {
        kind,
        needs: cursor.needs,
        tokens: tokens.len(),
        at,
    }))
}

/// Whether a declaration that begins so is a block, which ends at its brace.
pub(super) fn block_kind(tokens: &[Token]) -> Option<BlockKind> {
    let [keyword, brace, ..] = tokens else {
        return None;
    };
    match (&keyword.kind, &brace.kind) {
        (Kind::Word(word), Kind::Mark("{")) => BlockKind::of(word),
        _ => None,
    }
}

fn entries(cursor: &mut Cursor<'_>) -> Result<Vec<Entry>, MetadataError> {
    let mut entries = Vec::new();
    cursor.demand_mark("{")?;
    while !cursor.take_mark("}") {
        if entries.len() == MEMBERS {
            return Err(cursor.wrong(format!("more than {MEMBERS} entries in a block")));
        }
        entries.push(if begins_attribute(cursor) {
            Entry::Attribute(attribute(cursor)?)
        } else if type_syntax::begins_declaration(cursor) {
            Entry::Type(type_syntax::declaration(cursor)?)
        } else {
            return Err(cursor.expected("an attribute or a type"));
        });
    }
    Ok(entries)
}

/// `{ name = value; ... }`, as after `integer`.
pub(super) fn attributes(cursor: &mut Cursor<'_>) -> Result<Vec<Attribute>, MetadataError> {
    let mut attributes = Vec::new();
    cursor.demand_mark("{")?;
    while !cursor.take_mark("}") {
        if attributes.len() == MEMBERS {
            return Err(cursor.wrong(format!("more than {MEMBERS} attributes")));
        }
        let attribute = attribute(cursor)?;
        if let ("map", Value::Path(path)) = (&*attribute.path.joined(), &attribute.value)
            && let Some(clock) = mapped_clock(path)
        {
            cursor.needs.push_back(Need::Clock(clock));
        }
        attributes.push(attribute);
    }
    Ok(attributes)
}

/// The clock's name in `clock.name.value`.
pub(super) fn mapped_clock(path: &Path) -> Option<Name> {
    let [clock, name, value] = path.words.as_slice() else {
        return None;
    };
    (**clock == *"clock" && **value == *"value").then(|| Name {
        text: name.clone(),
        at: path.at,
    })
}

/// Attributes may have the names of keywords, so what comes after the name must tell.
fn begins_attribute(cursor: &Cursor<'_>) -> bool {
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

fn attribute(cursor: &mut Cursor<'_>) -> Result<Attribute, MetadataError> {
    let path = cursor.path()?;
    let is_type = cursor.take_mark(":=");
    if !is_type {
        cursor.demand_mark("=")?;
    }
    let at = cursor.at();
    let value = if is_type {
        Value::Type(type_syntax::class(cursor)?)
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
