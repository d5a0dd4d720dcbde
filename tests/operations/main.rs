//! What those need who keep a relay running: how it is, in numbers; a log that programs read; what
//! becomes of traces when the disk is full.

mod descriptors;
mod disk_full;
mod interrupted_calls;
mod log;
mod status_endpoint;
