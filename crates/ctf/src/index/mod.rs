//! Index files: the offset of each packet in a data stream file, and the time that it covers.
//!
//! Read in this order: [`Entry`] and [`IndexFormat`] (the bytes, which writers use too), [`read`]
//! (a whole file at once), [`IndexFollower`] (a file that is still being written).
//!
//! Offsets are in bytes, sizes in bits, times in cycles of the trace's clock. An index is a hint:
//! if it cannot be read, the packets have the same information.
//!
//! The format is that of LTTng, CTF index 1.0 and 1.1, everything big-endian. The file may end
//! in a [`Beacon`], an extension of `relayd` that `doc/store.md` describes.

mod check;
mod follow;
mod format;
mod read;

pub use check::IndexError;
pub use follow::{FollowError, FollowEvent, IndexFollower, is_being_written};
pub use format::{Beacon, Entry, IndexFormat, IndexHeader, MAX_ENTRY_BYTES};
pub use read::{Entries, Tail, read};
