//! File descriptors of which the runtime says when they can be read.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has the runtime watch this one.
#[expect(
    deprecated,
    reason = "the new way is unsafe for the sake of types whose descriptor may change; this one's cannot"
)]
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
