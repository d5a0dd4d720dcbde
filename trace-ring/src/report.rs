//! The line on stderr.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static HAS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Writes one line to stderr, the first time in a process only.
pub(crate) fn report(message: &str) {
    if !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        // A program without stderr runs on, too.
        let _ = writeln!(std::io::stderr(), "trace-ring: {message}");
    }
}

/// Lets a forked child write a line of its own.
pub(crate) fn reset() {
    HAS_REPORTED.store(false, Ordering::Relaxed);
}
