//! The schema of a table: which columns the fields of an event class become.
//!
//! A field becomes a *node*. The nodes have the shape of what a [`Visitor`](ctf::decode::Visitor)
//! sees of the fields, and each knows its columns by number, and the level at which it is defined
//! (Dremel's definition level, with which Parquet tells null from a value).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ctf::decode::Event;
use ctf::model::{FieldClass, Scope, Structure};
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

/// Largest number of columns of a table: more than any tracer writes, few enough that a table of
/// one row is no burden.
pub(super) const MAX_COLUMNS: usize = 4096;
/// Largest number of bytes of a name of a column.
const MAX_NAME_BYTES: usize = 200;
/// Largest number of fields of one event whose kinds are remembered.
const MAX_REMEMBERED_FIELDS: usize = 1 << 14;

/// The columns that come before the fields of every event: their names, types and contents.
pub(super) const LEADING: [(&str, ColumnType, Leading); 9] = [
    ("ts", ColumnType::Signed(64), Leading::Time),
    ("ts_error", ColumnType::Signed(64), Leading::TimeError),
    (
        "session",
        ColumnType::Text,
        Leading::OfStream(OriginColumn::Session),
    ),
    (
        "trace",
        ColumnType::Text,
        Leading::OfStream(OriginColumn::Trace),
    ),
    (
        "stream",
        ColumnType::Text,
        Leading::OfStream(OriginColumn::Stream),
    ),
    (
        "procname",
        ColumnType::Text,
        Leading::OfStream(OriginColumn::ProcessName),
    ),
    (
        "vpid",
        ColumnType::Signed(64),
        Leading::OfStream(OriginColumn::Process),
    ),
    ("cpu", ColumnType::Signed(64), Leading::Cpu),
    ("loglevel", ColumnType::Unsigned(8), Leading::LogLevel),
];

/// What is in a column that comes before the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leading {
    /// Nanoseconds since 1970.
    Time,
    /// By how much that may be wrong, in nanoseconds; null if times are not corrected.
    TimeError,
    /// What is the same for all events of a stream.
    OfStream(OriginColumn),
    /// `cpu_id` of the packet's context.
    Cpu,
    /// 0 (worst) to 14.
    LogLevel,
}

/// What is the same for all events of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OriginColumn {
    /// The name of the session, as the environment of the trace says.
    Session,
    /// The name of the trace.
    Trace,
    /// The name of the stream.
    Stream,
    /// The name of the process that all events of the trace are of.
    ProcessName,
    /// The id of that process.
    Process,
}

/// The type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ColumnType {
    /// Integers of 8, 16, 32 or 64 bits.
    Unsigned(u8),
    /// Integers of 8, 16, 32 or 64 bits.
    Signed(u8),
    Float,
    Double,
    Boolean,
    Text,
    Bytes,
}

/// A column: the type of its values, and when they are absent or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ColumnShape {
    pub(super) of: ColumnType,
    /// The definition level of a value. Lower ones are nulls and empty lists.
    pub(super) max_definition: i16,
    /// The number of lists around the value.
    pub(super) max_repetition: i16,
}

/// The number of a node in a schema.
pub(super) type NodeId = usize;

/// What a field becomes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// The columns of the node and of all within it.
    pub(super) columns: Range<usize>,
    /// The definition level at which the node is present.
    pub(super) defined: i16,
}

/// The form of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum NodeKind {
    /// One column.
    Value,
    /// A number, and the text of its labels in the column after it.
    Labelled,
    /// A structure without visible members: one column that is true.
    Empty,
    /// A group with these members.
    Structure(Vec<NodeId>),
    /// A list with elements of this node. Elements after the first have this repetition level.
    List(NodeId, i16),
    /// A group of options: all but one are null.
    Variant(Vec<NodeId>),
    /// A node that may be null.
    Optional(NodeId),
}

/// The columns of a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TableSchema {
    pub(super) columns: Vec<ColumnShape>,
    pub(super) nodes: Vec<Node>,
    /// The node of each scope that has columns.
    scopes: Vec<(Scope, NodeId)>,
    pub(super) root: TypePtr,
}

/// The schema of an event class cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    #[error("more than {MAX_COLUMNS} columns")]
    TooLarge,
    #[error("a column has no valid type")]
    Type(#[from] ParquetError),
}

/// What a field is to readers that put tables of several files together: they convert numbers to
/// wider ones, but not a number to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Integer,
    Float,
    Boolean,
    Text,
    Bytes,
    List,
    Group,
}

