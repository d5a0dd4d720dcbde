//! Reads an archive: which sessions it has, what is in one, and the blocks of its objects.
//!
//! Read in this order: [`CatalogError`], `request` (calls that are made again after a failure),
//! [`list`](list_sessions) (sessions by day, host and name), [`open`](open_session) (one session,
//! from the directories of its objects), [`follow`](SessionFollower) (one session while it grows),
//! [`totals`](count_sessions) (many sessions at once), [`blocks`](read_run),
//! [`metadata`](read_metadata), [`moved`](MovedBlocks) (blocks whose object is gone). What they
//! find is hostile input: all lengths are checked before memory is taken, and the numbers of
//! objects and of records that are kept have limits.

mod blocks;
mod error;
mod follow;
mod list;
mod metadata;
mod moved;
mod open;
mod request;
#[cfg(test)]
mod tests;
mod totals;
mod verify;

pub use blocks::{BlockRun, read_run};
pub use error::CatalogError;
pub use follow::SessionFollower;
pub use list::{FoundSession, ListedSession, WantedSession, list_sessions, read_listed};
pub use metadata::read_metadata;
pub use moved::{MovedBlock, MovedBlocks};
pub use open::{OpenedSession, last_owner, open_session};
pub(crate) use open::{list_commits, list_logs, owner_of_boot, read_directory, read_parts};
pub use request::check_format;
pub use totals::{SessionTotal, count_sessions};
pub use verify::{Verified, verify};

/// Largest number of requests that are made at the same time.
pub const MAX_REQUESTS: usize = 16;
