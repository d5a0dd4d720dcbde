//! The flows of events that were sent in Trace Event Format: what a message is from its send to its
//! receipt.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;
use tef::event::Event as SentEvent;

/// What an event does to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowStep {
    /// It begins the flow: a send.
    Begin,
    /// It goes on.
    Next,
    /// It ends the flow: a receipt.
    End,
}

/// The flow that an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// What all events of the flow have in common.
    pub key: u64,
    /// What the event does to it.
    pub step: FlowStep,
    /// Whether the flow is within one process.
    pub is_local: bool,
}

/// Returns the flow of an event, if it belongs to one: by its phase (`s`, `t`, `f`) or its
/// `bind_id`.
#[must_use]
pub fn flow_of(sent: &SentEvent<'_>) -> Option<Flow> {
    let step = match sent.phase {
        "s" => FlowStep::Begin,
        "f" => FlowStep::End,
        _ => FlowStep::Next,
    };
    match (sent.phase, sent.bind_id) {
        ("s" | "t" | "f", _) => {
            // An id of the process is not one of another process.
            let process = sent.id2_local.map(|_| sent.process());
            Some(Flow {
                key: hash(&(sent.cat.as_deref(), process, async_key(sent))),
                step,
                is_local: sent.id2_local.is_some(),
            })
        }
        (_, Some(bind)) => {
            let rest: Value = serde_json::from_str(&sent.rest).unwrap_or_default();
            let is = |name: &str| rest.get(name).and_then(Value::as_bool) == Some(true);
            let step = match (is("flow_in"), is("flow_out")) {
                (false, true) => FlowStep::Begin,
                (true, false) => FlowStep::End,
                _ => FlowStep::Next,
            };
            Some(Flow {
                key: hash(&bind),
                step,
                is_local: false,
            })
        }
        _ => None,
    }
}

/// Returns what the events of an async span or of a flow have in common, besides process and
/// category.
#[must_use]
pub fn async_key(sent: &SentEvent<'_>) -> u64 {
    // A hash, because a key is kept for each open span and the texts may be long.
    let texts = (sent.scope.as_deref(), sent.name.as_deref());
    hash(&(texts, sent.id, sent.id2_local, sent.id2_global))
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
