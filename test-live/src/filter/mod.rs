//! The filter of events: `--filter EXPRESSION`. The language is described in `doc/filter.md`.
//!
//! Read in this order; each module uses only those before it: `error`, `glob` (patterns with `*` and `?`),
//! `token` (the lexer), `expression` (what an expression is), `parse` (from tokens to that), `collect` (from the
//! fields of an event to the comparisons that they decide), `names` (names that no trace declares), `number` (a numeric
//! field, for `--counter`).
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
pub(crate) use names::UndeclaredNames;
pub use number::NumberSelector;

use crate::attach::TraceKey;
use crate::json_args::has_json_args;
use crate::sink::Origin;
use collect::PathTracker;
use expression::{Expression, Leaf, Property};

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
    classes: HashMap<Class, Option<bool>>,
    last: Option<(Class, Option<bool>)>,
}

/// Trace, stream class and event class.
type Class = (TraceKey, u64, u64);

/// The properties of an event that are known before its fields are decoded.
#[derive(Debug, Clone, Copy)]
struct Facts<'a> {
    class: Class,
    name: Option<&'a str>,
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
            leaves,
            classes: HashMap::new(),
            last: None,
        })
    }

    /// The names in the filter of which it is not known yet that a trace declares them.
    pub(crate) fn undeclared_names(&self) -> UndeclaredNames {
        UndeclaredNames::new(&self.leaves)
    }

    /// Descriptions of arguments in the filter that no event had, with similar ones.
    pub(crate) fn describe_missing_args(&self) -> Vec<String> {
        self.collect.describe_missing_args()
    }

    /// Whether `event` is wanted. One whose fields cannot be decoded is, so that its failure is seen.
    pub fn matches(&mut self, event: &Event<'_>, origin: Origin<'_>) -> bool {
        let class = event.class();
        let facts = Facts {
            class: (origin.trace.key, event.stream_class().id(), class.id()),
            name: class.name(),
            log_level: class.log_level().map(|level| level.0),
            trace: &origin.trace.name,
            stream: &origin.stream.name,
            time: event.time(),
            has_json_args: self.collect.needs_args() && has_json_args(class.name()),
        };
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
        .unwrap_or(true)
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
            *known = leaf
                .of_class(facts.name, facts.log_level, facts.trace)
                .or_else(|| match leaf {
                    Leaf::Property(Property::Stream, test) => {
                        Some(test.text(facts.stream.as_bytes()))
                    }
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

    /// The decision for all events of the class. Absent if that depends on the event.
    fn class_decision(&mut self, facts: Facts<'_>) -> Option<bool> {
        if let Some((class, decided)) = self.last
            && class == facts.class
        {
            return decided;
        }
        if self.classes.len() >= MAX_REMEMBERED_CLASSES {
            self.classes.clear();
        }
        let (leaves, known, expression) = (&self.leaves, &mut self.known, &self.expression);
        let decided = *self.classes.entry(facts.class).or_insert_with(|| {
            for (leaf, known) in leaves.iter().zip(known.iter_mut()) {
                *known = leaf.of_class(facts.name, facts.log_level, facts.trace);
            }
            expression.evaluate(known)
        });
        self.last = Some((facts.class, decided));
        decided
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
    /// Whether the walk is in that field.
    is_in_args: bool,
}
