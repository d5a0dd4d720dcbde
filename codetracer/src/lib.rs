//! Recordings of CodeTracer: what a record says, how it is written in the files of a recording, and how it is an event
//! of a CTF trace. `doc/codetracer.md` describes all of them.
//!
//! Read in this order: [`record`] (one record, from and to JSON), [`metadata`] (the program of a recording), [`events`]
//! (records as events, and back), [`output_form`] (the forms of the file with the records), [`rules`] (which records a
//! replay can handle), [`directory`] (the files of a recording, valid at any time).

pub mod directory;
pub mod events;
pub mod metadata;
pub mod output_form;
pub mod record;
pub mod rules;
