//! The status of the agent: counters for each session, reported on a Unix socket.

mod counter;
mod counters;
mod report;
mod socket;
mod spool;

pub use counter::Counter;
pub use counters::{ConnectionState, EndedSessions, SessionCounters, StatusRegistry};
pub use report::{SessionReport, StatusReport};
pub use socket::{StatusError, StatusListener, default_socket, listen, request_status};
pub use spool::{SpoolCounters, SpoolReport};
