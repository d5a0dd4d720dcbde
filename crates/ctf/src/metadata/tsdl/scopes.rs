//! The scopes in which names of types are visible.

use std::collections::HashMap;
use std::sync::Arc;

use super::limits::{MAX_NESTING, MAX_ROOT_FIELDS, MAX_TYPES};
use super::syntax::Name;
use crate::error::MetadataError;
use crate::model::{FieldClass, Position, Reference, Variant, VariantOption};

/// A type with the cost of a walk over it.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    pub(super) class: FieldClass<Reference>,
    pub(super) cost: Cost,
}

/// The depth and size of a type. The length of the text limits neither, because each use of a named
/// type repeats its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// The number of types within each other.
    depth: u32,
    /// Fields, of an array one element.
    pub(super) fields: u64,
}

impl Cost {
    /// The cost of a type that holds no other.
    pub(super) const ONE: Self = Self {
        depth: 1,
        fields: 1,
    };

    /// The cost of a type that holds types of `parts`.
    pub(super) fn around(
        parts: impl IntoIterator<Item = Self>,
        at: Position,
    ) -> Result<Self, MetadataError> {
        let mut cost = Self::ONE;
        for part in parts {
            // Saturating: types that use each other twice double the number of fields at every
            // step.
            cost.depth = cost.depth.max(part.depth.saturating_add(1));
            cost.fields = cost.fields.saturating_add(part.fields);
        }
        let what = if cost.depth > MAX_NESTING {
            format!("more than {MAX_NESTING} types within each other")
        } else if cost.fields > MAX_ROOT_FIELDS {
            format!("more than {MAX_ROOT_FIELDS} fields within one type")
        } else {
            return Ok(cost);
        };
        Err(MetadataError::text(at, what))
    }
}

/// A variant with a name. Its tag may be given at its definition or where it is used.
#[derive(Debug, Clone)]
pub(super) struct NamedVariant {
    pub(super) options: Arc<Vec<VariantOption<Reference>>>,
    /// The variant with the tag of its definition; `None` if the tag is given where it is used.
    pub(super) tagged: Option<Arc<Variant<Reference>>>,
    pub(super) cost: Cost,
}

/// A scope with its four name spaces.
#[derive(Debug, Clone, Default)]
struct Scope {
    aliases: HashMap<Arc<str>, Typed>,
    structs: HashMap<Arc<str>, Typed>,
    variants: HashMap<Arc<str>, NamedVariant>,
    enums: HashMap<Arc<str>, Typed>,
}

/// Scopes within each other: the root, then a block, then structures and variants.
#[derive(Debug, Clone)]
pub(super) struct Scopes {
    root: Scope,
    /// The number of types in the root scope.
    types: usize,
    inner: Vec<Scope>,
}

impl Scopes {
    pub(super) fn new() -> Self {
        Self {
            root: Scope::default(),
            types: 0,
            inner: Vec::new(),
        }
    }

    pub(super) fn enter(&mut self) {
        self.inner.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.inner.pop();
    }

    /// Whether no block, structure or variant is around.
    pub(super) fn is_outermost(&self) -> bool {
        self.inner.is_empty()
    }

    pub(super) fn alias(&self, key: &str) -> Option<&Typed> {
        self.find(|scope| scope.aliases.get(key))
    }

    pub(super) fn structure(&self, name: &Name) -> Result<&Typed, MetadataError> {
        self.find(|scope| scope.structs.get(&name.text))
            .ok_or_else(|| unknown("struct", name))
    }

    pub(super) fn variant(&self, name: &Name) -> Result<&NamedVariant, MetadataError> {
        self.find(|scope| scope.variants.get(&name.text))
            .ok_or_else(|| unknown("variant", name))
    }

    pub(super) fn enumeration(&self, name: &Name) -> Result<&Typed, MetadataError> {
        self.find(|scope| scope.enums.get(&name.text))
            .ok_or_else(|| unknown("enum", name))
    }

    pub(super) fn add_alias(&mut self, name: &Name, typed: Typed) -> Result<(), MetadataError> {
        add(&mut self.innermost(name)?.aliases, "type", name, typed)
    }

    pub(super) fn add_structure(&mut self, name: &Name, typed: Typed) -> Result<(), MetadataError> {
        add(&mut self.innermost(name)?.structs, "struct", name, typed)
    }

    pub(super) fn add_variant(
        &mut self,
        name: &Name,
        variant: NamedVariant,
    ) -> Result<(), MetadataError> {
        add(
            &mut self.innermost(name)?.variants,
            "variant",
            name,
            variant,
        )
    }

    pub(super) fn add_enumeration(
        &mut self,
        name: &Name,
        typed: Typed,
    ) -> Result<(), MetadataError> {
        add(&mut self.innermost(name)?.enums, "enum", name, typed)
    }

    fn find<'a, T>(&'a self, look: impl Fn(&'a Scope) -> Option<T>) -> Option<T> {
        self.inner.iter().rev().chain([&self.root]).find_map(look)
    }

    /// The scope to which `name` is going to be added.
    fn innermost(&mut self, name: &Name) -> Result<&mut Scope, MetadataError> {
        if let Some(scope) = self.inner.last_mut() {
            return Ok(scope);
        }
        // Inner scopes are dropped with their block, but the root scope lives as long as the
        // metadata.
        self.types += 1;
        if self.types > MAX_TYPES {
            let what = format!("more than {MAX_TYPES} types");
            return Err(MetadataError::text(name.at, what));
        }
        Ok(&mut self.root)
    }
}

fn unknown(what: &str, name: &Name) -> MetadataError {
    MetadataError::text(name.at, format!("there is no `{what} {}`", name.text))
}

fn add<T>(
    space: &mut HashMap<Arc<str>, T>,
    what: &str,
    name: &Name,
    declared: T,
) -> Result<(), MetadataError> {
    if space.insert(name.text.clone(), declared).is_none() {
        return Ok(());
    }
    let what = format!("the {what} `{}` is declared twice in one scope", name.text);
    Err(MetadataError::text(name.at, what))
}
