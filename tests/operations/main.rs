//! What those need who keep a relay running: how it is, in numbers; a log that programs read; what
//! becomes of traces when the disk is full.

mod descriptors;
mod full;
mod interrupted;
mod log;
mod watch;
