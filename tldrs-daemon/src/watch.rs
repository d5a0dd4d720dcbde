//! File descriptors whose readiness the runtime watches (epoll).

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, which then tells when it is readable.
#[expect(
    deprecated,
    reason = "the new way is unsafe for the sake of types whose descriptor may change; this one's cannot"
)]
pub(crate) fn watch_readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}
