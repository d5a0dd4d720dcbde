//! Buffers of text, to be filled again when the text has been shown: memory that is used for the
//! first time costs more.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sink::render::RenderedRun;

/// Largest buffer that is kept.
const MAX_BUFFER_BYTES: usize = 1 << 20;

/// Buffers that are not in use.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<RenderedRun>>);

impl Buffers {
    pub(super) fn take_buffer(&self) -> RenderedRun {
        locked(&self.0).pop().unwrap_or_default()
    }

    /// Takes a buffer that is not in use any more, unless it has grown beyond what most text needs.
    pub(super) fn return_buffer(&self, mut run: RenderedRun) {
        if run.capacity() <= MAX_BUFFER_BYTES {
            run.clear();
            locked(&self.0).push(run);
        }
    }
}

/// Locks a mutex. Nothing that the slices have in a mutex is left half changed by a thread that
/// panics.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
