//! The fields of an event, shown to a visitor, become a row.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};

use super::column::{Column, Value};
use super::schema::{Node, NodeId, NodeKind, TableSchema};

/// Appends the fields of events to the columns of a table. Its memory is kept from event to event.
#[derive(Debug, Default)]
pub(super) struct RowBuffers {
    frames: Vec<Frame>,
    label: Vec<u8>,
}

/// A node that has been begun.
#[derive(Debug)]
struct Frame {
    node: NodeId,
    /// The number of members or elements so far.
    begun: usize,
    /// The repetition level of what comes first in the node.
    repetition: i16,
}

/// One row while it is written.
#[derive(Debug)]
pub(super) struct RowWriter<'t> {
    schema: &'t TableSchema,
    columns: &'t mut [Column],
    buffers: &'t mut RowBuffers,
    /// The node of the next value.
    next: Option<NodeId>,
    /// The repetition level of the next value: 0 unless it continues a list.
    repetition: i16,
    /// The place of the option that the next variant takes.
    option: usize,
    /// The CPU, if the packet's context has it.
    cpu: Option<i64>,
    is_cpu_next: bool,
    scope: Option<Scope>,
    /// The number of scopes with columns that were shown.
    shown: usize,
    bytes: usize,
    is_wrong: bool,
}

/// What a row is besides its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrittenRow {
    /// The number of bytes that the row takes in memory.
    pub(super) bytes: usize,
    /// The CPU, if the packet's context has it.
    pub(super) cpu: Option<i64>,
}

impl<'t> RowWriter<'t> {
    pub(super) fn new(
        schema: &'t TableSchema,
        columns: &'t mut [Column],
        buffers: &'t mut RowBuffers,
    ) -> Self {
        buffers.frames.clear();
        Self {
            schema,
            columns,
            buffers,
            next: None,
            repetition: 0,
            option: 0,
            cpu: None,
            is_cpu_next: false,
            scope: None,
            shown: 0,
            bytes: 0,
            is_wrong: false,
        }
    }

    /// Ends the row. None if the fields did not have the shape of the schema.
    pub(super) fn finish(self) -> Option<WrittenRow> {
        let has_all = self.shown == self.schema.scopes().len();
        let is_whole = self.buffers.frames.is_empty() && has_all && !self.is_wrong;
        is_whole.then_some(WrittenRow {
            bytes: self.bytes,
            cpu: self.cpu,
        })
    }

    fn node(&self, id: Option<NodeId>) -> Option<&'t Node> {
        self.schema.nodes.get(id?)
    }

    /// The node of the next value, which is passed to the caller.
    fn take_next(&mut self) -> Option<(NodeId, &'t Node)> {
        let id = self.next.take();
        let found = id.zip(self.node(id));
        self.is_wrong |= found.is_none();
        found
    }

    fn begin(&mut self, is_expected: impl Fn(&NodeKind) -> bool) {
        let Some((node, found)) = self.take_next() else {
            return;
        };
        if !is_expected(&found.kind) {
            self.is_wrong = true;
            return;
        }
        self.buffers.frames.push(Frame {
            node,
            begun: 0,
            repetition: self.repetition,
        });
    }

    fn end(&mut self) -> Option<Frame> {
        let frame = self.buffers.frames.pop();
        self.is_wrong |= frame.is_none();
        frame
    }

    /// Fills the columns of a node that is absent.
    fn push_absent(&mut self, node: NodeId, definition: i16) {
        let Some(node) = self.node(Some(node)) else {
            self.is_wrong = true;
            return;
        };
        let repetition = self.repetition;
        for column in self
            .columns
            .get_mut(node.columns.clone())
            .unwrap_or_default()
        {
            self.bytes += column.push_absent(definition, repetition);
        }
    }

    #[inline]
    fn push(&mut self, column: usize, value: Value<'_>) {
        let pushed = self
            .columns
            .get_mut(column)
            .map(|column| column.push(value, self.repetition));
        match pushed {
            Some(Ok(bytes)) => self.bytes += bytes,
            Some(Err(_)) | None => self.is_wrong = true,
        }
    }

    /// Appends a value without labels.
    #[inline]
    fn value(&mut self, value: Value<'_>) {
        if let Some((_, node)) = self.take_next() {
            self.is_wrong |= node.kind != NodeKind::Value;
            self.push(node.columns.start, value);
        }
    }

    fn labelled<'l>(&mut self, value: i64, labels: impl Iterator<Item = &'l str>) {
        let Some((_, node)) = self.take_next() else {
            return;
        };
        self.is_wrong |= node.kind != NodeKind::Labelled;
        let first = node.columns.start;
        self.push(first, Value::Integer(value));
        let mut label = std::mem::take(&mut self.buffers.label);
        label.clear();
        let mut count = 0;
        for text in labels {
            if count > 0 {
                label.extend_from_slice(b" | ");
            }
            label.extend_from_slice(text.as_bytes());
            count += 1;
        }
        if count > 0 {
            self.push(first + 1, Value::Bytes(&label));
        } else if let Some(column) = self.columns.get_mut(first + 1) {
            self.bytes += column.push_absent(node.defined, self.repetition);
        }
        self.buffers.label = label;
    }

    #[inline]
    fn integer(&mut self, value: i64, is_signed: bool, format: NumberFormat<'_>) {
        if std::mem::take(&mut self.is_cpu_next) {
            // More than 2^63 CPUs are none.
            self.cpu = (value >= 0 || is_signed).then_some(value);
        }
        match format.labels {
            Some(labels) if is_signed || value >= 0 => {
                self.labelled(value, labels.of(i128::from(value)));
            }
            Some(labels) => self.labelled(value, labels.of(i128::from(value.cast_unsigned()))),
            None => self.value(Value::Integer(value)),
        }
    }
}

