//! The live viewer, as a library: `main.rs` is only its command line.
//!
//! A packet comes from [`attach`], is decoded and put in order with those of other streams by the
//! [`mux`], passes [`select`], and is shown by a [`sink`]. [`run`] joins them.

pub mod attach;
pub mod bound;
pub mod cli;
mod directories;
pub mod filter;
pub mod info;
mod json_args;
pub mod mux;
mod near;
mod progress;
pub mod proxy;
pub mod run;
pub mod select;
pub mod sink;
mod slots;
mod sources;
pub mod top;
mod turn;
pub mod web;

/// An error and what caused it, on one line.
#[must_use]
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
