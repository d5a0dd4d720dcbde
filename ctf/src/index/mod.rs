//! Index files: where each packet of a data stream file lies and which time it covers.
//!
//! Read in this order: [`Entry`] and [`IndexFormat`] (the bytes, which writers use too), [`read`]
//! (a whole file at once), [`IndexFollower`] (a file that is still being written).
//!
//! Offsets are in bytes, sizes in bits, times in cycles of the trace's clock. An index is a hint: where
//! it cannot be read, the packets say the same.
//!
//! The format is that of LTTng, CTF index 1.0 and 1.1, everything big-endian. At the tail there may
//! be a [`Beacon`], which is ours; `doc/store.md` describes it.

mod check;
mod follow;
mod format;
mod read;

pub use check::IndexError;
pub use follow::{FollowError, FollowEvent, IndexFollower, is_being_written};
pub use format::{Beacon, Entry, IndexFormat, IndexHeader, MAX_ENTRY_BYTES};
pub use read::{Entries, Tail, read};
