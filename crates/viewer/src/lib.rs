//! What every viewer of traces needs: packets of relays, archives and directories become events in
//! order of time, are selected, and go to a [`sink`]. The program `test-live` and the package
//! `timeline` use it; they own the command line, the sinks and the page.
//!
//! Read in this order, which is the way of a packet:
//!
//! | module | what |
//! |---|---|
//! | [`time`] | the times of events, packets and losses |
//! | [`attach`] | sources of packets: sessions of a relay or an archive, directories that grow |
//! | [`mux`] | decodes packets, and merges the events of all streams in order of time |
//! | [`filter`], [`bound`] | what `--filter`, `--begin` and `--end` say |
//! | [`sink`] | what a destination of events is, and what it needs |
//! | [`select`] | from the mux to a sink: which events are shown, and what is counted |
//! | [`interpret`] | what events mean: names, and whether they begin or end a span or a call |
//! | [`align`] | how far the clocks of hosts are apart |
//! | [`directories`], [`sources`] | how complete directories, and all targets at once, are opened |
//! | [`run`], [`turn`] | how a run ends, and the turns of its main thread |
//!
//! The other modules are tools for these and for sinks, and know nothing of them: [`keys`] and
//! [`slots`] (collections), `json_*` (events as JSON), [`terminal`],
//! [`trace_tree`] (names of files), [`progress`], `near` (suggestions for names).

pub mod align;
pub mod attach;
pub mod bound;
pub mod directories;
pub mod filter;
pub mod interpret;
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
pub mod time;
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
