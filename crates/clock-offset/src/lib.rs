//! How far clocks of several hosts are apart at any time, from samples or from packets, and how
//! wrong that may be.
//!
//! All clocks here are monotonic ones (`CLOCK_MONOTONIC`), which are never set. A [`ClockSample`]
//! compares two of them, an [`OffsetTrack`] has the samples of one pair, and a [`ClockGraph`]
//! relates clocks that were compared with the same third one. The events `clock:sample` of
//! `consumer` are such samples (`doc/consumer.md`). A [`PacketTrack`] needs no samples, but packets
//! that the hosts have sent to each other, and assumes more: `packets.rs` says what.
//!
//! # The bound of samples
//!
//! Let `o(t)` be the true offset of two clocks. Sample `i` says that `o` was within `e_i` of `x_i`
//! at `t_i`. Two assumptions are made:
//!
//! 1. Over adjacent intervals between samples, the rate `o'` of the drift stays in some band that
//!    is [`RATE_BAND`] wide. The rate itself may be anything up to [`MAX_DRIFT`].
//! 2. `o` jumps at most once between two samples, and only if a host was suspended, which its time
//!    of day shows, or if a virtual machine was stopped for longer than `MAX_DRIFT` explains.
//!
//! Between two samples, at distance `a` from one and `b` from the other, the estimate is the chord
//! through `x_i` and `x_j`. The chord through `o(t_i)` and `o(t_j)` is at most
//! `(e_i b + e_j a) / (a + b)` away from it. Let `g` be `o` minus this chord: `g` is 0 at both
//! ends, and its slope is between `p` and `p - B`, if `B` is the width of the band. So `g` is at
//! most `p a` and at most `(B - p) b`, and the smaller of both is largest for `p = B b / (a + b)`:
//!
//! ```text
//! error = (e_i b + e_j a) / (a + b)  +  B a b / (a + b)
//! ```
//!
//! The second part is 0 at the samples, and less than `B` times the distance from the nearer one,
//! for any constant drift. Where the chords of adjacent intervals differ, as while NTP corrects a
//! clock quickly, `B` is larger by that difference.
//!
//! Outside, at distance `a` from the last sample `j`, the chord of `i` and `j` is extended. Its
//! slope is wrong by at most `(e_i + e_j) / (t_j - t_i)`, and the rate differs from it by at most
//! `B`:
//!
//! ```text
//! error = e_j  +  a (B + (e_i + e_j) / (t_j - t_i))
//! ```
//!
//! With a single sample the offset is taken as constant: `error = e_j + a MAX_DRIFT`, and so it is
//! where that is the smaller error. Between two pieces, that is where `o` may have jumped, the
//! stated interval contains what follows from either piece.

mod graph;
mod hull;
mod packets;
mod sample;
mod track;

pub use graph::ClockGraph;
pub use packets::{PacketTimes, PacketTrack, PacketTrackError};
pub use sample::{ClockOffset, ClockSample};
pub use track::{ClockTrack, MAX_DRIFT, OffsetTrack, RATE_BAND};
