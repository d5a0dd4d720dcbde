//! The fields of one event as arguments with types.

use ctf::decode::{NumberFormat, Visitor};
use ctf::model::{Labels, Scope};

use crate::{Argument, Text, Value};

/// Collects the fields of one event.
#[derive(Debug, Default)]
pub struct EventFields {
    /// The fields of the payload.
    pub payload: Vec<Argument>,
    /// The fields of the contexts of the event.
    pub context: Vec<Argument>,
    /// The number of the CPU of the packet.
    pub cpu: Option<i64>,
    /// Whether the event is of a generic class of our own producers.
    is_generic: bool,
    variant: Variant,
    scope: Option<Scope>,
    /// The name of the field of the scope that comes next; `None` outside its structure.
    root: Option<Text>,
    /// What is open within that field: structures and arrays, the innermost last.
    open: Vec<Open>,
}

/// The option of a variant of a generic class, where it says more than its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Variant {
    #[default]
    Other,
    Nil,
    Flag,
}

#[derive(Debug)]
enum Open {
    /// The members so far, and the name of the next one.
    Structure(Vec<Argument>, Text),
    Array(Vec<Value>),
}

impl EventFields {
    /// Forgets the event before.
    pub fn begin_event(&mut self, is_generic: bool) {
        self.payload.clear();
        self.context.clear();
        self.open.clear();
        *self = Self {
            is_generic,
            payload: std::mem::take(&mut self.payload),
            context: std::mem::take(&mut self.context),
            open: std::mem::take(&mut self.open),
            ..Self::default()
        };
    }

    /// Gives back arguments that were [taken](Self::take_arguments), when they are not needed: the
    /// next event uses their memory.
    pub fn give_back(&mut self, arguments: Vec<Argument>) {
        self.payload = arguments;
    }

    /// The text of a field of the payload; empty if it is not there.
    #[must_use]
    pub fn text(&self, names: &[&str]) -> &str {
        let field = find(&self.payload, names);
        field
            .and_then(|field| field.value.text())
            .unwrap_or_default()
    }

    /// The text of a field of the contexts.
    #[must_use]
    pub fn context_text(&self, names: &[&str]) -> Option<&str> {
        let field = find(&self.context, names)?;
        field.value.text().filter(|text| !text.is_empty())
    }

    /// The number of a field of the payload, under the first of these names that it has.
    #[must_use]
    pub fn number(&self, names: &[&str]) -> Option<i64> {
        number_of(&self.payload, names)
    }

    /// The number of a field of the contexts, under the first of these names that it has.
    #[must_use]
    pub fn context_number(&self, names: &[&str]) -> Option<i64> {
        number_of(&self.context, names)
    }

