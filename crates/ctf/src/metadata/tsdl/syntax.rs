//! The syntax tree of one declaration, before it is evaluated.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::model::Position;

/// A word with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: Arc<str>,
    pub(super) at: Position,
}

/// Words with dots between them. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) words: Vec<Arc<str>>,
    pub(super) at: Position,
}

impl Path {
    pub(super) fn joined(&self) -> String {
        self.words.join(".")
    }
}

/// A declaration of the outermost level.
#[derive(Debug, Clone)]
pub(super) struct Outermost {
    pub(super) kind: OutermostKind,
    /// The names that must be known before it can be evaluated, in order of appearance.
    pub(super) needs: VecDeque<Need>,
    /// The number of its tokens.
    pub(super) tokens: usize,
    pub(super) at: Position,
}

#[derive(Debug, Clone)]
pub(super) enum OutermostKind {
    Block(BlockKind, Vec<Entry>),
    Type(TypeDeclaration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Trace,
    Environment,
    Clock,
    Stream,
    Event,
    Callsite,
}

impl BlockKind {
    pub(super) fn of(keyword: &str) -> Option<Self> {
        Some(match keyword {
            "trace" => Self::Trace,
            "env" => Self::Environment,
            "clock" => Self::Clock,
            "stream" => Self::Stream,
            "event" => Self::Event,
            "callsite" => Self::Callsite,
            _ => return None,
        })
    }

    pub(super) const fn keyword(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Environment => "env",
            Self::Clock => "clock",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Callsite => "callsite",
        }
    }
}

/// A name that another block declares, perhaps later in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Need {
    /// The environment entry that is the length of an array.
    Environment(Name),
    /// The clock to which an integer is mapped.
    Clock(Name),
}

/// An entry of a block.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Attribute(Attribute),
    Type(TypeDeclaration),
}

/// `path = value` or `path := type`.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) path: Path,
    pub(super) value: Value,
    /// The position of the value.
    pub(super) at: Position,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Number(i128),
    Text(Arc<str>),
    Path(Path),
    Type(TypeSyntax),
}

/// A declaration of a type name, without a field.
#[derive(Debug, Clone)]
pub(super) enum TypeDeclaration {
    /// `typedef class a, *b, c[2];`
    Typedef(TypeSyntax, Vec<Declarator>),
    /// `typealias class declarator := name;`
    Typealias(TypeSyntax, Declarator, Name),
    /// `struct name { ... };`
    Definition(TypeSyntax),
}

/// A type as written.
#[derive(Debug, Clone)]
pub(super) struct TypeSyntax {
    pub(super) kind: TypeKind,
    pub(super) at: Position,
}

#[derive(Debug, Clone)]
pub(super) enum TypeKind {
    /// An alias, which may consist of several words.
    Alias(Arc<str>),
    Integer(Vec<Attribute>),
    Float(Vec<Attribute>),
    String(Vec<Attribute>),
    Struct {
        name: Option<Name>,
        body: Option<Vec<Item>>,
        align: Option<(i128, Position)>,
    },
    Variant {
        name: Option<Name>,
        tag: Option<Path>,
        body: Option<Vec<Item>>,
    },
    Enum {
        name: Option<Name>,
        container: Option<Box<TypeSyntax>>,
        labels: Option<Vec<LabelSyntax>>,
    },
}

/// An entry of the body of a structure or a variant.
#[derive(Debug, Clone)]
pub(super) enum Item {
    /// The fields of one type: `class a, b[2];`.
    Fields(TypeSyntax, Vec<Declarator>),
    Type(TypeDeclaration),
}

/// The part after a type: pointers, a name, lengths.
#[derive(Debug, Clone)]
pub(super) struct Declarator {
    /// The number of asterisks.
    pub(super) pointers: u32,
    pub(super) name: Option<Name>,
    pub(super) lengths: Vec<LengthSyntax>,
    pub(super) at: Position,
}

#[derive(Debug, Clone)]
pub(super) struct LengthSyntax {
    pub(super) kind: LengthKind,
    pub(super) at: Position,
}

#[derive(Debug, Clone)]
pub(super) enum LengthKind {
    Number(i128),
    Path(Path),
}

/// A label of an enumeration.
#[derive(Debug, Clone)]
pub(super) struct LabelSyntax {
    pub(super) name: Name,
    /// First and last value, if they were given.
    pub(super) range: Option<(i128, i128)>,
}
