//! Many connections at a time, and large amounts of malformed input.

mod concurrency;
mod malformed_input;
