//! Registration of file descriptors with the runtime (epoll).

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, which then reports when it is readable.
#[expect(
    deprecated,
    reason = "its replacement is unsafe, for types whose descriptor may change; that of `OwnedFd` cannot"
)]
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
