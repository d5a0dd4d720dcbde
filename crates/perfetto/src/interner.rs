//! Texts that are written once and are numbers from then on.

use std::collections::HashMap;

use crate::argument::{Argument, Value};
use crate::message::{DebugAnnotation, InternedData, InternedText};

/// Largest number of bytes of a text of an argument that is interned: longer ones rarely come
/// again.
const MAX_TEXT_BYTES: usize = 64;
/// Number of interned texts of one kind from which the interner is full.
const MAX_TEXTS: usize = 1 << 16;
/// Number of bytes of all interned texts from which the interner is full.
const MAX_BYTES: usize = 8 << 20;

/// The texts that have been interned, and those of them that have not been written yet.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    categories: Texts,
    event_names: Texts,
    argument_names: Texts,
    argument_texts: Texts,
}

#[derive(Debug, Default)]
struct Texts {
    numbers: HashMap<Box<str>, u64>,
    bytes: usize,
    unwritten: Vec<InternedText>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // Numbers begin with 1: 0 stands for none.
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text.into(), number);
        self.bytes += text.len();
        self.unwritten.push(InternedText {
            iid: Some(number),
            text: Some(text.to_owned()),
        });
        number
    }

    fn is_full(&self) -> bool {
        self.numbers.len() >= MAX_TEXTS || self.bytes >= MAX_BYTES
    }
}

impl Interner {
    pub(crate) fn category(&mut self, text: &str) -> u64 {
        self.categories.number(text)
    }

    pub(crate) fn event_name(&mut self, text: &str) -> u64 {
        self.event_names.number(text)
    }

    /// Whether everything is to be forgotten before more is interned.
    pub(crate) fn is_full(&self) -> bool {
        self.texts().into_iter().any(Texts::is_full)
    }

    fn texts(&self) -> [&Texts; 4] {
        [
            &self.categories,
            &self.event_names,
            &self.argument_names,
            &self.argument_texts,
        ]
    }

    /// Appends arguments as they are written. Those without a value are left out.
    pub(crate) fn annotate(&mut self, arguments: &[Argument], out: &mut Vec<DebugAnnotation>) {
        out.extend(arguments.iter().filter_map(|argument| {
            let mut annotation = self.annotation(&argument.value)?;
            annotation.name_iid = Some(self.argument_names.number(&argument.name));
            Some(annotation)
        }));
    }

    fn annotation(&mut self, value: &Value) -> Option<DebugAnnotation> {
        let mut annotation = DebugAnnotation::default();
        match value {
            Value::Nothing => return None,
            Value::Bool(value) => annotation.bool_value = Some(*value),
            // The tables of Perfetto have numbers with a sign.
            Value::Unsigned(value) if i64::try_from(*value).is_err() => {
                annotation.string_value = Some(value.to_string());
            }
            Value::Unsigned(value) => annotation.uint_value = Some(*value),
            Value::Signed(value) => annotation.int_value = Some(*value),
            Value::Float(value) => annotation.double_value = Some(*value),
            Value::Text(text) | Value::Label(_, text) if text.len() <= MAX_TEXT_BYTES => {
                annotation.string_value_iid = Some(self.argument_texts.number(text));
            }
            Value::Text(text) | Value::Label(_, text) => {
                annotation.string_value = Some(text.to_string());
            }
            Value::Structure(members) => self.annotate(members, &mut annotation.members),
            Value::Array(elements) => {
                let elements = elements
                    .iter()
                    .filter_map(|element| self.annotation(element));
                annotation.elements = elements.collect();
            }
        }
        Some(annotation)
    }

    /// What has been interned since this was called last; `None` if nothing was.
    pub(crate) fn unwritten(&mut self) -> Option<InternedData> {
        let is_written = |texts: &Texts| texts.unwritten.is_empty();
        if self.texts().into_iter().all(is_written) {
            return None;
        }
        Some(InternedData {
            categories: std::mem::take(&mut self.categories.unwritten),
            event_names: std::mem::take(&mut self.event_names.unwritten),
            argument_names: std::mem::take(&mut self.argument_names.unwritten),
            argument_texts: std::mem::take(&mut self.argument_texts.unwritten),
        })
    }
}
