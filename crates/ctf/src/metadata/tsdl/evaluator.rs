//! Evaluates types in their scopes, given the declarations before them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::attributes::alignment;
use super::limits::{MAX_FIELDS, MAX_OPTION_COPIES};
use super::scalars;
use super::scopes::{Cost, NamedVariant, Scopes, Typed};
use super::syntax::{
    Declarator, Item, LabelSyntax, Name, Need, Path, TypeDeclaration, TypeKind, TypeSyntax,
};
use crate::error::MetadataError;
use crate::metadata::warning::Warnings;
use crate::model::{
    ByteOrder, EnvironmentValue, FieldClass, Integer, Label, Labels, Member, Position, Reference,
    Selection, Structure, Variant, VariantOption,
};

/// The state that outlives a declaration.
pub(super) struct Evaluator {
    pub(super) scopes: Scopes,
    /// The byte order of the trace.
    pub(super) native: ByteOrder,
    pub(super) environment: HashMap<Arc<str>, EnvironmentValue>,
    pub(super) clocks: HashSet<Arc<str>>,
    pub(super) warnings: Warnings,
    /// The number of fields of all roots so far.
    pub(super) fields: u64,
    /// The number of fields that are written in all types so far.
    written: u64,
    /// The number of options that were copied for variants whose tag is given where they are used.
    option_copies: usize,
}

impl Evaluator {
    pub(super) fn new() -> Self {
        Self {
            scopes: Scopes::new(),
            native: ByteOrder::Little,
            environment: HashMap::new(),
            clocks: HashSet::new(),
            warnings: Warnings::default(),
            fields: 0,
            written: 0,
            option_copies: 0,
        }
    }

    pub(super) fn knows(&self, need: &Need) -> bool {
        match need {
            Need::Environment(name) => self.environment.contains_key(&name.text),
            Need::Clock(name) => self.clocks.contains(&name.text),
        }
    }

    /// Gives a type its names in the innermost scope.
    pub(super) fn declare(&mut self, declaration: &TypeDeclaration) -> Result<(), MetadataError> {
        match declaration {
            TypeDeclaration::Typedef(class, declarators) => {
                let mut base = None;
                for declarator in declarators {
                    let typed = self.declared(class, &mut base, declarator)?;
                    if let Some(name) = &declarator.name {
                        self.scopes.add_alias(name, typed)?;
                    }
                }
                Ok(())
            }
            TypeDeclaration::Typealias(class, declarator, name) => {
                let typed = self.declared(class, &mut None, declarator)?;
                self.scopes.add_alias(name, typed)
            }
            TypeDeclaration::Definition(class) => match &class.kind {
                // The tag of a named variant may be given where the variant is used.
                TypeKind::Variant {
                    name,
                    tag,
                    body: Some(body),
                } => self
                    .variant_body(name.as_ref(), tag.as_ref(), body, class.at)
                    .map(|_| ()),
                _ => self.class(class).map(|_| ()),
            },
        }
    }

    pub(super) fn class(&mut self, syntax: &TypeSyntax) -> Result<Typed, MetadataError> {
        let at = syntax.at;
        let class = match &syntax.kind {
            TypeKind::Alias(key) => return self.alias(key, at),
            TypeKind::Struct { name, body, align } => {
                return self.structure(name.as_ref(), body.as_deref(), *align, at);
            }
            TypeKind::Variant { name, tag, body } => {
                return self.variant(name.as_ref(), tag.as_ref(), body.as_deref(), at);
            }
            TypeKind::Enum {
                name,
                container,
                labels,
            } => {
                return self.enumeration(
                    name.as_ref(),
                    container.as_deref(),
                    labels.as_deref(),
                    at,
                );
            }
            TypeKind::Integer(attributes) => FieldClass::Integer(scalars::integer(
                attributes,
                at,
                self.native,
                &mut self.warnings,
            )?),
            TypeKind::Float(attributes) => {
                scalars::float(attributes, at, self.native, &mut self.warnings)?
            }
            TypeKind::String(attributes) => scalars::string(attributes, at, &mut self.warnings)?,
        };
        let cost = Cost::ONE;
        Ok(Typed { class, cost })
    }

