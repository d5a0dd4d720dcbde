//! Following a relay that does all that relays may do, and more.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

mod connections;
mod fake;
mod memory;
mod merge;
mod mux;
mod packets;
mod program;
mod push;
mod reconnect;
mod reconnect_metadata;
mod sessions;
mod trace;
mod watch;
mod wrong;
