//! The agent on a traced host: takes events of local programs, makes CTF packets of them and streams
//! these to a relay.
//!
//! The [`queue`] holds packets, bounded, until a relay has acknowledged them.

pub mod packetize;
pub mod queue;
