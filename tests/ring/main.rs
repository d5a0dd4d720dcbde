//! Shared-memory rings, from traced programs to viewers: programs that are killed, relays of both
//! kinds, consumers that are killed, programs that damage their rings, several users, limits, and
//! the commands of `consumer rings`.
//!
//! `RING_KILLS` is the number of programs that the tests with kills at random instants kill,
//! `RING_SCRIBBLE_SECONDS` how long a program scribbles over its rings; `FAULT_SEED` repeats random
//! instants.

mod budgets;
mod commands;
mod functions;
mod instrumented;
mod kills;
mod limits;
mod live;
mod restarts;
mod scribble;
mod spans;
mod system;
mod users;
