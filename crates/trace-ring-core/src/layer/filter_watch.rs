//! Tells `tracing` that the filter has changed.
//!
//! `tracing` keeps for each call site whether any layer wants its events, so that one that nobody
//! wants costs one load. The filter of the rings is in shared memory and may be changed by another
//! process: a thread sleeps until that happens, and has `tracing` ask again. A forked child has no
//! such thread; it gets its own with its directory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::with_signals_blocked;
use crate::producer::{filter_words, run_in_new_processes};

/// The thread runs, in this process or in one that it was forked from.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Starts the thread, here and in each forked child, unless this has been done.
pub(super) fn start() {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    static SPAWN: fn() = spawn;
    if !IS_STARTED.swap(true, Ordering::AcqRel) {
        spawn();
        run_in_new_processes(&SPAWN);
    }
}

/// Whether `tracing` may keep what the filter answers.
pub(super) fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

fn spawn() {
    let thread = std::thread::Builder::new()
        .name("trace-ring".into())
        .stack_size(128 << 10);
    // Without the thread `tracing` asks the filter at each event.
    let is_running = with_signals_blocked(|| thread.spawn(watch)).is_ok();
    IS_RUNNING.store(is_running, Ordering::Release);
}

fn watch() {
    let filter = filter_words();
    loop {
        let seen = filter.generation();
        tracing::callsite::rebuild_interest_cache();
        if filter.wait(seen).is_err() {
            IS_RUNNING.store(false, Ordering::Release);
            tracing::callsite::rebuild_interest_cache();
            return;
        }
    }
}
