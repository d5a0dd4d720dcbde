//! The filter of events: `--filter EXPRESSION`. The language is described in `doc/filter.md`.
//!
//! Read in this order; each module uses only those before it: `error`, `glob` (patterns with `*`
//! and `?`), `token` (the lexer), `expression` (what an expression is), `parse` (from tokens to
//! that), `collect` (from the fields of an event to the comparisons that they decide), `names`
//! (names that no trace declares), `number` (a numeric field, for `--counter`).
//!
//! What an expression says about names of events and traces is decided once for each event class;
//! fields are decoded only where that leaves something open.

mod collect;
mod error;
mod expression;
mod glob;
mod names;
mod number;
mod parse;
#[cfg(test)]
mod tests;
mod token;

use std::collections::HashMap;

use ctf::decode::{Event, FieldError};

pub use error::FilterError;
use names::SeenNames;
pub use names::UndeclaredNames;
pub use number::NumberSelector;

use crate::interpret::event_name::{ClassKey, ClassNames, EventNames};
use crate::sink::Origin;
use collect::PathTracker;
use expression::{Expression, Leaf, Property};
use tef::json_args::has_json_args;

/// Largest number of event classes whose decision is remembered. With one more, all are forgotten.
const MAX_REMEMBERED_CLASSES: usize = 1 << 16;

/// Decides which events are shown.
#[derive(Debug)]
pub struct Filter {
    expression: Expression,
    leaves: Vec<Leaf>,
    collect: PathTracker,
    /// The value of each leaf for the event at hand, as far as it is known.
    known: Vec<Option<bool>>,
    classes: HashMap<ClassKey, ClassDecision>,
    last: Option<(ClassKey, ClassDecision)>,
    names: EventNames,
    seen_names: SeenNames,
}

/// The decision for all events of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClassDecision {
    /// The number of classes of the stream class when it was made.
    declared: usize,
    /// The decision. Absent if it depends on the event.
    decided: Option<bool>,
}

