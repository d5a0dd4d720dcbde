//! The agent on a traced host: takes events of local programs, makes CTF packets of them and
//! streams these to a relay.
//!
//! The path of an event, in the order in which to read the modules: a [`frontend`] receives the
//! event from its program; [`packetize`] writes it to a packet of a session, unless the frontend
//! has packets already; the [`queue`] holds the packets, bounded, until a relay has acknowledged
//! them, with a [`spool`] also on disk; the [`uplink`] sends them. The [`agent`] runs all of these,
//! and [`status`] reports their counters. [`clock`] adds samples of the host's clock beside that of
//! the relay. [`command`] has the commands with an agent of their own. [`rings`] shows and records
//! events of shared-memory rings without an agent.

pub mod agent;
pub mod cli;
pub mod clock;
pub mod command;
pub mod config;
pub mod doctor;
pub mod frontend;
pub mod limits;
mod local_socket;
pub mod packetize;
pub mod queue;
pub mod rings;
pub mod spool;
pub mod status;
pub mod uplink;
