//! Buffers of text, to be filled again when the text has been shown: memory that is used for the first time costs more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sink::render::RenderedRun;

/// Buffers that are not in use.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<RenderedRun>>);

impl Buffers {
    pub(super) fn take(&self) -> RenderedRun {
        locked(&self.0).pop().unwrap_or_default()
    }

    pub(super) fn give_back(&self, mut run: RenderedRun) {
        run.clear();
        locked(&self.0).push(run);
    }
}

/// Locks a mutex. Nothing that the slices have in a mutex is left half changed by a thread that panics.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
