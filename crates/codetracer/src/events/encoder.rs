//! Records -> the values of events.

use ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventRecord, MetadataText, Value,
};
use wire::Timestamp;

use super::classes::{Class, DeclaredClasses, PACKET_CONTEXT};
use super::names::Names;
use super::{FileChunk, Item};
use crate::metadata::RecordingMetadata;
use crate::record::{Definition, Record};

// Those of `ct:file`, which has the most.
const MAX_FIELDS: usize = 5;

/// Makes events of the items of one recording. The encoder counts the records, and knows the names
/// of definitions.
#[derive(Debug)]
pub struct EventEncoder {
    classes: DeclaredClasses,
    /// The last parts of the paths.
    files: Names,
    functions: Names,
    variables: Names,
    types: u64,
    records: u64,
    depth: u64,
    has_step: bool,
}

/// An event ready for a packet.
#[derive(Debug, Clone)]
pub struct Encoded<'e> {
    class: &'e DeclaredEventClass,
    // An array, so that an event needs no memory of its own.
    values: [Value<'e>; MAX_FIELDS],
    length: usize,
}

impl<'e> Encoded<'e> {
    /// The event class of the event.
    #[must_use]
    pub fn class(&self) -> &'e DeclaredEventClass {
        self.class
    }

    /// The event, when it arrived.
    #[must_use]
    pub fn at(&self, time: Timestamp) -> EventRecord<'_> {
        EventRecord {
            time,
            // A recording does not say of which process it is.
            process: 0,
            thread: 0,
            values: self.values.get(..self.length).unwrap_or_default(),
        }
    }
}

impl EventEncoder {
    /// Declares a stream class for a recording, and its event classes.
    ///
    /// # Errors
    /// If the id is in use.
    pub fn declare(
        metadata: &mut MetadataText,
        id: u32,
    ) -> Result<(DeclaredStreamClass, Self), DeclareError> {
        let stream = metadata.stream_with_context(id, &PACKET_CONTEXT)?;
        let encoder = Self {
            classes: DeclaredClasses::declare(metadata, &stream)?,
            files: Names::default(),
            functions: Names::default(),
            variables: Names::default(),
            types: 0,
            records: 0,
            depth: 0,
            has_step: false,
        };
        Ok((stream, encoder))
    }

    /// The values of the fields of the packet context for a packet that begins with the next
    /// record.
    #[must_use]
    pub fn packet_context(&self) -> [u64; PACKET_CONTEXT.len()] {
        [self.records, self.depth, self.has_step.into()]
    }

    /// The number of records so far.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Encodes the next item. `text` holds what the event borrows beside the item; its content is
    /// replaced.
    ///
    /// A record that is appended to a packet is then to be [counted](Self::count_record).
    #[must_use]
    pub fn encode<'e>(&'e self, item: &'e Item<'_>, text: &'e mut String) -> Encoded<'e> {
        match item {
            Item::Record(record) if has_nul(record) => self.encode_escaped(record, text),
            Item::Record(record) => self.encode_record(record),
            Item::Metadata(metadata) => self.encode_metadata(metadata, text),
            Item::FileChunk(chunk) => self.encode_chunk(chunk),
            Item::End { records } => self.event(Class::End, &[Value::Unsigned(*records)]),
        }
    }

