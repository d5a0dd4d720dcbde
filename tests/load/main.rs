//! Many connections at a time, packets larger than sockets buffer, and large amounts of malformed input.

mod concurrency;
mod large_packets;
mod malformed_input;
mod payload;
