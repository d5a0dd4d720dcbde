//! The event classes, and the values of one event.

use ::ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord,
    FieldType, MetadataText, Value, Width,
};
use wire::Timestamp;

use super::{PREFIX, name};
use crate::event::{self, Event, Record};
use crate::phase::{FAMILIES, Family, Field, Holds, OTHER, place};

/// `client`, `present`, `ph`; the fields of [`OTHER`]; `args`, `rest`.
const MAX_FIELD_VALUES: usize = 18;

/// The event classes of one stream class, declared.
#[derive(Debug, Clone)]
pub struct Classes {
    /// The classes of the families, in the order of [`FAMILIES`].
    families: Vec<DeclaredEventClass>,
    other: DeclaredEventClass,
    raw: DeclaredEventClass,
    client: DeclaredEventClass,
    lost: DeclaredEventClass,
}

/// A connection to the daemon: said when it begins and when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// The number of the client in the trace.
    pub client: u32,
    /// The process at its other end, if known.
    pub pid: Option<i32>,
    /// The user of that process.
    pub uid: u32,
    /// The program of that process; empty if it is not known.
    pub exe: &'a str,
    /// Whether the connection begins; else it ends.
    pub opened: bool,
    /// Nanoseconds to be added to the times in its events to have those of the trace, if that can
    /// be estimated.
    pub offset: Option<i64>,
}

/// Lines that are not in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost<'a> {
    /// The number of the client that sent the lines.
    pub client: u32,
    /// The number of lines.
    pub count: u64,
    /// The reason, in words.
    pub reason: &'a str,
}

/// An event ready for a packet.
#[derive(Debug, Clone)]
pub struct Encoded<'e> {
    class: &'e DeclaredEventClass,
    process: i32,
    thread: i32,
    values: [Value<'e>; MAX_FIELD_VALUES],
    length: usize,
}

impl<'e> Encoded<'e> {
    fn new(class: &'e DeclaredEventClass) -> Self {
        Self {
            class,
            process: 0,
            thread: 0,
            // An array, so that no event needs memory of its own.
            values: [Value::Boolean(false); MAX_FIELD_VALUES],
            length: 0,
        }
    }

    #[inline]
    fn push(&mut self, value: Value<'e>) {
        // There is always room: `MAX_FIELD_VALUES` is what `tef:other` has.
        if let Some(place) = self.values.get_mut(self.length) {
            *place = value;
            self.length += 1;
        }
    }

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
            process: self.process,
            thread: self.thread,
            values: self.values.get(..self.length).unwrap_or_default(),
        }
    }
}

impl Classes {
    /// Declares all of them, with ids from 1 on.
    ///
    /// # Errors
    /// If the stream class has event classes of these ids.
    pub fn declare(
        metadata: &mut MetadataText,
        stream: &DeclaredStreamClass,
    ) -> Result<Self, DeclareError> {
        let mut id = 0;
        let mut declare = |class: &str, fields: &[(&str, FieldType)]| {
            id += 1;
            let fields = fields
                .iter()
                .map(|(name, of)| ((*name).to_owned(), of.clone()));
            let declaration = EventDeclaration {
                fields: fields.collect(),
                ..EventDeclaration::new(id, &format!("{PREFIX}{class}"))
            };
            metadata.event(stream, &declaration)
        };
        let families: Result<_, _> = FAMILIES
            .iter()
            .map(|family| declare(family.class, &fields(family)))
            .collect();
        let client = (name::CLIENT, FieldType::Unsigned(Width::Bits32));
        Ok(Self {
            families: families?,
            other: declare(OTHER.class, &fields(&OTHER))?,
            raw: declare("raw", &[client.clone(), (name::JSON, FieldType::Text)])?,
            client: declare(
                "client",
                &[
                    client.clone(),
                    (name::PID, FieldType::Signed(Width::Bits32)),
                    (name::UID, FieldType::Unsigned(Width::Bits32)),
                    (name::EXE, FieldType::Text),
                    (name::OPENED, FieldType::Boolean),
                    (name::OFFSET_KNOWN, FieldType::Boolean),
                    (name::OFFSET, FieldType::Signed(Width::Bits64)),
                ],
            )?,
            lost: declare(
                "lost",
                &[
                    client,
                    (name::COUNT, FieldType::Unsigned(Width::Bits64)),
                    (name::REASON, FieldType::Text),
                ],
            )?,
        })
    }