    /// Counts the record that has been encoded last, and remembers its name if it is a definition.
    pub fn count_record(&mut self, record: &Record<'_>) {
        self.records += 1;
        match record {
            Record::Path(path) => {
                let end = path.trim_end_matches('/');
                self.files.add(end.rsplit('/').next().unwrap_or(end));
            }
            Record::Function { name, .. } => self.functions.add(name),
            Record::Variable { name, .. } => self.variables.add(name),
            Record::Type(_) => self.types += 1,
            Record::Step { .. } => self.has_step = true,
            Record::Call { .. } => self.depth += 1,
            // A recording may have a `Return` without a call.
            Record::Return(_) => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// The position that the next definition of a kind gets.
    #[must_use]
    pub fn next_position(&self, definition: Definition) -> u64 {
        match definition {
            Definition::Path => self.files.count(),
            Definition::Function => self.functions.count(),
            Definition::Variable => self.variables.count(),
            Definition::Type => self.types,
        }
    }

    fn encode_record<'e>(&'e self, record: &'e Record<'_>) -> Encoded<'e> {
        let unsigned = Value::Unsigned;
        let id = record
            .definition()
            .map_or(0, |definition| self.next_position(definition));
        match record {
            Record::Step { path_id, line } => {
                let file = Value::Text(self.files.get(*path_id));
                self.event(
                    Class::Step,
                    &[unsigned(*path_id), Value::Signed(*line), file],
                )
            }
            Record::Value { variable_id, value } => {
                let name = Value::Text(self.variables.get(*variable_id));
                let value = Value::Text(value.as_str());
                self.event(Class::Value, &[unsigned(*variable_id), name, value])
            }
            Record::Call { function_id, args } => {
                let name = Value::Text(self.functions.get(*function_id));
                let args = Value::Text(args.as_str());
                self.event(Class::Call, &[unsigned(*function_id), name, args])
            }
            Record::Return(value) => self.event(Class::Return, &[Value::Text(value.as_str())]),
            Record::Log {
                kind,
                metadata,
                content,
            } => {
                let texts = [Value::Text(metadata), Value::Text(content)];
                let [metadata, content] = texts;
                self.event(Class::Log, &[unsigned((*kind).into()), metadata, content])
            }
            Record::Path(path) => self.event(Class::Path, &[unsigned(id), Value::Text(path)]),
            Record::Function {
                path_id,
                line,
                name,
            } => {
                let line = Value::Signed(*line);
                let values = [unsigned(id), unsigned(*path_id), line, Value::Text(name)];
                self.event(Class::Function, &values)
            }
            Record::Type(json) => {
                self.event(Class::Type, &[unsigned(id), Value::Text(json.as_str())])
            }
            Record::Variable { name, is_legacy } => {
                let values = [unsigned(id), Value::Text(name), Value::Boolean(*is_legacy)];
                self.event(Class::Variable, &values)
            }
            Record::DropLastStep => self.event(Class::DropLastStep, &[]),
            Record::Other { kind, payload } => {
                let values = [Value::Text(kind), Value::Text(payload.as_str())];
                self.event(Class::Other, &values)
            }
        }
    }

    /// Encodes a record that no class with texts can hold.
    fn encode_escaped<'e>(&'e self, record: &'e Record<'_>, text: &'e mut String) -> Encoded<'e> {
        *text = record.to_string();
        // An unknown kind may itself need the escape: then the text is the whole element.
        let kind = match record {
            Record::Other { .. } => "",
            record => record.kind(),
        };
        let payload = text
            .strip_prefix("{\"")
            .and_then(|rest| rest.strip_prefix(kind))
            .and_then(|rest| rest.strip_prefix("\":"))
            .and_then(|rest| rest.strip_suffix('}'))
            .filter(|_| !kind.is_empty());
        let json = payload.unwrap_or(text);
        self.event(Class::Other, &[Value::Text(kind), Value::Text(json)])
    }

    fn encode_metadata<'e>(
        &'e self,
        metadata: &'e RecordingMetadata,
        text: &'e mut String,
    ) -> Encoded<'e> {
        *text = metadata.args_json();
        let args = text.len();
        text.push_str(&metadata.to_other_json());
        // Both texts are in one buffer, because the event borrows a single one.
        let (args, others) = text.split_at(args);
        let values = [
            Value::Text(&metadata.program),
            Value::Text(&metadata.workdir),
            Value::Text(args),
            Value::Text(others),
        ];
        self.event(Class::Meta, &values)
    }

    fn encode_chunk<'e>(&'e self, chunk: &'e FileChunk<'_>) -> Encoded<'e> {
        let values = [
            Value::Text(&chunk.path),
            Value::Unsigned(chunk.size),
            Value::Unsigned(chunk.offset),
            Value::Bytes(&chunk.content),
            Value::Text(&chunk.sha256),
        ];
        self.event(Class::File, &values)
    }

    fn event<'e>(&'e self, class: Class, values: &[Value<'e>]) -> Encoded<'e> {
        let mut event = Encoded {
            class: self.classes.class(class),
            values: [Value::Boolean(false); MAX_FIELDS],
            length: values.len(),
        };
        for (place, value) in event.values.iter_mut().zip(values) {
            *place = *value;
        }
        event
    }
}

/// Whether a text of the record has a NUL. JSON has none: there it is escaped.
fn has_nul(record: &Record<'_>) -> bool {
    match record {
        Record::Path(text) | Record::Function { name: text, .. } => text.contains('\0'),
        Record::Variable { name, .. } => name.contains('\0'),
        Record::Log {
            metadata, content, ..
        } => metadata.contains('\0') || content.contains('\0'),
        // A kind without letters stands for an element whose kind has a NUL.
        Record::Other { kind, .. } => kind.is_empty() || kind.contains('\0'),
        _ => false,
    }
}
