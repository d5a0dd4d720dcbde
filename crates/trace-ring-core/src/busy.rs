//! Slow paths: what a signal handler must not enter while its thread is in one.

use std::cell::Cell;

thread_local! {
    static IS_BUSY: Cell<bool> = const { Cell::new(false) };
}

/// The thread is in a slow path, which allocates and takes locks, until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(());

impl Busy {
    /// Enters a slow path. `None` when the thread is in one already: the caller is a signal
    /// handler.
    pub(crate) fn enter() -> Option<Self> {
        // Lazily: dropping a `Busy` ends the slow path.
        IS_BUSY.with(|is_busy| (!is_busy.replace(true)).then(|| Self(())))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        IS_BUSY.set(false);
    }
}
