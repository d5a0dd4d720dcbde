//! The live viewer, as a library: `main.rs` is only its command line.
//!
//! The package `viewer` reads packets, decodes them, puts events in order and selects them; a
//! [`sink`] shows them. [`run`] joins these. `main.rs`, the tests, the
//! fuzz targets and the man pages use it.
//!
//! Read in this order: [`cli`] (what users ask for), [`sink`] (the forms of output), [`run`] (the
//! usual run), then any of the other commands: [`info`], [`top`], [`spans`], [`proxy`]; `web` is
//! the package `timeline`.

pub mod cli;
pub mod info;
pub mod proxy;
pub mod run;
pub mod sink;
pub mod spans;
pub mod top;
