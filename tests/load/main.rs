//! Many at once, and some of them up to no good.

mod concurrency;
mod malformed_input;
