//! Operating a relay: the status endpoint, the log, messages of faults, and what happens when the
//! disk is full or file descriptors run out; the removal of old sessions; the progress of
//! conversions; readers that are gone; what scripts rely on; what every sink of `test-live`
//! guarantees.

mod closed_output;
mod descriptors;
mod disk_full;
mod doctor;
mod durability;
mod error_texts;
mod interrupted_calls;
mod log;
mod monitoring;
mod progress;
mod retention;
mod scripts;
mod sinks;
mod status_endpoint;
