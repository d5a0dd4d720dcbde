//! Defects of `lttng-relayd`, with a test for each that `relayd` does not have it.
//! `doc/differences.md` lists them, with what the reference does instead.

mod awaited_metadata;
mod deleted_chunks;
mod producers;
mod replaced_tracefiles;
mod stream_lifecycle;
mod viewed_session;
mod viewer_connections;
