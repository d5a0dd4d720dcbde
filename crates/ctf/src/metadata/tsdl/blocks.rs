//! Evaluates blocks: trace, environment, clocks, stream classes and event classes.

use std::sync::Arc;

use super::attributes::Attributes;
use super::evaluator::Evaluator;
use super::limits::MAX_FIELDS;
use super::roles;
use super::syntax::{Attribute, BlockKind, Entry, Value};
use crate::error::MetadataError;
use crate::metadata::warning::Deviation;
use crate::model::{
    ByteOrder, Clock, Declaration, EnvironmentValue, EventDraft, FieldClass, LogLevel, Position,
    Reference, Scope, StreamDraft, Structure, TraceDraft,
};

type Root = Option<Arc<Structure<Reference>>>;

const TRACE_ROOTS: [(&str, Scope); 1] = [("packet.header", Scope::PacketHeader)];
const STREAM_ROOTS: [(&str, Scope); 3] = [
    ("packet.context", Scope::PacketContext),
    ("event.header", Scope::EventHeader),
    ("event.context", Scope::CommonContext),
];
const EVENT_ROOTS: [(&str, Scope); 2] = [
    ("context", Scope::SpecificContext),
    ("fields", Scope::Payload),
];

/// The byte order of the trace, on which the meaning of all types depends.
pub(super) fn byte_order(entries: &[Entry], at: Position) -> Result<ByteOrder, MetadataError> {
    Attributes::new("trace", at, attributes(entries))?
        .require_attribute("byte_order")?
        .byte_order(None)
}

fn attributes(entries: &[Entry]) -> impl Iterator<Item = &Attribute> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Attribute(attribute) => Some(attribute),
        Entry::Type(_) => None,
    })
}

impl Evaluator {
    /// Evaluates a block whose needs are known.
    pub(super) fn block(
        &mut self,
        kind: BlockKind,
        entries: &[Entry],
        at: Position,
    ) -> Result<Vec<Declaration>, MetadataError> {
        let mut attributes = Attributes::new(kind.keyword(), at, attributes(entries))?;
        let declaration = match kind {
            // A call site says where in the program an event is; no reader needs it.
            BlockKind::Callsite => return Ok(Vec::new()),
            BlockKind::Environment => return self.environment(entries),
            BlockKind::Trace => self.trace(&mut attributes, entries, at)?,
            BlockKind::Clock => self.clock(&mut attributes, at)?,
            BlockKind::Stream => self.stream(&mut attributes, entries, at)?,
            BlockKind::Event => self.event(&mut attributes, entries, at)?,
        };
        attributes.finish(&mut self.warnings);
        Ok(vec![declaration])
    }

    fn trace(
        &mut self,
        attributes: &mut Attributes<'_>,
        entries: &[Entry],
        at: Position,
    ) -> Result<Declaration, MetadataError> {
        // CTF 2 is JSON, so that TSDL of any other version is of the future.
        for (part, want) in [("major", 1), ("minor", 8)] {
            let given = attributes.require_attribute(part)?;
            if given.number()? != want {
                return Err(given.expects(&format!("{want}: this reads version 1.8")));
            }
        }
        self.native = attributes
            .require_attribute("byte_order")?
            .byte_order(None)?;
        let uuid = attributes.read_attribute("uuid", Attribute::uuid)?;
        let [packet_header] = self.roots(attributes, entries, TRACE_ROOTS)?;
        Ok(Declaration::Trace(TraceDraft {
            uuid,
            packet_header,
            at,
            ..TraceDraft::default()
        }))
    }

    fn environment(&mut self, entries: &[Entry]) -> Result<Vec<Declaration>, MetadataError> {
        let mut declarations = Vec::new();
        for attribute in attributes(entries) {
            let value = match &attribute.value {
                Value::Number(number) => EnvironmentValue::Integer(wrapped(*number)),
                Value::Text(_) | Value::Path(_) => EnvironmentValue::Text(attribute.word()?),
                Value::Type(_) => return Err(attribute.expects("an integer or a text")),
            };
            let name: Arc<str> = attribute.path.joined().into();
            self.environment.insert(name.clone(), value.clone());
            declarations.push(Declaration::Environment(name, value));
        }
        Ok(declarations)
    }

    fn clock(
        &mut self,
        attributes: &mut Attributes<'_>,
        at: Position,
    ) -> Result<Declaration, MetadataError> {
        let given = attributes.require_attribute("name")?;
        let name = given.word()?;
        if !self.clocks.insert(name.clone()) {
            let what = format!("the clock `{name}` is declared twice");
            return Err(MetadataError::text(given.at, what));
        }
        let frequency = attributes.read_attribute("freq", |given| match given.unsigned()? {
            0 => Err(given.expects("a frequency above 0")),
            frequency => Ok(frequency),
        })?;
        let uuid = attributes.read_attribute("uuid", Attribute::uuid)?;
        let offset_seconds = attributes.read_attribute("offset_s", Attribute::signed)?;
        let offset_cycles = attributes.take_attribute("offset");
        let absolute = attributes.read_attribute("absolute", Attribute::boolean)?;
        // 1 GHz unless given (CTF 1.8.3, section 8).
        let frequency = frequency.unwrap_or(1_000_000_000);
        let (offset_seconds, offset_cycles) =
            self.clock_offset(offset_seconds.unwrap_or(0), offset_cycles, frequency)?;
        let clock = Clock {
            name,
            uuid,
            description: attributes.read_attribute("description", Attribute::word)?,
            frequency,
            precision: attributes.read_attribute("precision", Attribute::unsigned)?,
            offset_seconds,
            offset_cycles,
            absolute: absolute.unwrap_or(false),
        };
        Ok(Declaration::Clock(clock, at))
    }

