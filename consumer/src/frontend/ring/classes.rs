//! The event classes of a process as CTF, declared at their first event, and the values of events.

use std::collections::{BTreeSet, HashMap};

use ctf::model::LogLevel;
use ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, FieldType,
    MetadataText, Value, Width,
};
use trace_ring_core::Severity;
use trace_ring_core::format::{self, EventClass, FieldValue, read_field};

/// The classes of one process, by their ids in its `meta`.
#[derive(Debug, Default)]
pub struct CtfClasses {
    declared: HashMap<u32, Result<DeclaredEventClass, DeclareError>>,
}

impl CtfClasses {
    /// Returns the CTF class, which is declared now if it has not been before.
    ///
    /// # Errors
    /// If it cannot be declared: the trace has too many event classes. The same at each call.
    pub fn declare(
        &mut self,
        class: &EventClass,
        metadata: &mut MetadataText,
        stream: &DeclaredStreamClass,
    ) -> Result<&DeclaredEventClass, &DeclareError> {
        let declare = || declare_class(class, metadata, stream);
        self.declared
            .entry(class.id)
            .or_insert_with(declare)
            .as_ref()
    }
}

fn declare_class(
    class: &EventClass,
    metadata: &mut MetadataText,
    stream: &DeclaredStreamClass,
) -> Result<DeclaredEventClass, DeclareError> {
    let declaration = EventDeclaration {
        log_level: Some(log_level(class.severity)),
        emf_uri: (!class.file.is_empty()).then(|| format!("{}:{}", class.file, class.line)),
        fields: field_declarations(class),
        ..EventDeclaration::new(class.id, &event_name(class))
    };
    metadata.event(stream, &declaration)
}

/// Returns the name that viewers show: as those of LTTng, `provider:event`.
#[must_use]
pub fn event_name(class: &EventClass) -> String {
    let is_place = class.name.starts_with("event ") || class.name.is_empty();
    match (class.target.as_str(), class.name.as_str()) {
        ("", name) => name.to_owned(),
        // The default name of `tracing` is the place in the source, which is in the metadata
        // anyway.
        (target, _) if is_place => target.to_owned(),
        (target, name) => format!("{target}:{name}"),
    }
}

/// Returns the log level of LTTng for a severity. DEBUG is that of a module, because TRACE has the
/// lowest.
#[must_use]
pub fn log_level(severity: Severity) -> LogLevel {
    LogLevel(match severity {
        Severity::Error => 3,
        Severity::Warn => 4,
        Severity::Info => 6,
        Severity::Debug => 10,
        Severity::Trace => 14,
    })
}

/// Returns the fields of a class. Names that CTF cannot tell apart get a number.
fn field_declarations(class: &EventClass) -> Vec<(String, FieldType)> {
    let mut used = BTreeSet::new();
    let field = |(place, (name, of)): (usize, &(String, format::FieldType))| {
        let plain = |character: char| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '_'
            }
        };
        let mut name: String = name.chars().map(plain).collect();
        if name.is_empty() || !used.insert(name.clone()) {
            name = format!("{name}_{place}");
            while !used.insert(name.clone()) {
                // Another field may have just the name that the number makes.
                name.push('_');
            }
        }
        (name, field_type(*of))
    };
    class.fields.iter().enumerate().map(field).collect()
}

fn field_type(of: format::FieldType) -> FieldType {
    match of {
        format::FieldType::U8 => FieldType::Unsigned(Width::Bits8),
        format::FieldType::U16 => FieldType::Unsigned(Width::Bits16),
        format::FieldType::U32 => FieldType::Unsigned(Width::Bits32),
        format::FieldType::U64 => FieldType::Unsigned(Width::Bits64),
        format::FieldType::I8 => FieldType::Signed(Width::Bits8),
        format::FieldType::I16 => FieldType::Signed(Width::Bits16),
        format::FieldType::I32 => FieldType::Signed(Width::Bits32),
        format::FieldType::I64 => FieldType::Signed(Width::Bits64),
        format::FieldType::F32 | format::FieldType::F64 => FieldType::Float,
        format::FieldType::Bool => FieldType::Boolean,
        format::FieldType::Str | format::FieldType::Bytes => FieldType::Text,
    }
}

/// The value of a field in the reader's copy. Text that is not UTF-8 is replaced; bytes are
/// hexadecimal digits.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldContent<'a> {
    /// A value as it is.
    Plain(Value<'a>),
    /// A text that was made from bytes.
    Text(String),
}

impl FieldContent<'_> {
    /// Returns the value for a packet.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        match self {
            Self::Plain(value) => *value,
            Self::Text(text) => Value::Text(text),
        }
    }
}

/// Reads all fields of an event; `None` if they do not end where the record ends.
#[must_use]
pub fn read_fields<'a>(class: &EventClass, mut bytes: &'a [u8]) -> Option<Vec<FieldContent<'a>>> {
    let mut contents = Vec::with_capacity(class.fields.len());
    for (_, of) in &class.fields {
        let (value, length) = read_field(*of, bytes).ok()?;
        bytes = bytes.get(length..)?;
        contents.push(match value {
            FieldValue::Unsigned(number) => FieldContent::Plain(Value::Unsigned(number)),
            FieldValue::Signed(number) => FieldContent::Plain(Value::Signed(number)),
            FieldValue::Float(number) => FieldContent::Plain(Value::Float(number)),
            FieldValue::Bool(flag) => FieldContent::Plain(Value::Boolean(flag)),
            FieldValue::Str(text) => match std::str::from_utf8(text) {
                Ok(text) => FieldContent::Plain(Value::Text(text)),
                Err(_) => FieldContent::Text(String::from_utf8_lossy(text).into_owned()),
            },
            FieldValue::Bytes(bytes) => FieldContent::Text(hexadecimal(bytes)),
        });
    }
    bytes.is_empty().then_some(contents)
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digits = |byte: &u8| [usize::from(byte >> 4), usize::from(byte & 15)];
    let digits = bytes.iter().flat_map(digits);
    digits.filter_map(|digit| DIGITS.get(digit)).collect()
}
