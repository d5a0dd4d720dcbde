//! Recordings of CodeTracer: what a record says, how it is written in the files of a recording, and
//! how it is an event of a CTF trace. `doc/codetracer.md` describes all of them.
//!
//! Read in this order: [`record`] (one record, from and to JSON), [`metadata`] (the program of a
//! recording), [`events`] (records as events, and back), [`reader`] (the forms of recordings),
//! [`output_form`] (the forms that are written), [`rules`] (which records a replay can handle).

mod capnp;
mod cbor;
mod compressed;
pub mod events;
mod json;
pub mod metadata;
pub mod output_form;
pub mod reader;
pub mod record;
pub mod rules;
