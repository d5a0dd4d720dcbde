//! What events mean besides their fields: names, spans and calls, processes.

pub mod calls;
pub mod environment;
pub mod event_name;
pub mod kind;
pub mod process_context;
