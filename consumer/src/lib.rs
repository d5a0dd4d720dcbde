//! The agent on a traced host: takes events of local programs, makes CTF packets of them and streams
//! these to a relay.
//!
//! The way of an event: a [`frontend`] takes it from its program, [`packetize`] puts it into a packet of
//! a session, or the frontend has packets already; the [`queue`] holds the packets, bounded, until a relay
//! has acknowledged them; the [`uplink`] takes them there. The [`agent`] runs all of it, and [`status`]
//! tells how it goes.

pub mod agent;
pub mod cli;
pub mod config;
pub mod frontend;
pub mod limits;
pub mod packetize;
pub mod queue;
pub mod status;
pub mod uplink;
