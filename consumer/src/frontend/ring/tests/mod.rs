//! Readers and sessions on files that a test writes: as an honest producer does, and as a hostile
//! one may.

mod faults;
mod hostile;
mod reader;
mod sessions;
mod written;
