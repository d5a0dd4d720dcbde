//! Operating a relay: the status endpoint, the JSON log, and what happens when the disk is full or file
//! descriptors run out.

mod descriptors;
mod disk_full;
mod durability;
mod interrupted_calls;
mod log;
mod status_endpoint;
