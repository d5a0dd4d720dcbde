//! The local trace daemon and its commands, a drop-in for the `tldrs` that the clients of
//! `trace-tef-tldrs` know.
//!
//! The daemon itself is in [`consumer::frontend::tldrs`]. Here is what stands around it: [`cli`] (what the
//! command line says), [`serve`] and
//! [`background`] (running the daemon), [`stored`] (commands for what it has stored).

pub mod background;
pub mod cli;
pub mod serve;
pub mod stored;
