//! The agent on a traced host: takes events of local programs, makes CTF packets of them and streams
//! these to a relay.
//!
//! Events come in by a [`frontend`]. The [`queue`] holds packets, bounded, until a relay has acknowledged
//! them.

pub mod frontend;
pub mod packetize;
pub mod queue;
