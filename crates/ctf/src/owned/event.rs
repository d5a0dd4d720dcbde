//! An event that owns its values.

use std::fmt;
use std::sync::Arc;

use wire::Timestamp;

use super::value::{Structure, Value};
use crate::model::LogLevel;

/// One event with all its visible fields. `Display` writes the name and the fields, without the
/// time, as `babeltrace2` does.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The time in nanoseconds since the clock's origin, usually 1970; `None` if the stream has no
    /// clock.
    pub time: Option<i64>,
    /// The time in cycles of the stream's clock; 0 or the last known value if events have no time.
    pub cycles: Timestamp,
    /// The name of its class; empty if the class has none, which only CTF 2 allows.
    pub name: Arc<str>,
    /// The log level of its class; `None` if it is not given or unknown.
    pub log_level: Option<LogLevel>,
    /// The stream that the event is from, shared by all its events.
    pub stream: Arc<StreamOrigin>,
    /// The context of its packet, shared by all events of the packet.
    pub packet_context: Arc<Structure>,
    /// The context that all events of its stream class have.
    pub common_context: Structure,
    /// The context that only events of its class have.
    pub specific_context: Structure,
    /// The fields that the program recorded.
    pub payload: Structure,
}

/// The trace and the stream that an event is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOrigin {
    /// The name of the trace: the host, if the metadata names one, and the path below the directory
    /// that was opened.
    pub trace: Box<str>,
    /// The id of the stream class.
    pub class: u64,
    /// The number of the stream in its class.
    pub id: u64,
}

impl Event {
    /// The value of the first field of this name: of the payload, the specific context, the common
    /// context, or the packet context. `None` if there is none.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        let found = |structure: &'_ Structure| structure.get(name).is_some();
        let scope = self.scopes().into_iter().rev().find(|scope| found(scope))?;
        scope.get(name)
    }

    /// The structures of its fields, in the order in which they are in a packet.
    fn scopes(&self) -> [&Structure; 4] {
        [
            &self.packet_context,
            &self.common_context,
            &self.specific_context,
            &self.payload,
        ]
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        // babeltrace2 writes a comma after each context, but not after the payload.
        let [contexts @ .., payload] = self.scopes();
        for context in contexts.into_iter().filter(|context| !context.is_empty()) {
            write!(f, " {context},")?;
        }
        write!(f, " {payload}")
    }
}
