//! The live viewer, as a library: `main.rs` is only its command line.
//!
//! The package `viewer` reads packets, decodes them, puts events in order and selects them; a
//! [`sink`] shows them. [`run`] joins these.

pub mod cli;
pub mod info;
pub mod proxy;
pub mod run;
pub mod sink;
pub mod top;
