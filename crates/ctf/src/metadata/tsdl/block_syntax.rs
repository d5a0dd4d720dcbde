//! Parses the tokens of one outermost declaration into its tree: blocks and their entries.

use super::attribute_syntax::{attribute, begins_attribute};
use super::cursor::Cursor;
use super::lexer::{Kind, Token};
use super::limits::MAX_MEMBERS;
use super::syntax::{BlockKind, Entry, Outermost, OutermostKind};
use super::type_syntax;
use crate::error::MetadataError;
use crate::metadata::warning::Warnings;

/// Parses the tokens of one declaration, with the `}` that closes a block or the `;` that ends
/// another one; `None` for a lone `;`.
pub(super) fn outermost(
    tokens: &[Token],
    warnings: &mut Warnings,
) -> Result<Option<Outermost>, MetadataError> {
    let mut cursor = Cursor::new(tokens, warnings);
    let at = cursor.at();
    if cursor.take_extra_semicolon() {
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

/// The kind of the block that begins with these tokens; `None` if they do not begin a block.
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
    while !cursor.take_end() {
        if entries.len() == MAX_MEMBERS {
            return Err(cursor.wrong(format!("more than {MAX_MEMBERS} entries in a block")));
        }
        entries.push(if begins_attribute(cursor) {
            Entry::Attribute(attribute(cursor, type_syntax::class)?)
        } else if type_syntax::begins_declaration(cursor) {
            Entry::Type(type_syntax::declaration(cursor)?)
        } else {
            return Err(cursor.expected("an attribute or a type"));
        });
    }
    Ok(entries)
}
