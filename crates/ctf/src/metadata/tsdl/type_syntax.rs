//! Parses types.
//!
//! An identifier can be the name of a type or of a field, which only its place decides: the first
//! name where a type is possible is a type, even if a field has that name, and a name after a
//! complete type is a field, even if a type has that name. The parser therefore needs no scopes,
//! and an inner scope can reuse the names of an outer one. (The lexer of babeltrace2 2.0.4 decides
//! instead, so that it cannot.)

use std::sync::Arc;

use super::attribute_syntax::attributes;
use super::cursor::{Cursor, is_keyword};
use super::lexer::Kind;
use super::limits::{MAX_LABELS, MAX_MEMBERS};
use super::syntax::{
    Declarator, Item, LabelSyntax, LengthKind, LengthSyntax, Name, Need, TypeDeclaration, TypeKind,
    TypeSyntax,
};
use crate::error::MetadataError;

/// Keywords that form names of types, alone or several in a row.
const TYPE_WORDS: [&str; 13] = [
    "_Bool",
    "_Complex",
    "_Imaginary",
    "char",
    "const",
    "double",
    "float",
    "int",
    "long",
    "short",
    "signed",
    "unsigned",
    "void",
];

/// Keywords that begin a type of their own.
const CLASS_WORDS: [&str; 6] = [
    "enum",
    "floating_point",
    "integer",
    "string",
    "struct",
    "variant",
];

/// Keywords that may stand before the name of a type.
const CLASS_TAGS: [&str; 3] = ["enum", "struct", "variant"];

/// Whether a `typedef`, a `typealias` or a type follows.
pub(super) fn begins_declaration(cursor: &Cursor<'_>) -> bool {
    cursor.peek_word().is_some_and(|word| {
        matches!(&**word, "typedef" | "typealias")
            || CLASS_WORDS.contains(&&**word)
            || TYPE_WORDS.contains(&&**word)
            || !is_keyword(word)
    })
}

/// `typedef`, `typealias` or the definition of a named type, with its `;`.
pub(super) fn declaration(cursor: &mut Cursor<'_>) -> Result<TypeDeclaration, MetadataError> {
    if let Some(declaration) = naming(cursor)? {
        return Ok(declaration);
    }
    let class = class(cursor)?;
    if !cursor.take_mark(";") {
        return Err(cursor.expected("`;` after the definition of a type"));
    }
    definition(class)
}

fn naming(cursor: &mut Cursor<'_>) -> Result<Option<TypeDeclaration>, MetadataError> {
    let declaration = if cursor.take_word("typedef") {
        let class = class(cursor)?;
        TypeDeclaration::Typedef(class, declarators(cursor)?)
    } else if cursor.take_word("typealias") {
        let class = class(cursor)?;
        let declarator = declarator(cursor)?;
        cursor.demand_mark(":=")?;
        TypeDeclaration::Typealias(class, declarator, alias_name(cursor)?)
    } else {
        return Ok(None);
    };
    cursor.demand_mark(";")?;
    Ok(Some(declaration))
}

fn definition(class: TypeSyntax) -> Result<TypeDeclaration, MetadataError> {
    match &class.kind {
        TypeKind::Struct { body: Some(_), .. }
        | TypeKind::Variant { body: Some(_), .. }
        | TypeKind::Enum {
            labels: Some(_), ..
        } => Ok(TypeDeclaration::Definition(class)),
        _ => Err(MetadataError::text(
            class.at,
            "a name is expected after this type",
        )),
    }
}

/// Parses a type, with its attributes or body.
pub(super) fn class(cursor: &mut Cursor<'_>) -> Result<TypeSyntax, MetadataError> {
    cursor.nested(|cursor| {
        let at = cursor.at();
        let ahead =
            usize::from(matches!(cursor.peek(), Some(Kind::Word(word)) if **word == *"const"));
        let kind = match cursor.peek_at(ahead) {
            Some(Kind::Word(word)) if CLASS_WORDS.contains(&&**word) => {
                cursor.take_word("const");
                cursor.skip();
                match &**word {
                    "struct" => structure(cursor)?,
                    "variant" => variant(cursor)?,
                    "enum" => enumeration(cursor)?,
                    "integer" => TypeKind::Integer(attributes(cursor, class)?),
                    "floating_point" => TypeKind::Float(attributes(cursor, class)?),
                    _ if cursor.peek_mark("{") => TypeKind::String(attributes(cursor, class)?),
                    _ => TypeKind::String(Vec::new()),
                }
            }
            _ => TypeKind::Alias(alias_use(cursor)?),
        };
        Ok(TypeSyntax { kind, at })
    })
}