/// The kinds of the fields of all classes of one event so far, by the path of each: a field of
/// another kind gets another name.
#[derive(Debug, Default)]
pub(super) struct KnownFields(HashMap<Vec<String>, FieldKind>);

impl TableSchema {
    /// The schema for the events of a class.
    pub(super) fn of(event: &Event<'_>, known: &mut KnownFields) -> Result<Self, SchemaError> {
        let (stream, class) = (event.stream_class(), event.class());
        let scopes = [
            (Scope::PacketContext, "packet", stream.packet_context()),
            (Scope::CommonContext, "context", stream.event_context()),
            (Scope::SpecificContext, "event_context", class.context()),
            (Scope::Payload, "fields", class.payload()),
        ];
        Self::with_scopes(scopes, known)
    }

    fn with_scopes(
        scopes: [(Scope, &'static str, Option<&Structure>); 4],
        known: &mut KnownFields,
    ) -> Result<Self, SchemaError> {
        let mut builder = SchemaBuilder {
            columns: Vec::new(),
            nodes: Vec::new(),
            path: Vec::new(),
            known,
        };
        let mut fields = Vec::new();
        for (name, of, _) in LEADING {
            fields.push(builder.column(name, of, Level::default().optional(true))?);
        }
        let mut found = Vec::new();
        for (scope, name, structure) in scopes {
            let is_shown = |structure: &&Structure| structure.members.iter().any(|m| !m.hidden);
            let Some(structure) = structure.filter(is_shown) else {
                continue;
            };
            builder.path.push(name.to_owned());
            let (node, field) = builder.structure(name, structure, Level::default())?;
            builder.path.pop();
            found.push((scope, node));
            fields.push(field);
        }
        let root = Type::group_type_builder("event")
            .with_fields(fields)
            .build()?;
        Ok(Self {
            columns: builder.columns,
            nodes: builder.nodes,
            scopes: found,
            root: Arc::new(root),
        })
    }

    /// The schema of events without any field.
    #[cfg(test)]
    pub(super) fn without_fields(known: &mut KnownFields) -> Result<Self, SchemaError> {
        let scope = (Scope::Payload, "fields", None);
        Self::with_scopes([scope; 4], known)
    }

    /// The scopes that have columns, each with its node.
    pub(super) fn scopes(&self) -> &[(Scope, NodeId)] {
        &self.scopes
    }

    /// The node of a scope, if it has columns.
    pub(super) fn scope(&self, scope: Scope) -> Option<NodeId> {
        let mut scopes = self.scopes.iter();
        scopes.find(|(of, _)| *of == scope).map(|(_, node)| *node)
    }
}

/// Where a node is: the levels around it, and whether it may be null itself.
#[derive(Debug, Clone, Copy, Default)]
struct Level {
    defined: i16,
    repeated: i16,
    is_optional: bool,
}

impl Level {
    /// The level of a node that is directly within this one.
    fn optional(self, is_optional: bool) -> Self {
        Self {
            defined: self.defined + i16::from(is_optional && !self.is_optional),
            is_optional: is_optional || self.is_optional,
            ..self
        }
    }

    /// The level of the members of a node of this level.
    fn inside(self) -> Self {
        Self {
            is_optional: false,
            ..self
        }
    }

    /// The level of the elements of a list of this level.
    fn repeated(self) -> Self {
        Self {
            defined: self.defined + 1,
            repeated: self.repeated + 1,
            is_optional: false,
        }
    }

    fn repetition(self) -> Repetition {
        match self.is_optional {
            true => Repetition::OPTIONAL,
            false => Repetition::REQUIRED,
        }
    }
}

struct SchemaBuilder<'k> {
    columns: Vec<ColumnShape>,
    nodes: Vec<Node>,
    /// The names of the nodes around.
    path: Vec<String>,
    known: &'k mut KnownFields,
}

impl SchemaBuilder<'_> {
    fn column(&mut self, name: &str, of: ColumnType, level: Level) -> Result<TypePtr, SchemaError> {
        if self.columns.len() >= MAX_COLUMNS {
            return Err(SchemaError::TooLarge);
        }
        self.columns.push(ColumnShape {
            of,
            max_definition: level.defined,
            max_repetition: level.repeated,
        });
        let (physical, logical) = of.parquet();
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(level.repetition())
            .with_logical_type(logical);
        Ok(Arc::new(column.build()?))
    }