    /// Encodes a line that a client has sent.
    #[must_use]
    pub fn record<'e>(&'e self, client: u32, record: &'e Record<'_>) -> Encoded<'e> {
        match record {
            Record::Event(event) => self.event(client, event),
            Record::Raw(line) => {
                let mut raw = Encoded::new(&self.raw);
                raw.push(Value::Unsigned(client.into()));
                raw.push(Value::Text(line));
                raw
            }
        }
    }

    fn event<'e>(&'e self, client: u32, event: &'e Event<'_>) -> Encoded<'e> {
        let family = event.family();
        let class = place(event.phase).and_then(|place| self.families.get(place));
        let mut encoded = Encoded::new(class.unwrap_or(&self.other));
        encoded.process = event.pid.unwrap_or(0);
        // As viewers take it: an event of no thread is of the first.
        encoded.thread = event.tid.unwrap_or(encoded.process);
        encoded.push(Value::Unsigned(client.into()));
        encoded.push(Value::Unsigned(event.present().into()));
        if family.says_phase() {
            encoded.push(Value::Text(event.phase));
        }
        for field in family.fields {
            encoded.push(match event.get(*field) {
                Some(event::Value::Number(number)) => Value::Signed(number),
                Some(event::Value::Text(text)) => Value::Text(text),
                // A field of CTF cannot be absent: `present` says which of them are meant.
                None if field.holds() == Holds::Time => Value::Signed(0),
                None => Value::Text(""),
            });
        }
        encoded.push(Value::Text(event.args.unwrap_or_default()));
        encoded.push(Value::Text(&event.rest));
        encoded
    }

    /// A connection begins or ends.
    #[must_use]
    pub fn client<'e>(&'e self, client: &Client<'e>) -> Encoded<'e> {
        let mut encoded = Encoded::new(&self.client);
        let pid = client.pid.unwrap_or(0);
        encoded.process = pid;
        encoded.thread = pid;
        encoded.push(Value::Unsigned(client.client.into()));
        encoded.push(Value::Signed(pid.into()));
        encoded.push(Value::Unsigned(client.uid.into()));
        encoded.push(Value::Text(client.exe));
        encoded.push(Value::Boolean(client.opened));
        encoded.push(Value::Boolean(client.offset.is_some()));
        encoded.push(Value::Signed(client.offset.unwrap_or(0)));
        encoded
    }

    /// Encodes that lines are missing.
    #[must_use]
    pub fn lost<'e>(&'e self, lost: &Lost<'e>) -> Encoded<'e> {
        let mut encoded = Encoded::new(&self.lost);
        encoded.push(Value::Unsigned(lost.client.into()));
        encoded.push(Value::Unsigned(lost.count));
        encoded.push(Value::Text(lost.reason));
        encoded
    }
}

/// The fields of the event class of a family.
fn fields(family: &Family) -> Vec<(&'static str, FieldType)> {
    let mut fields = vec![
        (name::CLIENT, FieldType::Unsigned(Width::Bits32)),
        (name::PRESENT, FieldType::Hexadecimal(Width::Bits32)),
    ];
    if family.says_phase() {
        fields.push((name::PHASE, FieldType::Text));
    }
    fields.extend(family.fields.iter().map(|field| {
        let holds = match field.holds() {
            Holds::Time => FieldType::Signed(Width::Bits64),
            _ => FieldType::Text,
        };
        (field.name(), holds)
    }));
    fields.push((Field::Args.name(), FieldType::Text));
    fields.push((name::REST, FieldType::Text));
    fields
}