    /// Finds a type by its name. `const` has no meaning to a reader, but may be part of a declared
    /// name.
    pub(super) fn alias(&self, key: &str, at: Position) -> Result<Typed, MetadataError> {
        let plain = || {
            let words: Vec<&str> = key.split(' ').filter(|word| *word != "const").collect();
            self.scopes.alias(&words.join(" "))
        };
        self.scopes
            .alias(key)
            .or_else(plain)
            .cloned()
            .ok_or_else(|| MetadataError::text(at, format!("there is no type `{key}`")))
    }

    fn structure(
        &mut self,
        name: Option<&Name>,
        body: Option<&[Item]>,
        align: Option<(i128, Position)>,
        at: Position,
    ) -> Result<Typed, MetadataError> {
        let Some(body) = body else {
            let name = name.ok_or_else(|| MetadataError::text(at, "a struct of nothing"))?;
            return self.scopes.structure(name).cloned();
        };
        let alignment = match align {
            None => 1,
            Some((number, at)) => alignment(number).ok_or_else(|| {
                MetadataError::text(at, format!("alignment {number} is no power of two"))
            })?,
        };
        let (members, cost) = self.members(body, at)?;
        let class = FieldClass::Structure(Arc::new(Structure { members, alignment }));
        let typed = Typed { class, cost };
        if let Some(name) = name {
            self.scopes.add_structure(name, typed.clone())?;
        }
        Ok(typed)
    }

    /// Evaluates the members of a body, in a scope of its own.
    fn members(
        &mut self,
        body: &[Item],
        at: Position,
    ) -> Result<(Vec<Member<Reference>>, Cost), MetadataError> {
        // After an error the scope stays entered, which does no harm: the parser is not used again.
        self.scopes.enter();
        let mut members = Vec::new();
        let mut costs = Vec::new();
        let mut names = HashSet::new();
        for item in body {
            let (class, declarators) = match item {
                Item::Fields(class, declarators) => (class, declarators),
                Item::Type(declaration) => {
                    self.declare(declaration)?;
                    continue;
                }
            };
            let mut base = None;
            for declarator in declarators {
                let typed = self.declared(class, &mut base, declarator)?;
                let Some(name) = &declarator.name else {
                    continue;
                };
                if !names.insert(&name.text) {
                    let what = format!("the name `{}` is given twice", name.text);
                    return Err(MetadataError::text(name.at, what));
                }
                self.written += 1;
                if self.written > MAX_FIELDS {
                    let what = format!("more than {MAX_FIELDS} fields in all types");
                    return Err(MetadataError::text(name.at, what));
                }
                costs.push(typed.cost);
                members.push(Member {
                    name: shown(&name.text),
                    written: name.text.clone(),
                    class: typed.class,
                    hidden: false,
                });
            }
        }
        self.scopes.leave();
        Ok((members, Cost::around(costs, at)?))
    }

    fn variant(
        &mut self,
        name: Option<&Name>,
        tag: Option<&Path>,
        body: Option<&[Item]>,
        at: Position,
    ) -> Result<Typed, MetadataError> {
        let (named, own) = match (name, body) {
            (_, Some(body)) => (self.variant_body(name, tag, body, at)?, true),
            (Some(name), None) => (self.scopes.variant(name)?.clone(), false),
            (None, None) => return Err(MetadataError::text(at, "a variant of nothing")),
        };
        let variant = match (named.tagged, tag) {
            (Some(variant), None) => variant,
            (Some(variant), Some(_)) if own => variant,
            (_, Some(tag)) => {
                self.option_copies += named.options.len();
                if self.option_copies > MAX_OPTION_COPIES {
                    let what = format!("more than {MAX_OPTION_COPIES} options of tagged variants");
                    return Err(MetadataError::text(at, what));
                }
                tagged(&named.options, self.reference(tag)?)
            }
            (None, None) => {
                return Err(MetadataError::text(
                    at,
                    "a variant without a tag: `<field>`",
                ));
            }
        };
        Ok(Typed {
            class: FieldClass::Variant(variant),
            cost: named.cost,
        })
    }