    /// Takes a field out of the payload.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let place = self.payload.iter().position(|field| field.name == name)?;
        Some(self.payload.remove(place).value)
    }

    /// Takes a text out of the payload; empty if it is not there.
    pub fn take_text(&mut self, name: &str) -> Text {
        match self.take(name) {
            Some(Value::Text(text) | Value::Label(_, text)) => text,
            _ => Text::default(),
        }
    }

    /// Takes a number without sign out of the payload; 0 if it is not there.
    pub fn take_unsigned(&mut self, name: &str) -> u64 {
        let number = self.take(name).and_then(|value| value.number());
        number
            .and_then(|number| u64::try_from(number).ok())
            .unwrap_or(0)
    }

    /// Puts the arguments of a generic event in place of the array of their names and values.
    pub fn spread_arguments(&mut self) {
        let Some(Value::Array(elements)) = self.take("args") else {
            return;
        };
        for element in elements {
            let Value::Structure(mut members) = element else {
                continue;
            };
            let value = members.pop().map(|member| member.value);
            let key = members.pop().map(|member| member.value);
            if let (Some(Value::Text(name)), Some(value)) = (key, value) {
                self.payload.push(Argument { name, value });
            }
        }
    }

    /// Takes all arguments: the payload, and the contexts as one structure, without what says whose
    /// the event is.
    pub fn take_arguments(&mut self) -> Vec<Argument> {
        const OWNER: [&str; 5] = ["vpid", "vtid", "pid", "tid", "procname"];
        let mut arguments = std::mem::take(&mut self.payload);
        self.context.retain(|field| !OWNER.contains(&&*field.name));
        if !self.context.is_empty() {
            let context = self.context.drain(..).collect();
            arguments.push(Argument::new("context", Value::Structure(context)));
        }
        arguments
    }

    fn add(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(Open::Structure(members, name)) => {
                members.push(Argument::new(std::mem::take(name), value));
            }
            Some(Open::Array(elements)) => elements.push(value),
            None => self.add_field(value),
        }
    }

    /// Adds a field of the scope.
    fn add_field(&mut self, value: Value) {
        let Some(name) = &mut self.root else {
            return;
        };
        let name = std::mem::take(name);
        match self.scope {
            // JSON has no scope.
            Some(Scope::Payload) | None => self.payload.push(Argument { name, value }),
            Some(Scope::CommonContext | Scope::SpecificContext) => {
                self.context.push(Argument { name, value });
            }
            Some(Scope::PacketContext) if name == "cpu_id" => {
                self.cpu = value.number().and_then(|number| number.try_into().ok());
            }
            _ => {}
        }
    }

    fn add_number(&mut self, number: i128, plain: Value, labels: Option<&Labels>) {
        match self.variant {
            Variant::Nil => return self.add(Value::Nothing),
            Variant::Flag => return self.add(Value::Bool(number != 0)),
            Variant::Other => {}
        }
        let mut names = labels.into_iter().flat_map(|labels| labels.of(number));
        let value = match names.next() {
            Some(first) => {
                let names = names.fold(first.into(), |all: Text, name| all + " | " + name);
                Value::Label(number, names)
            }
            None => plain,
        };
        self.add(value);
    }
}

fn find<'f>(fields: &'f [Argument], names: &[&str]) -> Option<&'f Argument> {
    let is_of = |name: &&str| fields.iter().find(|field| field.name == **name);
    names.iter().find_map(is_of)
}

fn number_of(fields: &[Argument], names: &[&str]) -> Option<i64> {
    find(fields, names)?.value.number()?.try_into().ok()
}

impl Visitor for EventFields {
    fn begin_scope(&mut self, scope: Scope) {
        self.scope = Some(scope);
        self.root = None;
        self.open.clear();
    }

    fn begin_structure(&mut self) {
        match self.root {
            None => self.root = Some(Text::default()),
            Some(_) => self.open.push(Open::Structure(Vec::new(), Text::default())),
        }
    }

    fn member(&mut self, name: &str) {
        match self.open.last_mut() {
            Some(Open::Structure(_, next)) => *next = name.into(),
            Some(Open::Array(_)) => {}
            None => self.root = Some(name.into()),
        }
    }

    fn end_structure(&mut self) {
        match self.open.pop() {
            Some(Open::Structure(members, _)) => self.add(Value::Structure(members)),
            Some(Open::Array(_)) => {}
            None => self.root = None,
        }
    }

    fn begin_array(&mut self, _length: u64) {
        self.open.push(Open::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        if let Some(Open::Array(elements)) = self.open.pop() {
            self.add(Value::Array(elements));
        }
    }

    fn begin_variant(&mut self, option: Option<&str>) {
        self.variant = match option {
            Some("nil") if self.is_generic => Variant::Nil,
            Some("flag") if self.is_generic => Variant::Flag,
            _ => Variant::Other,
        };
    }

    fn end_variant(&mut self) {
        self.variant = Variant::Other;
    }

    fn begin_optional(&mut self, present: bool) {
        if !present {
            self.add(Value::Nothing);
        }
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.add_number(value.into(), Value::Unsigned(value), format.labels);
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.add_number(value.into(), Value::Signed(value), format.labels);
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.add(Value::Float(value));
    }

    fn boolean(&mut self, value: bool) {
        self.add(Value::Bool(value));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, _flags: Option<&Labels>) {
        self.add(Value::Unsigned(value));
    }

    fn text(&mut self, bytes: &[u8]) {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(bytes).into(),
        };
        self.add(Value::Text(text));
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        let mut text = String::new();
        for byte in bytes {
            text.push_str(&format!("{byte:02x}"));
        }
        self.add(Value::Text(text.into()));
    }
}
