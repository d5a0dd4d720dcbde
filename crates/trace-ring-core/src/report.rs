//! The line on stderr.

use std::sync::atomic::{AtomicBool, Ordering};

static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Writes one line to stderr, the first time in a process only.
pub(crate) fn report(message: &str) {
    if !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        let line = format!("trace-ring: {message}\n");
        // Without the lock of `std::io::stderr`, which another thread of a forked child's parent
        // may have held. A program without stderr runs on, too.
        let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    }
}

/// Lets a forked child write a line of its own.
pub(crate) fn reset() {
    HAS_REPORTED.store(false, Ordering::Relaxed);
}
