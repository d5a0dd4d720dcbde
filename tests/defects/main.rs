//! What `lttng-relayd` does wrong, each with a test that ours does not. The list, with what the
//! reference does instead, is in `doc/differences.md`, by the names of these tests.

mod awaited_metadata;
mod deleted_chunks;
mod producers;
mod replaced_tracefiles;
mod stream_lifecycle;
mod viewed_session;
mod viewer_connections;
