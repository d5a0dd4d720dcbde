//! Evaluates declarators (pointers, arrays, sequences), and the references of lengths and tags to
//! other fields.

use std::sync::Arc;

use super::cursor::is_keyword;
use super::evaluator::Evaluator;
use super::scopes::{Cost, Typed};
use super::syntax::{Declarator, LengthKind, LengthSyntax, Path, TypeKind, TypeSyntax};
use super::type_syntax::{environment_entry, pointer_to};
use crate::error::MetadataError;
use crate::model::{
    Base, Encoding, EnvironmentValue, FieldClass, Length, Origin, Position, Reference, Scope,
};

/// The beginnings of absolute paths.
const ROOTS: [(&[&str], Scope); 6] = [
    (&["trace", "packet", "header"], Scope::PacketHeader),
    (&["stream", "packet", "context"], Scope::PacketContext),
    (&["stream", "event", "header"], Scope::EventHeader),
    (&["stream", "event", "context"], Scope::CommonContext),
    (&["event", "context"], Scope::SpecificContext),
    (&["event", "fields"], Scope::Payload),
];

impl Evaluator {
    /// The type of a pointer: a number in base 16. CTF 1.8 has no size for pointers, so that the
    /// metadata must have declared a type by the name of the pointer, such as `void *`.
    pub(super) fn pointer(
        &self,
        class: &TypeSyntax,
        declarator: &Declarator,
    ) -> Result<Typed, MetadataError> {
        let key = match &class.kind {
            TypeKind::Alias(key) => key.to_string(),
            TypeKind::Struct {
                name: Some(name), ..
            } => format!("struct {}", name.text),
            TypeKind::Variant {
                name: Some(name), ..
            } => format!("variant {}", name.text),
            TypeKind::Enum {
                name: Some(name), ..
            } => format!("enum {}", name.text),
            _ => {
                let what = "a pointer to a type without a name";
                return Err(MetadataError::text(declarator.at, what));
            }
        };
        let mut typed = self.alias(&pointer_to(&key, declarator.pointers), class.at)?;
        if let FieldClass::Integer(integer) = &mut typed.class {
            integer.base = Base::Hexadecimal;
        }
        Ok(typed)
    }

    pub(super) fn array(
        &self,
        element: Typed,
        length: &LengthSyntax,
    ) -> Result<Typed, MetadataError> {
        let cost = Cost::around([element.cost], length.at)?;
        let length = self.length(length)?;
        let class = if is_text(&element.class) {
            FieldClass::Text {
                length,
                encoding: Encoding::Utf8,
            }
        } else {
            FieldClass::Array {
                element: Arc::new(element.class),
                length,
                alignment: 1,
                role: None,
            }
        };
        Ok(Typed { class, cost })
    }

    fn length(&self, length: &LengthSyntax) -> Result<Length<Reference>, MetadataError> {
        let path = match &length.kind {
            LengthKind::Number(number) => return static_length(*number, length.at),
            LengthKind::Path(path) => path,
        };
        let Some(name) = environment_entry(&path.words) else {
            return self.reference(path).map(Length::Dynamic);
        };
        match self.environment.get(&*name) {
            Some(EnvironmentValue::Integer(value)) => static_length(i128::from(*value), length.at),
            Some(EnvironmentValue::Text(_)) => {
                let what = format!("`env.{name}` is a text and no length");
                Err(MetadataError::text(length.at, what))
            }
            None => {
                let what = format!("the environment has no `{name}`");
                Err(MetadataError::text(length.at, what))
            }
        }
    }

    pub(super) fn reference(&self, path: &Path) -> Result<Reference, MetadataError> {
        let (origin, names) = origin(path)?;
        // A field may have the name of a type, but there is none outside of blocks and structures.
        if let [name] = names
            && origin == Origin::Innermost
            && self.scopes.is_outermost()
            && self.scopes.alias(name).is_some()
        {
            let what = format!("`{name}` names a type and no field");
            return Err(MetadataError::text(path.at, what));
        }
        Ok(Reference {
            origin,
            path: names.iter().cloned().map(Some).collect(),
            at: path.at,
        })
    }
}

fn origin(path: &Path) -> Result<(Origin, &[Arc<str>]), MetadataError> {
    for (prefix, scope) in ROOTS {
        let begins = prefix.len() < path.words.len()
            && prefix.iter().zip(&path.words).all(|(a, b)| **a == **b);
        if begins {
            let names = path.words.get(prefix.len()..).unwrap_or_default();
            return Ok((Origin::Root(scope), names));
        }
    }
    // No field has the name of a keyword, among them those that begin an absolute path.
    match path.words.first() {
        Some(word) if is_keyword(word) => {
            let what = format!("`{}` names no field", path.joined());
            Err(MetadataError::text(path.at, what))
        }
        _ => Ok((Origin::Innermost, &path.words)),
    }
}

fn static_length(number: i128, at: Position) -> Result<Length<Reference>, MetadataError> {
    let length = u64::try_from(number)
        .map_err(|_| MetadataError::text(at, format!("{number} is no length")))?;
    Ok(Length::Static(length))
}

/// Whether an array of these elements is a text: bytes with an encoding, signed or not.
fn is_text(element: &FieldClass<Reference>) -> bool {
    matches!(
        element,
        FieldClass::Integer(integer)
            if integer.text
                && integer.bits == 8
                && integer.alignment == 8
                && integer.labels.is_none()
    )
}