impl Visitor for RowWriter<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.next = self.schema.scope(scope);
        self.shown += usize::from(self.next.is_some());
        self.scope = Some(scope);
    }

    fn end_scope(&mut self) {
        self.scope = None;
        self.next = None;
    }

    fn begin_structure(&mut self) {
        // A scope without visible members has no columns.
        if self.next.is_none() && self.buffers.frames.is_empty() && self.scope.is_some() {
            return;
        }
        if let Some(node) = self.node(self.next)
            && node.kind == NodeKind::Empty
        {
            self.push(node.columns.start, Value::Boolean(true));
        }
        self.begin(|kind| matches!(kind, NodeKind::Structure(_) | NodeKind::Empty));
    }

    fn member(&mut self, name: &str) {
        let depth = self.buffers.frames.len();
        self.is_cpu_next =
            depth == 1 && self.scope == Some(Scope::PacketContext) && name == "cpu_id";
        let Some(frame) = self.buffers.frames.last_mut() else {
            self.is_wrong = true;
            return;
        };
        let place = frame.begun;
        frame.begun += 1;
        self.next = match self.schema.nodes.get(frame.node).map(|node| &node.kind) {
            Some(NodeKind::Structure(members)) => members.get(place).copied(),
            _ => None,
        };
    }

    fn end_structure(&mut self) {
        if self.buffers.frames.is_empty() && self.scope.is_some() {
            return;
        }
        let frame = self.end();
        let kind = frame.as_ref().and_then(|frame| self.node(Some(frame.node)));
        if let (Some(frame), Some(NodeKind::Structure(members))) = (frame, kind.map(|n| &n.kind)) {
            self.is_wrong |= frame.begun != members.len();
        }
    }

    fn begin_array(&mut self, _length: u64) {
        self.begin(|kind| matches!(kind, NodeKind::List(..)));
    }

    fn element(&mut self, _index: u64) {
        let Some(frame) = self.buffers.frames.last_mut() else {
            self.is_wrong = true;
            return;
        };
        let node = self.schema.nodes.get(frame.node);
        let Some(NodeKind::List(element, level)) = node.map(|node| &node.kind) else {
            self.is_wrong = true;
            return;
        };
        // The first element continues what is around the list.
        self.repetition = match frame.begun {
            0 => frame.repetition,
            _ => *level,
        };
        frame.begun += 1;
        self.next = Some(*element);
    }

    fn end_array(&mut self) {
        let Some(frame) = self.end() else {
            return;
        };
        self.repetition = frame.repetition;
        if frame.begun == 0
            && let Some(node) = self.node(Some(frame.node))
        {
            self.push_absent(frame.node, node.defined);
        }
    }

    fn variant_option(&mut self, place: usize) {
        self.option = place;
    }

    fn begin_variant(&mut self, _option: Option<&str>) {
        let taken = self.option;
        let Some((_, node)) = self.take_next() else {
            return;
        };
        let NodeKind::Variant(options) = &node.kind else {
            self.is_wrong = true;
            return;
        };
        for (place, option) in options.iter().enumerate() {
            if place != taken {
                let defined = self.node(Some(*option)).map_or(0, |option| option.defined);
                self.push_absent(*option, defined - 1);
            }
        }
        self.next = options.get(taken).copied();
    }

    fn begin_optional(&mut self, present: bool) {
        let Some((id, node)) = self.take_next() else {
            return;
        };
        let NodeKind::Optional(inner) = node.kind else {
            self.is_wrong = true;
            return;
        };
        match present {
            true => self.next = Some(inner),
            false => self.push_absent(id, node.defined - 1),
        }
    }

    #[inline]
    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.integer(value.cast_signed(), false, format);
    }

    #[inline]
    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.integer(value, true, format);
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.value(Value::Float(value));
    }

    fn boolean(&mut self, value: bool) {
        self.value(Value::Boolean(value));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, flags: Option<&Labels>) {
        match flags {
            Some(flags) => self.labelled(value.cast_signed(), flags.of_bits(value)),
            None => self.value(Value::Integer(value.cast_signed())),
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        self.value(Value::Bytes(bytes));
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.value(Value::Bytes(bytes));
    }
}
