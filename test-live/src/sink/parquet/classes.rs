//! The schemas of event classes. Classes of one name and shape share a table, of whatever trace
//! they are.

use std::collections::HashMap;
use std::sync::Arc;

use ctf::decode::Event;
use viewer::attach::TraceKey;
use viewer::interpret::environment::Environment;
use viewer::sink::Origin;

use super::name::Day;
use super::schema::{KnownFields, SchemaError, TableSchema};
use super::tables::{TableKey, TablePlace};

/// Number of names of events from which those without tables are forgotten.
const MAX_NAMES: usize = 4096;

/// A trace, and the numbers of a stream class and of an event class in it.
type ClassKey = (TraceKey, u64, u64);

/// The classes of traces that have not ended.
#[derive(Debug, Default)]
pub(super) struct Classes {
    classes: HashMap<ClassKey, Option<Class>>,
    names: HashMap<Option<Arc<str>>, NamedSchemas>,
    /// The number of schemas so far.
    counter: u64,
}

/// An event class that has a table.
#[derive(Debug)]
pub(super) struct Class {
    pub(super) schema: Arc<TableSchema>,
    event: Option<Arc<str>>,
    host: Option<Arc<str>>,
    number: u64,
    /// The table that the last event was appended to, and its day.
    pub(super) last: Option<(Day, TablePlace)>,
}

/// The schemas of the events of one name.
#[derive(Debug, Default)]
struct NamedSchemas {
    known: KnownFields,
    schemas: Vec<(u64, Arc<TableSchema>)>,
}

impl Classes {
    /// The class of an event. None if it has too many fields for a table.
    pub(super) fn class(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<&mut Class>, SchemaError> {
        let key = (
            origin.trace.key,
            event.stream_class().id(),
            event.class().id(),
        );
        // Not the entry of the map: it would borrow `self` for both.
        if !self.classes.contains_key(&key) {
            let class = match self.declare(event) {
                Err(SchemaError::TooLarge) => None,
                class => Some(class?),
            };
            self.classes.insert(key, class);
        }
        Ok(self.classes.get_mut(&key).and_then(Option::as_mut))
    }

    fn declare(&mut self, event: &Event<'_>) -> Result<Class, SchemaError> {
        if self.names.len() >= MAX_NAMES {
            self.forget_unused();
        }
        let name: Option<Arc<str>> = event.class().name().map(Arc::from);
        let named = self.names.entry(name.clone()).or_default();
        let schema = TableSchema::of(event, &mut named.known)?;
        let known = named.schemas.iter().find(|(_, known)| **known == schema);
        let (number, schema) = match known {
            Some((number, known)) => (*number, Arc::clone(known)),
            None => {
                self.counter += 1;
                let schema = Arc::new(schema);
                named.schemas.push((self.counter, Arc::clone(&schema)));
                (self.counter, schema)
            }
        };
        Ok(Class {
            schema,
            event: name,
            host: Environment::of(event.trace()).host.map(Arc::from),
            number,
            last: None,
        })
    }

    /// Forgets the classes of a trace that has ended.
    pub(super) fn forget_trace(&mut self, trace: TraceKey) {
        self.classes.retain(|(of, ..), _| *of != trace);
        for named in self.names.values_mut() {
            // What only this list has is in no table any more.
            named
                .schemas
                .retain(|(_, schema)| Arc::strong_count(schema) > 1);
        }
    }

    fn forget_unused(&mut self) {
        self.names.retain(|_, named| {
            named
                .schemas
                .retain(|(_, schema)| Arc::strong_count(schema) > 1);
            !named.schemas.is_empty()
        });
    }
}

impl Class {
    /// The key of the table for events of a day.
    pub(super) fn table(&self, day: Day) -> TableKey {
        TableKey {
            event: self.event.clone(),
            day,
            host: self.host.clone(),
            schema: self.number,
        }
    }
}
