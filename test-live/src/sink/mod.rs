//! The destinations of events: one file or folder for each sink.

mod buffer;
pub mod codetracer;
pub mod counter;
pub mod ctf;
pub mod details;
pub mod dummy;
pub mod json;
pub mod log;
pub mod tef;
pub mod text;
