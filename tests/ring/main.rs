//! Shared-memory rings, from traced programs to viewers: programs that are killed, relays of both kinds, consumers that
//! are killed, and the commands of `consumer rings`.
//!
//! `RING_KILLS` is the number of programs that the tests with kills at random instants kill; `FAULT_SEED` repeats their
//! instants.

mod commands;
mod kills;
mod live;
mod system;