    fn group(name: &str, fields: Vec<TypePtr>, level: Level) -> Result<TypePtr, SchemaError> {
        let group = Type::group_type_builder(name)
            .with_repetition(level.repetition())
            .with_fields(fields);
        Ok(Arc::new(group.build()?))
    }

    /// Adds a node whose columns are those from `first` to the last one.
    fn node(&mut self, kind: NodeKind, first: usize, level: Level) -> NodeId {
        self.nodes.push(Node {
            kind,
            columns: first..self.columns.len(),
            defined: level.defined,
        });
        self.nodes.len() - 1
    }

    fn structure(
        &mut self,
        name: &str,
        structure: &Structure,
        level: Level,
    ) -> Result<(NodeId, TypePtr), SchemaError> {
        let first = self.columns.len();
        let visible = structure.members.iter().filter(|member| !member.hidden);
        let members = visible.map(|member| (&*member.name, &member.class, false));
        let members: Vec<_> = members.collect();
        if members.is_empty() {
            let field = self.column(name, ColumnType::Boolean, level)?;
            return Ok((self.node(NodeKind::Empty, first, level), field));
        }
        let (nodes, fields) = self.members(&members, level)?;
        let node = self.node(NodeKind::Structure(nodes), first, level);
        Ok((node, Self::group(name, fields, level)?))
    }

    /// The nodes of members, each of which may be null if that is said, and their fields.
    fn members(
        &mut self,
        members: &[(&str, &FieldClass, bool)],
        level: Level,
    ) -> Result<(Vec<NodeId>, Vec<TypePtr>), SchemaError> {
        let mut names = HashSet::new();
        let (mut nodes, mut fields) = (Vec::new(), Vec::new());
        for (name, class, is_optional) in members {
            let name = self.unique_name(name, FieldKind::of(class), &mut names);
            self.path.push(name.clone());
            let inside = level.inside().optional(*is_optional);
            let (node, field) = self.field(&name, class, inside)?;
            self.path.pop();
            nodes.push(node);
            fields.push(field);
        }
        Ok((nodes, fields))
    }

    /// A name that no other member has, upper and lower case being the same to SQL, and under which
    /// no field of another kind is known.
    fn unique_name(&mut self, name: &str, kind: FieldKind, taken: &mut HashSet<String>) -> String {
        let mut plain = String::new();
        for char in name.chars() {
            if plain.len() + char.len_utf8() > MAX_NAME_BYTES {
                break;
            }
            plain.push(if char.is_control() { '_' } else { char });
        }
        if plain.is_empty() {
            plain.push('_');
        }
        let mut number = 1;
        loop {
            let unique = match number {
                1 => plain.clone(),
                number => format!("{plain}_{number}"),
            };
            let lower = unique.to_lowercase();
            if !taken.contains(&lower) && self.known.is_free(&self.path, &lower, kind) {
                taken.insert(lower);
                return unique;
            }
            number += 1;
        }
    }

    fn field(
        &mut self,
        name: &str,
        class: &FieldClass,
        level: Level,
    ) -> Result<(NodeId, TypePtr), SchemaError> {
        let first = self.columns.len();
        match class {
            FieldClass::Structure(structure) => self.structure(name, structure, level),
            FieldClass::Array { element, .. } => {
                let inside = level.repeated();
                self.path.push("element".to_owned());
                let (node, element) = self.field("element", element, inside)?;
                self.path.pop();
                let list = Type::group_type_builder("list")
                    .with_repetition(Repetition::REPEATED)
                    .with_fields(vec![element]);
                let field = Type::group_type_builder(name)
                    .with_repetition(level.repetition())
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![Arc::new(list.build()?)]);
                let kind = NodeKind::List(node, inside.repeated);
                Ok((self.node(kind, first, level), Arc::new(field.build()?)))
            }
            FieldClass::Optional { class, .. } => {
                let level = level.optional(true);
                let (node, field) = self.field(name, class, level)?;
                Ok((self.node(NodeKind::Optional(node), first, level), field))
            }
            FieldClass::Variant(variant) => {
                let options = variant.options.iter().map(|option| {
                    let name = option.name.as_deref().unwrap_or("option");
                    (name, &option.class, true)
                });
                let options: Vec<_> = options.collect();
                let (nodes, fields) = self.members(&options, level)?;
                let node = self.node(NodeKind::Variant(nodes), first, level);
                Ok((node, Self::group(name, fields, level)?))
            }
            FieldClass::Reversed(class) => self.field(name, class, level),
            class => self.value(name, class, level),
        }
    }

    fn value(
        &mut self,
        name: &str,
        class: &FieldClass,
        level: Level,
    ) -> Result<(NodeId, TypePtr), SchemaError> {
        let first = self.columns.len();
        let of = column_type(class);
        if !has_labels(class) {
            let field = self.column(name, of, level)?;
            return Ok((self.node(NodeKind::Value, first, level), field));
        }
        let inside = level.inside();
        let value = self.column("value", of, inside)?;
        let label = self.column("label", ColumnType::Text, inside.optional(true))?;
        let node = self.node(NodeKind::Labelled, first, level);
        Ok((node, Self::group(name, vec![value, label], level)?))
    }
}

