//! The part of each stream that viewers may see, and the subscribers that are notified when it
//! grows. Knows no session and no socket.
//!
//! Read in this order: [`published`] (the packets and metadata of one stream that are on disk),
//! `extents` (where packets without an index are), [`announced`] (the announced streams of a
//! session), [`watermark`] (the time before which no event will arrive), [`subscription`]
//! (notification of changes), [`tally`] and [`viewer_lag`] (counters of streams, and the lag of
//! their viewers).

pub mod announced;
mod extents;
pub mod published;
pub mod subscription;
pub mod tally;
pub mod viewer_lag;
pub mod watermark;