    fn variant_body(
        &mut self,
        name: Option<&Name>,
        tag: Option<&Path>,
        body: &[Item],
        at: Position,
    ) -> Result<NamedVariant, MetadataError> {
        let (members, cost) = self.members(body, at)?;
        if members.is_empty() {
            return Err(MetadataError::text(at, "a variant without options"));
        }
        let options = Arc::new(members.into_iter().map(option).collect::<Vec<_>>());
        let tagged = match tag {
            Some(tag) => Some(tagged(&options, self.reference(tag)?)),
            None => None,
        };
        let variant = NamedVariant {
            options,
            tagged,
            cost,
        };
        if let Some(name) = name {
            self.scopes.add_variant(name, variant.clone())?;
        }
        Ok(variant)
    }

    fn enumeration(
        &mut self,
        name: Option<&Name>,
        container: Option<&TypeSyntax>,
        labels: Option<&[LabelSyntax]>,
        at: Position,
    ) -> Result<Typed, MetadataError> {
        let Some(labels) = labels else {
            let name = name.ok_or_else(|| MetadataError::text(at, "an enum of nothing"))?;
            return self.scopes.enumeration(name).cloned();
        };
        let container = match container {
            Some(container) => self.class(container)?,
            // CTF 1.8 makes `int` the default, but not a built-in type.
            None => self.alias("int", at).map_err(|_| {
                MetadataError::text(at, "an enum without a type needs a type named `int`")
            })?,
        };
        let integer = match container.class {
            FieldClass::Integer(integer) if integer.labels.is_none() => integer,
            _ => {
                return Err(MetadataError::text(
                    at,
                    "the type of an enum must be an integer",
                ));
            }
        };
        let class = FieldClass::Integer(Integer {
            labels: Some(Arc::new(labelled(labels)?)),
            ..integer
        });
        let cost = Cost::ONE;
        let typed = Typed { class, cost };
        if let Some(name) = name {
            self.scopes.add_enumeration(name, typed.clone())?;
        }
        Ok(typed)
    }

    /// The type of one declarator. `base` keeps the evaluated base type for the next declarator. It
    /// is not evaluated if all declarators are pointers: a pointer does not need the type to which
    /// it points.
    fn declared(
        &mut self,
        class: &TypeSyntax,
        base: &mut Option<Typed>,
        declarator: &Declarator,
    ) -> Result<Typed, MetadataError> {
        let mut typed = if declarator.pointers > 0 {
            self.pointer(class, declarator)?
        } else if let Some(base) = base {
            base.clone()
        } else {
            base.insert(self.class(class)?).clone()
        };
        // From the last, as in C: `a[2][3]` is two arrays of three.
        for length in declarator.lengths.iter().rev() {
            typed = self.array(typed, length)?;
        }
        Ok(typed)
    }
}

fn tagged(options: &[VariantOption<Reference>], selector: Reference) -> Arc<Variant<Reference>> {
    Arc::new(Variant {
        selector,
        options: options.to_vec(),
        signed: false,
        lookup: Arc::default(),
    })
}

fn option(member: Member<Reference>) -> VariantOption<Reference> {
    VariantOption {
        name: Some(member.name),
        ranges: Selection::Label(member.written),
        class: member.class,
    }
}

/// The name that is shown: without one leading underscore, by which tracers keep names from being
/// keywords.
fn shown(written: &Arc<str>) -> Arc<str> {
    match written.strip_prefix('_') {
        Some(name) => name.into(),
        None => written.clone(),
    }
}

/// The labels of an enumeration. A label without a value has the upper bound of the label before it
/// plus 1.
fn labelled(written: &[LabelSyntax]) -> Result<Labels, MetadataError> {
    let mut labels: Vec<Label> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut next = 0;
    for label in written {
        let name = &label.name.text;
        let (low, high) = label.range.unwrap_or((next, next));
        if low > high {
            let what = format!("`{name}` begins with {low}, after its end {high}");
            return Err(MetadataError::text(label.name.at, what));
        }
        // The lexer bounds values to 64 bits, so that an `i128` does not overflow.
        next = high + 1;
        // A label may be written several times: its ranges add up.
        let place = *places.entry(name).or_insert(labels.len());
        match labels.get_mut(place) {
            Some(label) => label.ranges.push((low, high)),
            None => labels.push(Label {
                name: name.clone(),
                ranges: vec![(low, high)],
            }),
        }
    }
    Ok(Labels::new(labels))
}
