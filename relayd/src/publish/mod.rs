//! Which packets of a stream viewers may see, and who is notified when there are more. Knows no session,
//! no file and no socket.
//!
//! Read in this order: [`published`] (the packets and metadata of one stream that are on disk),
//! [`announced`] (the streams of a session that viewers may be told of), [`watermark`] (the time before
//! which no event will come), [`subscription`] (who is notified of changes), [`tally`] and [`viewer_lag`]
//! (what is counted of streams and of their viewers).

pub mod announced;
pub mod published;
pub mod subscription;
pub mod tally;
pub mod viewer_lag;
pub mod watermark;
