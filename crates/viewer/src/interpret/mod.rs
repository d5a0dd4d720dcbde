//! What events mean besides their fields: names, spans and calls, processes. Filters, sinks, the
//! timeline and `test-live top` ask here, so that they agree.
//!
//! Read in this order: `kind` (which events begin and end spans), `event_name`, `calls` (recordings
//! of CodeTracer), `environment` and `process_context` (the process of an event).

pub mod calls;
pub mod environment;
pub mod event_name;
pub mod kind;
pub mod process_context;
