//! What the agent is doing: counted for each session, and told on a socket.

mod counters;
mod report;
mod socket;

pub use counters::{ConnectionState, Counter, EndedSessions, SessionCounters, StatusRegistry};
pub use report::{Report, SessionReport};
pub use socket::{AskError, StatusListener, ask, default_socket, listen};
