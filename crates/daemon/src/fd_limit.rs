//! The limit on open file descriptors (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit of this process to its hard limit, and returns the limit that holds then;
/// `u64::MAX` if there is none. A failure is logged, and leaves the limit as it was.
///
/// The soft limit is 1024 on most systems, for the sake of programs that use `select`, which cannot
/// handle higher descriptors. Every connection and every open trace file takes one.
pub fn raise_fd_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the limit of open file descriptors");
    }
    // Asked again, because setting it may have failed.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
