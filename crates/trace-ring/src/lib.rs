//! Writes events to shared memory: a program that is killed loses none that it has finished
//! writing.
//!
//! ```
//! trace_ring::event!(Info, "request done", status = 200_u32, path = "/orders");
//! ```
//!
//! `tracing_subscriber::registry().with(trace_ring::layer()).init()` records what the program says
//! to `tracing`; `trace_ring::event!(Info, "request done", status = 200_u32)` writes an event
//! without `tracing`. Both are in `trace-ring-core`, whose documentation has the environment
//! variables and the way through the code.
//!
//! This package is what programs depend on. As `libtrace_ring.a` and `libtrace_ring.so` it is also
//! the library for C and C++, with the header `include/trace_ring.h`.

// The code is in another package, to which the programs of this workspace link: builds of a package
// with libraries for C overwrite each other in one target directory.
pub use trace_ring_core::*;
