//! Evaluates blocks: trace, environment, clocks, stream classes and event classes.

use std::sync::Arc;

use super::attributes::Attributes;
use super::evaluator::Evaluator;
use super::limits::MAX_FIELDS;
use super::roles;
use super::syntax::{Attribute, BlockKind, Entry, Value};
use crate::error::MetadataError;
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

/// The byte order that the entries of a trace give, on which the meaning of all types depends.
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
        for (part, want) in [("major", 1), ("minor", 8)] {
            let given = attributes.require_attribute(part)?;
            if given.number()? != want {
                return Err(given.expects(&format!("{want}: this reads version 1.8")));
            }
        }
        self.native = attributes
            .require_attribute("byte_order")?
            .byte_order(None)?;
        let uuid = attributes
            .take_attribute("uuid")
            .map(Attribute::uuid)
            .transpose()?;
        let [packet_header] = self.roots(attributes, entries, TRACE_ROOTS)?;
        Ok(Declaration::Trace(TraceDraft {
            uuid,
            name: None,
            packet_header,
            at,
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
        let mut frequency = 1_000_000_000;
        if let Some(given) = attributes.take_attribute("freq") {
            frequency = given.unsigned()?;
            if frequency == 0 {
                return Err(given.expects("a frequency above 0"));
            }
        }
        let uuid = attributes
            .take_attribute("uuid")
            .map(Attribute::uuid)
            .transpose()?;
        let description = attributes.take_attribute("description");
        let precision = attributes.take_attribute("precision");
        let offset_seconds = attributes.take_attribute("offset_s");
        let offset_cycles = attributes.take_attribute("offset");
        let absolute = attributes.take_attribute("absolute");
        let clock = Clock {
            name,
            uuid,
            description: description.map(Attribute::word).transpose()?,
            frequency,
            precision: precision.map(Attribute::unsigned).transpose()?,
            offset_seconds: offset_seconds.map_or(Ok(0), Attribute::signed)?,
            offset_cycles: offset_cycles.map_or(Ok(0), Attribute::unsigned)?,
            absolute: absolute.map_or(Ok(false), Attribute::boolean)?,
        };
        Ok(Declaration::Clock(clock, at))
    }

    fn stream(
        &mut self,
        attributes: &mut Attributes<'_>,
        entries: &[Entry],
        at: Position,
    ) -> Result<Declaration, MetadataError> {
        let id = attributes
            .take_attribute("id")
            .map(Attribute::unsigned)
            .transpose()?;
        let [packet_context, event_header, event_context] =
            self.roots(attributes, entries, STREAM_ROOTS)?;
        Ok(Declaration::Stream(StreamDraft {
            id,
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
        let id = attributes
            .take_attribute("id")
            .map(Attribute::unsigned)
            .transpose()?;
        let stream_id = attributes.take_attribute("stream_id");
        let emf_uri = attributes.take_attribute("model.emf.uri");
        let log_level = attributes.take_attribute("loglevel");
        let [context, payload] = self.roots(attributes, entries, EVENT_ROOTS)?;
        Ok(Declaration::Event(EventDraft {
            id,
            stream_id: stream_id.map(Attribute::unsigned).transpose()?,
            name: Some(name),
            log_level: log_level.and_then(|given| self.log_level(given)),
            emf_uri: emf_uri.map(Attribute::word).transpose()?,
            context,
            payload,
            at,
        }))
    }

    /// Decoding needs no log level, so an unknown one is only worth a warning.
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

    /// The roots that a block declares, in the order of `wanted`. Types are taken in the order of
    /// the text, in a scope of the block's own.
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
