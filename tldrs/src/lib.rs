//! The local trace daemon and its commands, a drop-in for the `tldrs` that the clients of
//! `trace-tef-tldrs` know.
//!
//! The daemon itself is in [`tldrs_daemon`]. This package has the parts around it: [`cli`] (the
//! command line), [`serve`] (running the daemon), [`stored`] (commands for stored traces).

pub mod cli;
pub mod serve;
pub mod stored;
