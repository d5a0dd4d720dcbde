//! The status of the agent: counters for each session, reported on a Unix socket.

mod counters;
mod report;
mod socket;

pub use counters::{ConnectionState, Counter, EndedSessions, SessionCounters, StatusRegistry};
pub use report::{SessionReport, StatusReport};
pub use socket::{StatusError, StatusListener, default_socket, listen, request_status};