impl KnownFields {
    /// Whether a field of this kind may have a name. It has it from then on.
    fn is_free(&mut self, path: &[String], name: &str, kind: FieldKind) -> bool {
        let mut whole = path.to_vec();
        whole.push(name.to_owned());
        if let Some(known) = self.0.get(&whole) {
            return *known == kind;
        }
        // Names of many traces may be many: what is known of them only helps to join tables.
        if self.0.len() >= MAX_REMEMBERED_FIELDS {
            self.0.clear();
        }
        self.0.insert(whole, kind);
        true
    }
}

impl FieldKind {
    fn of(class: &FieldClass) -> Self {
        match class {
            FieldClass::Structure(structure) if structure.members.iter().all(|m| m.hidden) => {
                Self::Boolean
            }
            FieldClass::Structure(_) | FieldClass::Variant(_) => Self::Group,
            FieldClass::Array { .. } => Self::List,
            FieldClass::Optional { class, .. } | FieldClass::Reversed(class) => Self::of(class),
            class if has_labels(class) => Self::Group,
            class => match column_type(class) {
                ColumnType::Unsigned(_) | ColumnType::Signed(_) => Self::Integer,
                ColumnType::Float | ColumnType::Double => Self::Float,
                ColumnType::Boolean => Self::Boolean,
                ColumnType::Text => Self::Text,
                ColumnType::Bytes => Self::Bytes,
            },
        }
    }
}

/// Whether a value is shown with labels.
fn has_labels(class: &FieldClass) -> bool {
    match class {
        FieldClass::Integer(integer) => integer.labels.is_some(),
        FieldClass::VariableInteger(integer) => integer.labels.is_some(),
        FieldClass::BitMap(..) => true,
        _ => false,
    }
}

/// The type of a field with one value.
fn column_type(class: &FieldClass) -> ColumnType {
    let integer = |bits: u8, is_signed: bool| {
        let bits = bits.next_power_of_two().clamp(8, 64);
        match is_signed {
            true => ColumnType::Signed(bits),
            false => ColumnType::Unsigned(bits),
        }
    };
    match class {
        FieldClass::Integer(class) => integer(class.bits, class.signed),
        FieldClass::VariableInteger(class) => integer(64, class.signed),
        FieldClass::BitArray(class) | FieldClass::BitMap(class, _) => integer(class.bits, false),
        FieldClass::Float(class) if class.bits == 32 => ColumnType::Float,
        FieldClass::Float(_) => ColumnType::Double,
        FieldClass::Boolean(_) => ColumnType::Boolean,
        FieldClass::Blob { .. } => ColumnType::Bytes,
        // The others are texts: those with parts are no values.
        _ => ColumnType::Text,
    }
}

impl ColumnType {
    /// The type of the bytes in the file, and what they mean.
    fn parquet(self) -> (PhysicalType, Option<LogicalType>) {
        let integer = |bits: u8, is_signed| {
            let physical = match bits {
                64 => PhysicalType::INT64,
                _ => PhysicalType::INT32,
            };
            // A plain number of 32 or 64 bits is signed.
            let is_plain = is_signed && bits >= 32;
            let logical = || LogicalType::integer(bits.cast_signed(), is_signed);
            (physical, (!is_plain).then(logical))
        };
        match self {
            Self::Unsigned(bits) => integer(bits, false),
            Self::Signed(bits) => integer(bits, true),
            Self::Float => (PhysicalType::FLOAT, None),
            Self::Double => (PhysicalType::DOUBLE, None),
            Self::Boolean => (PhysicalType::BOOLEAN, None),
            Self::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Bytes => (PhysicalType::BYTE_ARRAY, None),
        }
    }
}
