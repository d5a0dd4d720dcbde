//! Recordings of CodeTracer: what a record says, how it is written in the files of a recording, and how it is an event
//! of a CTF trace. `doc/codetracer.md` describes all of them.

pub mod record;
