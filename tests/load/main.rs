//! Many connections at a time, producers at full speed, packets larger than sockets buffer, packets
//! of all sizes, packets far ahead of their indexes, indexes that come with their packets, and
//! large amounts of malformed input.

mod concurrency;
mod far_ahead;
mod fast_producer;
mod large_packets;
mod malformed_input;
mod mixed_sizes;
mod payload;
mod reply_first;