/// Parses the words of an alias in front of a declarator. The last name belongs to the declarator,
/// unless it is the only word.
fn alias_use(cursor: &mut Cursor<'_>) -> Result<Arc<str>, MetadataError> {
    let mut words: Vec<&str> = Vec::new();
    while let Some(word) = cursor.peek_word() {
        let first = words.iter().all(|word| *word == "const");
        let followed = matches!(cursor.peek_at(1), Some(Kind::Word(next)) if !is_keyword(next));
        let belongs = if is_keyword(word) {
            TYPE_WORDS.contains(&&**word)
        } else {
            first || followed
        };
        if !belongs {
            break;
        }
        words.push(word);
        cursor.skip();
    }
    if words.is_empty() {
        return Err(cursor.expected("a type"));
    }
    Ok(key(words).into())
}

/// Reads the name that a typealias binds: words, then pointers.
fn alias_name(cursor: &mut Cursor<'_>) -> Result<Name, MetadataError> {
    let at = cursor.at();
    let mut words: Vec<&str> = Vec::new();
    while let Some(word) = cursor.peek_word() {
        // The name of a structure, variant or enumeration, to which a pointer may point.
        let is_tagged = CLASS_TAGS.contains(&&**word)
            && matches!(cursor.peek_at(1), Some(Kind::Word(next)) if !is_keyword(next));
        if is_keyword(word) && !is_tagged && !TYPE_WORDS.contains(&&**word) {
            return Err(cursor.expected("the name of a type"));
        }
        words.push(word);
        cursor.skip();
    }
    // A pointer to a `const struct` is looked up by the name of the `struct` alone.
    if words.iter().any(|word| CLASS_WORDS.contains(word)) {
        words.retain(|word| *word != "const");
    }
    if words.is_empty() {
        return Err(cursor.expected("the name of a type"));
    }
    let pointers = pointers(cursor);
    let text = pointer_to(&key(words), pointers).into();
    Ok(Name { text, at })
}

/// The key of a type of several words, in which the order of C type words does not matter:
/// `long unsigned` is `unsigned long`.
fn key(mut words: Vec<&str>) -> String {
    if words.iter().all(|word| TYPE_WORDS.contains(word)) {
        words.sort_unstable();
    }
    words.join(" ")
}

/// The key of a pointer type, with one asterisk for each level.
pub(super) fn pointer_to(key: &str, pointers: u32) -> String {
    let mut key = key.to_owned();
    for _ in 0..pointers {
        key.push_str(" *");
    }
    key
}

fn pointers(cursor: &mut Cursor<'_>) -> u32 {
    let mut pointers = 0;
    while cursor.take_mark("*") {
        pointers += 1;
        // A reader does not change what it reads: `const` has no meaning here.
        while cursor.take_word("const") {}
    }
    pointers
}

fn structure(cursor: &mut Cursor<'_>) -> Result<TypeKind, MetadataError> {
    let name = cursor.take_name();
    let body = body(cursor)?;
    if name.is_none() && body.is_none() {
        return Err(cursor.expected("a name or `{` after `struct`"));
    }
    let mut align = None;
    if body.is_some() && cursor.take_word("align") {
        cursor.demand_mark("(")?;
        let at = cursor.at();
        align = Some((cursor.demand_number()?, at));
        cursor.demand_mark(")")?;
    }
    Ok(TypeKind::Struct { name, body, align })
}

fn variant(cursor: &mut Cursor<'_>) -> Result<TypeKind, MetadataError> {
    let name = cursor.take_name();
    let mut tag = None;
    if cursor.take_mark("<") {
        tag = Some(cursor.path()?);
        cursor.demand_mark(">")?;
    }
    let body = body(cursor)?;
    if name.is_none() && body.is_none() {
        return Err(cursor.expected("a name or `{` after `variant`"));
    }
    Ok(TypeKind::Variant { name, tag, body })
}

fn enumeration(cursor: &mut Cursor<'_>) -> Result<TypeKind, MetadataError> {
    let name = cursor.take_name();
    let mut container = None;
    if cursor.take_mark(":") {
        container = Some(Box::new(class(cursor)?));
    }
    let labels = cursor.peek_mark("{").then(|| labels(cursor)).transpose()?;
    if labels.is_none() && (name.is_none() || container.is_some()) {
        return Err(cursor.expected("`{` and labels"));
    }
    Ok(TypeKind::Enum {
        name,
        container,
        labels,
    })
}

