//! Many connections at a time, packets larger than sockets buffer, packets far ahead of their indexes, and large amounts
//! of malformed input.

mod concurrency;
mod far_ahead;
mod large_packets;
mod malformed_input;
mod payload;
