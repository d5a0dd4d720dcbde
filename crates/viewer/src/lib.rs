//! What every viewer of traces needs: packets of relays and directories become events in order of
//! time, are selected, and go to a [`sink`].
//!
//! A packet comes from [`attach`], is decoded and put in order with those of other streams by the
//! [`mux`], passes [`select`], and is shown by a [`sink`]. [`interpret`] says what events mean:
//! their names, and whether they begin or end a span or a call.

pub mod attach;
pub mod bound;
pub mod directories;
pub mod filter;
pub mod interpret;
pub mod json_args;
pub mod json_fields;
pub mod json_text;
pub mod keys;
pub mod mux;
mod near;
pub mod progress;
pub mod run;
pub mod select;
pub mod sink;
pub mod slots;
pub mod sources;
pub mod terminal;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
pub mod trace_tree;
pub mod turn;

/// Describes an error and what caused it, on one line.
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