fn labels(cursor: &mut Cursor<'_>) -> Result<Vec<LabelSyntax>, MetadataError> {
    let mut labels = Vec::new();
    cursor.demand_mark("{")?;
    loop {
        if labels.len() == MAX_LABELS {
            return Err(cursor.wrong(format!("more than {MAX_LABELS} labels in an enumeration")));
        }
        let at = cursor.at();
        let text = match cursor.peek() {
            Some(Kind::Word(text) | Kind::Text(text)) => text.clone(),
            _ => return Err(cursor.expected("a label")),
        };
        cursor.skip();
        let mut range = None;
        if cursor.take_mark("=") {
            let low = cursor.demand_number()?;
            let high = if cursor.take_mark("...") {
                cursor.demand_number()?
            } else {
                low
            };
            range = Some((low, high));
        }
        let name = Name { text, at };
        labels.push(LabelSyntax { name, range });
        // A comma may follow the last label, as in C.
        let more = cursor.take_mark(",");
        if cursor.take_mark("}") {
            return Ok(labels);
        }
        if !more {
            return Err(cursor.expected("`,` or `}`"));
        }
    }
}

fn body(cursor: &mut Cursor<'_>) -> Result<Option<Vec<Item>>, MetadataError> {
    if !cursor.take_mark("{") {
        return Ok(None);
    }
    let mut items = Vec::new();
    let mut fields = 0;
    while !cursor.take_end() {
        let item = item(cursor)?;
        // By name and not by line: one line may declare any number of members.
        fields += match &item {
            Item::Fields(_, declarators) => declarators.len(),
            Item::Type(_) => 1,
        };
        if fields > MAX_MEMBERS {
            return Err(cursor.wrong(format!("more than {MAX_MEMBERS} members in a type")));
        }
        items.push(item);
    }
    Ok(Some(items))
}

fn item(cursor: &mut Cursor<'_>) -> Result<Item, MetadataError> {
    if let Some(declaration) = naming(cursor)? {
        return Ok(Item::Type(declaration));
    }
    let class = class(cursor)?;
    if cursor.take_mark(";") {
        return Ok(Item::Type(definition(class)?));
    }
    let declarators = declarators(cursor)?;
    cursor.demand_mark(";")?;
    Ok(Item::Fields(class, declarators))
}

fn declarators(cursor: &mut Cursor<'_>) -> Result<Vec<Declarator>, MetadataError> {
    let mut declarators = Vec::new();
    loop {
        let declarator = declarator(cursor)?;
        if declarator.name.is_none() {
            return Err(cursor.expected("a name that is no keyword"));
        }
        declarators.push(declarator);
        if cursor.peek_mark(":") {
            return Err(cursor.wrong("bit fields of C are not allowed"));
        }
        if declarators.len() > MAX_MEMBERS {
            return Err(cursor.wrong(format!("more than {MAX_MEMBERS} names for a type")));
        }
        if !cursor.take_mark(",") {
            return Ok(declarators);
        }
    }
}

fn declarator(cursor: &mut Cursor<'_>) -> Result<Declarator, MetadataError> {
    let at = cursor.at();
    let pointers = pointers(cursor);
    let name = cursor.take_name();
    let mut lengths = Vec::new();
    while cursor.take_mark("[") {
        let at = cursor.at();
        let kind = if let Some(number) = cursor.take_number() {
            LengthKind::Number(number)
        } else if cursor.peek_word().is_some() {
            let path = cursor.path()?;
            if let Some(name) = environment_entry(&path.words) {
                cursor.needs.push_back(Need::Environment(Name {
                    text: name.into(),
                    at,
                }));
            }
            LengthKind::Path(path)
        } else {
            return Err(cursor.expected("a length, which is an integer or a field,"));
        };
        cursor.demand_mark("]")?;
        lengths.push(LengthSyntax { kind, at });
    }
    Ok(Declarator {
        pointers,
        name,
        lengths,
        at,
    })
}

/// The name of the environment entry in `env.name`; `None` for any other path.
pub(super) fn environment_entry(words: &[Arc<str>]) -> Option<String> {
    let (environment, entry) = words.split_first()?;
    (**environment == *"env" && !entry.is_empty()).then(|| entry.join("."))
}