/// The properties of an event that are known before its fields are decoded.
#[derive(Debug, Clone, Copy)]
struct Facts<'a> {
    class: ClassKey,
    /// The number of classes of the stream class.
    declared: usize,
    /// The name of the class.
    name: Option<&'a str>,
    names: &'a ClassNames,
    /// The name of the event besides, if it has one.
    own_name: Option<&'a str>,
    log_level: Option<u8>,
    trace: &'a str,
    stream: &'a str,
    time: Option<i64>,
    /// Whether the field `args` of the payload is JSON.
    has_json_args: bool,
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// If it is not in the language of `doc/filter.md`.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let (expression, leaves) = parse::parse(text)?;
        Ok(Self {
            collect: PathTracker::new(&leaves),
            known: vec![None; leaves.len()],
            expression,
            seen_names: SeenNames::new(&leaves),
            leaves,
            classes: HashMap::new(),
            last: None,
            names: EventNames::default(),
        })
    }

    /// The names in the filter of which it is not known yet that a trace declares them.
    pub fn undeclared_names(&self) -> UndeclaredNames {
        UndeclaredNames::new(&self.leaves)
    }

    /// Descriptions of names and arguments in the filter that no event had, with similar ones.
    pub fn describe_missing(&self) -> Vec<String> {
        let mut descriptions = self.collect.describe_missing_args();
        descriptions.extend(self.seen_names.describe_missing());
        descriptions
    }

    /// Whether `event` is wanted. One whose fields cannot be decoded is, so that its failure is
    /// seen.
    pub fn matches(&mut self, event: &Event<'_>, origin: Origin<'_>) -> bool {
        let class = event.class();
        let key = (origin.trace.key, event.stream_class().id(), class.id());
        // A decision is only valid among these classes: a further one may be the other half of a
        // pair.
        let declared = event.stream_class().events().len();
        if let Some(decided) = self.known_decision(key, declared).and_then(|of| of.decided) {
            return decided;
        }
        // Taken out, because the names are borrowed while the rest of the filter changes.
        let mut of_events = std::mem::take(&mut self.names);
        let names = match self.seen_names.is_used() {
            true => of_events.of_class(event, key),
            false => ClassNames::default(),
        };
        let own_name = of_events.own_name(&names, event);
        let decided = own_name.and_then(|own_name| {
            let facts = Facts {
                class: key,
                declared,
                name: class.name(),
                names: &names,
                own_name,
                log_level: class.log_level().map(|level| level.0),
                trace: &origin.trace.name,
                stream: &origin.stream.name,
                time: event.time(),
                has_json_args: self.collect.needs_args() && has_json_args(class.name()),
            };
            self.seen_names.add(facts.names, facts.name, own_name);
            let (packet, fields) = (self.collect.needs_packet(), self.collect.needs_event());
            self.decide(facts, |collect| {
                if packet {
                    event.visit_packet_context(collect)?;
                }
                if fields {
                    event.visit_fields(collect)?;
                }
                Ok(())
            })
        });
        self.names = of_events;
        decided.unwrap_or(true)
    }

    fn decide(
        &mut self,
        facts: Facts<'_>,
        visit: impl FnOnce(&mut FieldMatcher<'_>) -> Result<(), FieldError>,
    ) -> Result<bool, FieldError> {
        if let Some(decided) = self.class_decision(facts) {
            return Ok(decided);
        }
        for (leaf, known) in self.leaves.iter().zip(&mut self.known) {
            *known = facts.decide_class(leaf).or_else(|| match leaf {
                Leaf::Property(Property::Name, test) => {
                    Some(test.name(facts.names, facts.name, facts.own_name))
                }
                Leaf::Property(Property::Stream, test) => Some(test.text(facts.stream.as_bytes())),
                Leaf::Property(Property::Time, test) => Some(
                    facts
                        .time
                        .is_some_and(|time| test.integer(i128::from(time))),
                ),
                _ => None,
            });
        }
        if let Some(decided) = self.expression.evaluate(&self.known) {
            return Ok(decided);
        }
        self.collect.begin_event();
        visit(&mut FieldMatcher {
            collect: &mut self.collect,
            leaves: &self.leaves,
            known: &mut self.known,
            has_json_args: facts.has_json_args,
            is_in_payload: false,
            is_in_args: false,
        })?;
        for known in &mut self.known {
            // A field that is not there compares as nothing.
            known.get_or_insert(false);
        }
        Ok(self.expression.evaluate(&self.known) == Some(true))
    }

    /// The decision for all events of a class, if it was made when as many classes were declared.
    fn known_decision(&mut self, class: ClassKey, declared: usize) -> Option<ClassDecision> {
        // Most events are of the class of the one before: these need no hash.
        let last = self.last.filter(|(last, _)| *last == class);
        let known = last.or_else(|| Some((class, *self.classes.get(&class)?)));
        self.last = known.filter(|(_, decision)| decision.declared == declared);
        self.last.map(|(_, decision)| decision)
    }

    /// The decision for all events of the class. Absent if that depends on the event.
    fn class_decision(&mut self, facts: Facts<'_>) -> Option<bool> {
        if let Some(decision) = self.known_decision(facts.class, facts.declared) {
            return decision.decided;
        }
        for (leaf, known) in self.leaves.iter().zip(&mut self.known) {
            *known = facts.decide_class(leaf);
        }
        let decision = ClassDecision {
            declared: facts.declared,
            decided: self.expression.evaluate(&self.known),
        };
        // All at once: a case this rare is not worth keeping an order of use.
        if self.classes.len() >= MAX_REMEMBERED_CLASSES {
            self.classes.clear();
        }
        self.classes.insert(facts.class, decision);
        self.last = Some((facts.class, decision));
        decision.decided
    }
}

impl Facts<'_> {
    /// Whether a comparison is true for all events of the class. Absent if that depends on the
    /// event.
    fn decide_class(&self, leaf: &Leaf) -> Option<bool> {
        leaf.of_class(self.name, self.names, self.log_level, self.trace)
    }
}

/// A visitor that decides the comparisons of a filter from the fields of one event.
struct FieldMatcher<'f> {
    collect: &'f mut PathTracker,
    leaves: &'f [Leaf],
    known: &'f mut [Option<bool>],
    /// Whether the field `args` of the payload is JSON.
    has_json_args: bool,
    is_in_payload: bool,
    /// Whether the walk is in the field `args`.
    is_in_args: bool,
}
