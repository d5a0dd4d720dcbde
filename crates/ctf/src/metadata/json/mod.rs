//! The metadata of CTF 2: a sequence of JSON objects, each a fragment that declares something.
//!
//! Read in this order: [`sequence`] (where fragments begin and end), [`property`], [`class`] and
//! [`fragment`] (what is written in them, as tables), [`scalar`] and [`build`] (field classes as
//! the model has them), and here what a fragment may say at its place. Each uses only those before
//! it.

mod build;
mod class;
mod fragment;
mod limits;
mod problem;
mod property;
mod scalar;
mod sequence;

use std::collections::HashSet;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use self::build::Builder;
use self::class::ClassOrAlias;
use self::fragment::{
    AliasFragment, ClockFragment, EventFragment, Kind, PreambleFragment, StreamFragment,
    TraceFragment,
};
use self::limits::MAX_FRAGMENTS;
use self::problem::Problem;
use self::property::Name;
use self::sequence::{Fragment, Sequence};
use crate::error::MetadataError;
use crate::model::{
    Declaration, EventDraft, FieldClass, Position, Reference, Role, Scope, StreamDraft, Structure,
    TraceDraft, Uuid,
};

/// Reads metadata that arrives in pieces, cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    sequence: Sequence,
    fragments: usize,
    preamble: Option<Preamble>,
    is_trace_declared: bool,
    clocks: HashSet<Arc<str>>,
    builder: Builder,
    /// The first error; nothing after it is read.
    failed: Option<MetadataError>,
}

