//! A counter that one task updates while others read it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter or gauge that one task updates and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the present value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to the value.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the value, as of a gauge.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Subtracts from the value.
    pub fn subtract(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }
}