    /// The offset of a clock in seconds and cycles. `given` is `offset`, which may be below 0:
    /// seconds are borrowed then.
    fn clock_offset(
        &mut self,
        seconds: i64,
        given: Option<&Attribute>,
        frequency: u64,
    ) -> Result<(i64, u64), MetadataError> {
        let Some(given) = given else {
            return Ok((seconds, 0));
        };
        let cycles = given.number()?;
        if cycles >= 0 {
            return Ok((seconds, given.unsigned()?));
        }
        let what = format!("the clock has an `offset` of {cycles}, below 0");
        (self.warnings).add_deviation(Deviation::NegativeOffset, given.at, &what);
        // Euclidean, so that the rest is never below 0.
        let whole = cycles.div_euclid(i128::from(frequency));
        let rest = cycles.rem_euclid(i128::from(frequency));
        // `i128` holds the sum of two numbers of 64 bits.
        i64::try_from(i128::from(seconds) + whole)
            .ok()
            .zip(u64::try_from(rest).ok())
            .ok_or_else(|| given.expects("an integer of 64 bits"))
    }

    fn stream(
        &mut self,
        attributes: &mut Attributes<'_>,
        entries: &[Entry],
        at: Position,
    ) -> Result<Declaration, MetadataError> {
        let id = attributes.read_attribute("id", Attribute::unsigned)?;
        let [packet_context, event_header, event_context] =
            self.roots(attributes, entries, STREAM_ROOTS)?;
        Ok(Declaration::Stream(StreamDraft {
            id,
            // Only CTF 2 has the name and the clock of a stream class.
            name: None,
            clock: None,
            packet_context,
            event_header,
            event_context,
            at,
        }))
    }

    fn event(
        &mut self,
        attributes: &mut Attributes<'_>,
        entries: &[Entry],
        at: Position,
    ) -> Result<Declaration, MetadataError> {
        let name = attributes.require_attribute("name")?.word()?;
        let id = attributes.read_attribute("id", Attribute::unsigned)?;
        let stream_id = attributes.read_attribute("stream_id", Attribute::unsigned)?;
        let emf_uri = attributes.read_attribute("model.emf.uri", Attribute::word)?;
        let log_level = attributes.take_attribute("loglevel");
        let [context, payload] = self.roots(attributes, entries, EVENT_ROOTS)?;
        Ok(Declaration::Event(EventDraft {
            id,
            stream_id,
            name: Some(name),
            log_level: log_level.and_then(|given| self.log_level(given)),
            emf_uri,
            context,
            payload,
            at,
        }))
    }

    /// Reads a log level. Decoding does not need it, so that an unknown one is only a warning.
    fn log_level(&mut self, given: &Attribute) -> Option<LogLevel> {
        let number = given
            .number()
            .ok()
            .and_then(|number| u8::try_from(number).ok());
        let level = number.map(LogLevel).filter(|level| level.name().is_some());
        if level.is_none() {
            self.warnings.add(given.at, "unknown log level");
        }
        level
    }

    /// The roots that a block declares, in the order of `wanted`. Types are declared in the order
    /// of the text, in a scope that ends with the block.
    fn roots<const N: usize>(
        &mut self,
        attributes: &mut Attributes<'_>,
        entries: &[Entry],
        wanted: [(&str, Scope); N],
    ) -> Result<[Root; N], MetadataError> {
        let mut roots = [const { None }; N];
        self.scopes.enter();
        for entry in entries {
            let attribute = match entry {
                Entry::Attribute(attribute) => attribute,
                Entry::Type(declaration) => {
                    self.declare(declaration)?;
                    continue;
                }
            };
            let name = attribute.path.joined();
            for (root, (_, scope)) in
                (roots.iter_mut().zip(wanted)).filter(|(_, (wanted, _))| **wanted == *name)
            {
                // Taken, so that `finish` does not warn of it as unknown.
                attributes.take_attribute(&name);
                *root = Some(self.root(attribute, scope)?);
            }
        }
        self.scopes.leave();
        Ok(roots)
    }

    fn root(
        &mut self,
        attribute: &Attribute,
        scope: Scope,
    ) -> Result<Arc<Structure<Reference>>, MetadataError> {
        let Value::Type(class) = &attribute.value else {
            return Err(attribute.expects("a structure, after `:=`"));
        };
        let typed = self.class(class)?;
        let FieldClass::Structure(structure) = &typed.class else {
            return Err(attribute.expects("a structure"));
        };
        // Named types make a short text stand for many fields: they are counted per use, not per
        // line.
        self.fields = self.fields.saturating_add(typed.cost.fields);
        if self.fields > MAX_FIELDS {
            let what = format!("more than {MAX_FIELDS} fields in all");
            return Err(MetadataError::text(attribute.at, what));
        }
        roles::assigned(structure, scope, attribute.at)
    }
}

/// Converts as C does: a constant that only fits an unsigned number of 64 bits wraps around.
fn wrapped(number: i128) -> i64 {
    i64::try_from(number)
        .or_else(|_| u64::try_from(number).map(u64::cast_signed))
        .unwrap_or(i64::MIN)
}