#[derive(Debug, Clone, Copy)]
struct Preamble {
    uuid: Option<Uuid>,
    at: Position,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece, and returns the declarations of the fragments that it completes.
    ///
    /// # Errors
    /// If a fragment is invalid; every further call fails with the same error.
    pub(crate) fn extend(&mut self, text: &[u8]) -> Result<Vec<Declaration>, MetadataError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let read = self.read(text);
        if let Err(error) = &read {
            self.failed = Some(error.clone());
        }
        read
    }

    /// Ends the metadata.
    ///
    /// # Errors
    /// If it ends within a fragment, or before the first.
    pub(crate) fn finish(&mut self) -> Result<(), MetadataError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if let Some(at) = self.sequence.unfinished() {
            return Err(MetadataError::Incomplete { at });
        }
        match self.preamble {
            Some(_) => Ok(()),
            None => Err(MetadataError::text(
                Position { line: 1, column: 1 },
                "there is no preamble",
            )),
        }
    }

    fn read(&mut self, mut text: &[u8]) -> Result<Vec<Declaration>, MetadataError> {
        let mut declarations = Vec::new();
        while let Some(fragment) = self.sequence.next(&mut text)? {
            self.fragments += 1;
            let fragment_at = fragment.at;
            self.declare(&fragment, &mut declarations)
                .map_err(|problem| {
                    let at = problem.at.unwrap_or(fragment_at);
                    let what = format!("fragment {}: {}", self.fragments, problem.what);
                    MetadataError::text(at, what)
                })?;
        }
        Ok(declarations)
    }

    fn declare(&mut self, fragment: &Fragment, to: &mut Vec<Declaration>) -> Result<(), Problem> {
        if self.fragments > MAX_FRAGMENTS {
            return Err(Problem::new("it is one too many"));
        }
        // Parsed twice, because the type may be the last member of the object.
        let kind: Kind = parse(fragment)?;
        if self.preamble.is_none() && kind.name != "preamble" {
            return Err(Problem::new(
                "metadata begins with something but a preamble",
            ));
        }
        kind.extensions.check_known()?;
        self.builder.begin_fragment(fragment.at);
        match &*kind.name {
            "preamble" => self.preamble(&parse(fragment)?, fragment.at),
            "field-class-alias" => self.alias(parse(fragment)?),
            "trace-class" => self.trace(&parse(fragment)?, fragment.at, to),
            "clock-class" => self.clock(&parse(fragment)?, fragment.at, to),
            "data-stream-class" => self.stream(&parse(fragment)?, fragment.at, to),
            "event-record-class" => self.event(&parse(fragment)?, fragment.at, to),
            unknown => Err(Problem::new(format!("unknown type {unknown:?}"))),
        }
    }

    fn preamble(&mut self, preamble: &PreambleFragment, at: Position) -> Result<(), Problem> {
        if self.preamble.is_some() {
            return Err(Problem::new("a second preamble"));
        }
        if preamble.version != 2 {
            let version = preamble.version;
            return Err(Problem::new(format!("CTF of unknown version {version}")));
        }
        let uuid = preamble.uuid.map(Uuid);
        self.preamble = Some(Preamble { uuid, at });
        Ok(())
    }

    fn alias(&mut self, alias: AliasFragment) -> Result<(), Problem> {
        self.builder.declare_alias(alias.name.0, alias.class)
    }

    fn trace(
        &mut self,
        trace: &TraceFragment,
        at: Position,
        to: &mut Vec<Declaration>,
    ) -> Result<(), Problem> {
        if self.is_trace_declared {
            return Err(Problem::new(
                "a second trace class, or one behind a data stream class",
            ));
        }
        let packet_header = self.root(trace.packet_header.as_ref(), Scope::PacketHeader, None)?;
        if let Some(header) = &packet_header {
            magic_comes_first(header)?;
        }
        let given = self.preamble.and_then(|preamble| preamble.uuid);
        let own = trace.uid.as_ref().and_then(|uid| Uuid::parse(&uid.0));
        self.is_trace_declared = true;
        let text = |name: &Option<Name>| name.as_ref().map(|name| Arc::clone(&name.0));
        to.push(Declaration::Trace(TraceDraft {
            uuid: given.or(own),
            stream_uuid: given,
            is_ctf_2: true,
            namespace: text(&trace.namespace),
            name: text(&trace.name),
            uid: text(&trace.uid),
            packet_header,
            at,
        }));
        let environment = trace.environment.iter().flat_map(|entries| &entries.0);
        to.extend(
            environment
                .map(|(name, value)| Declaration::Environment(Arc::clone(name), value.0.clone())),
        );
        Ok(())
    }

    /// Declares an empty trace class, unless the metadata has declared one: the fragment is
    /// optional.
    fn trace_is_declared(&mut self, to: &mut Vec<Declaration>) {
        if !std::mem::replace(&mut self.is_trace_declared, true) {
            let preamble = self.preamble;
            let uuid = preamble.and_then(|preamble| preamble.uuid);
            to.push(Declaration::Trace(TraceDraft {
                uuid,
                stream_uuid: uuid,
                is_ctf_2: true,
                at: preamble.map(|preamble| preamble.at).unwrap_or_default(),
                ..TraceDraft::default()
            }));
        }
    }

    fn clock(
        &mut self,
        clock: &ClockFragment,
        at: Position,
        to: &mut Vec<Declaration>,
    ) -> Result<(), Problem> {
        let clock = clock.model()?;
        if !self.clocks.insert(Arc::clone(&clock.name)) {
            return Err(Problem::new(format!("a second clock {:?}", clock.name)));
        }
        to.push(Declaration::Clock(clock, at));
        Ok(())
    }

    fn stream(
        &mut self,
        stream: &StreamFragment,
        at: Position,
        to: &mut Vec<Declaration>,
    ) -> Result<(), Problem> {
        let clock = stream.clock.as_ref().map(|id| Arc::clone(&id.0));
        if let Some(id) = &clock
            && !self.clocks.contains(id)
        {
            return Err(Problem::new(format!("no clock {id:?} before it")));
        }
        self.trace_is_declared(to);
        let of_clock = clock.as_ref();
        let draft = StreamDraft {
            // 0 unless given, also beside other stream classes.
            id: Some(stream.id.unwrap_or(0)),
            name: stream.name.as_ref().map(|name| Arc::clone(&name.0)),
            packet_context: self.root(
                stream.packet_context.as_ref(),
                Scope::PacketContext,
                of_clock,
            )?,
            event_header: self.root(stream.event_header.as_ref(), Scope::EventHeader, of_clock)?,
            event_context: self.root(
                stream.event_context.as_ref(),
                Scope::CommonContext,
                of_clock,
            )?,
            clock,
            at,
        };
        to.push(Declaration::Stream(draft));
        Ok(())
    }

    fn event(
        &mut self,
        event: &EventFragment,
        at: Position,
        to: &mut Vec<Declaration>,
    ) -> Result<(), Problem> {
        self.trace_is_declared(to);
        let draft = EventDraft {
            id: Some(event.id.unwrap_or(0)),
            stream_id: Some(event.stream_id.unwrap_or(0)),
            name: event.name.as_ref().map(|name| Arc::clone(&name.0)),
            log_level: event.log_level(),
            emf_uri: event.emf_uri(),
            // Without clock: a timestamp in a context or payload has no role.
            context: self.root(event.context.as_ref(), Scope::SpecificContext, None)?,
            payload: self.root(event.payload.as_ref(), Scope::Payload, None)?,
            at,
        };
        to.push(Declaration::Event(draft));
        Ok(())
    }

    fn root(
        &mut self,
        class: Option<&ClassOrAlias>,
        scope: Scope,
        clock: Option<&Arc<str>>,
    ) -> Result<Option<Arc<Structure<Reference>>>, Problem> {
        class
            .map(
                |class| match self.builder.build_root(class, scope, clock)? {
                    FieldClass::Structure(structure) => Ok(structure),
                    _ => Err(Problem::new("a root that is no structure")),
                },
            )
            .transpose()
    }
}

/// Checks that the magic number is the first member, because it tells packets from other files.
fn magic_comes_first(header: &Structure<Reference>) -> Result<(), Problem> {
    let has_magic = |class: &FieldClass<Reference>| {
        let class = match class {
            FieldClass::Reversed(class) => class,
            class => class,
        };
        matches!(class, FieldClass::Integer(integer) if integer.role == Some(Role::PacketMagic))
    };
    match header
        .members
        .iter()
        .position(|member| has_magic(&member.class))
    {
        None | Some(0) => Ok(()),
        Some(_) => Err(Problem::new("the magic number is not the first member")),
    }
}

fn parse<T: DeserializeOwned>(fragment: &Fragment) -> Result<T, Problem> {
    serde_json::from_slice(&fragment.text).map_err(|error| Problem {
        at: Some(fragment.position(error.line(), error.column())),
        // Without the position of `serde_json`, which counts from the beginning of the fragment.
        what: error
            .to_string()
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
}

#[cfg(test)]
mod tests;
