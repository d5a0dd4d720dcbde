//! Collects the fields of an event, as a visitor.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use super::value::{Enumeration, Structure, Value};
use crate::decode::{NumberFormat, Visitor};
use crate::model::{Labels, Scope};

/// Largest number of values of one event, labels included: a value takes up to some hundred bytes
/// of memory, but may be a single bit of a packet.
pub(crate) const MAX_EVENT_VALUES: usize = 1 << 20;

/// The names of members and labels, of which all events share the memory. Metadata is bounded, so
/// that names are.
#[derive(Debug, Default)]
pub(crate) struct NameTable(HashSet<Arc<str>>);

impl NameTable {
    fn intern(&mut self, name: &str) -> Arc<str> {
        // Looked up first, because `insert` takes a new `Arc` also for a name that is there.
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

/// The structures of an event's scopes, after it was visited.
#[derive(Debug)]
pub(crate) struct Collector<'n> {
    names: &'n mut NameTable,
    /// The structures and arrays that are open, the outermost first.
    open: Vec<Open>,
    /// The number of values so far, also of those that were ignored because there are too many.
    values: usize,
    scope: Option<Scope>,
    pub(crate) packet_context: Structure,
    pub(crate) common_context: Structure,
    pub(crate) specific_context: Structure,
    pub(crate) payload: Structure,
}

#[derive(Debug)]
enum Open {
    Structure {
        members: Vec<(Arc<str>, Value)>,
        /// The name of the value that follows.
        name: Option<Arc<str>>,
    },
    Array(Vec<Value>),
}

impl<'n> Collector<'n> {
    pub(crate) fn new(names: &'n mut NameTable) -> Self {
        Self {
            names,
            open: Vec::new(),
            values: 0,
            scope: None,
            packet_context: Structure::default(),
            common_context: Structure::default(),
            specific_context: Structure::default(),
            payload: Structure::default(),
        }
    }

    /// Whether all values of the event have been collected, and not only the first
    /// [`MAX_EVENT_VALUES`].
    pub(crate) fn is_complete(&self) -> bool {
        self.values <= MAX_EVENT_VALUES
    }

    fn push(&mut self, value: Value) {
        self.values = self.values.saturating_add(1);
        if !self.is_complete() {
            return;
        }
        match self.open.last_mut() {
            Some(Open::Structure { members, name }) => {
                if let Some(name) = name.take() {
                    members.push((name, value));
                }
            }
            Some(Open::Array(elements)) => elements.push(value),
            None => {}
        }
    }

    fn push_labelled<'l>(&mut self, value: i128, labels: impl Iterator<Item = &'l str>) {
        let mut own = Vec::new();
        for label in labels {
            self.values = self.values.saturating_add(1);
            if !self.is_complete() {
                break;
            }
            own.push(self.names.intern(label));
        }
        let labels = own;
        self.push(Value::Enumeration(Box::new(Enumeration { value, labels })));
    }
}

impl Visitor for Collector<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.scope = Some(scope);
    }

    fn begin_structure(&mut self) {
        let (members, name) = (Vec::new(), None);
        self.open.push(Open::Structure { members, name });
    }

    fn member(&mut self, name: &str) {
        if !self.is_complete() {
            return;
        }
        let interned = self.names.intern(name);
        if let Some(Open::Structure { name, .. }) = self.open.last_mut() {
            *name = Some(interned);
        }
    }

    fn end_structure(&mut self) {
        let Some(Open::Structure { members, .. }) = self.open.pop() else {
            return;
        };
        let structure = Structure::new(members);
        if !self.open.is_empty() {
            return self.push(Value::Structure(structure));
        }
        let root = match self.scope {
            Some(Scope::PacketContext) => &mut self.packet_context,
            Some(Scope::CommonContext) => &mut self.common_context,
            Some(Scope::SpecificContext) => &mut self.specific_context,
            Some(Scope::Payload) => &mut self.payload,
            Some(Scope::PacketHeader | Scope::EventHeader) | None => return,
        };
        *root = structure;
    }

    fn begin_array(&mut self, _length: u64) {
        self.open.push(Open::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        if let Some(Open::Array(elements)) = self.open.last_mut() {
            let elements = mem::take(elements);
            self.open.pop();
            self.push(Value::Array(elements));
        }
    }

    fn begin_optional(&mut self, present: bool) {
        if !present {
            self.push(Value::Absent);
        }
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        match format.labels {
            None => self.push(Value::Unsigned(value)),
            Some(labels) => self.push_labelled(value.into(), labels.of(value.into())),
        }
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        match format.labels {
            None => self.push(Value::Signed(value)),
            Some(labels) => self.push_labelled(value.into(), labels.of(value.into())),
        }
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.push(Value::Float(value));
    }

    fn boolean(&mut self, value: bool) {
        self.push(Value::Boolean(value));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        match flags {
            None => self.push(Value::Unsigned(value)),
            Some(flags) => self.push_labelled(value.into(), flags.of_bits(value)),
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        // Tracers copy what the program has: it need not be UTF-8.
        self.push(Value::Text(String::from_utf8_lossy(bytes).into_owned()));
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.push(Value::Bytes(bytes.to_vec()));
    }
}
