//! Chrome's Trace Event Format, one event to a line, as the clients of a `tldrs` daemon send it.
//!
//! This crate turns bytes into values and back. It knows no socket, file or clock.
//!
//! Read in this order: [`check`](mod@check) (whether a line is one JSON object, and what is put right if it
//! nearly is), [`phase`] (which kinds of events there are), [`event`] (an event as values, and back
//! to JSON), [`ctf`] (events in a CTF trace).

pub mod check;
pub mod ctf;
pub mod event;
mod json;
pub mod phase;

pub use check::{Checked, Reason, Repairs, check, check_str};
pub use event::{Event, Record};
pub use phase::{Family, Field};
