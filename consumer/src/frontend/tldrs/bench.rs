//! Room to work in: a buffer to read into, and the sieve for what has been read.
//!
//! Only clients that are being read from have one, so that a thousand that are silent cost nothing.

use parking_lot::Mutex;

use super::limits::{MAX_SPARE_BUFFERS, READ_BYTES};
use super::sieve::Sieve;

/// Room for what is read at once.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) input: Vec<u8>,
    pub(super) sieve: Sieve,
}

/// Benches that nobody uses.
#[derive(Debug)]
pub(super) struct Benches {
    longest_line: usize,
    spare: Mutex<Vec<Bench>>,
}

impl Benches {
    pub(super) fn new(longest_line: usize) -> Self {
        Self {
            longest_line,
            spare: Mutex::default(),
        }
    }

    /// One to work at, empty.
    pub(super) fn take(&self) -> Bench {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| Bench {
            input: Vec::with_capacity(READ_BYTES),
            sieve: Sieve::new(self.longest_line),
        })
    }

    /// It is not needed any more.
    pub(super) fn put_back(&self, mut bench: Bench) {
        bench.input.clear();
        bench.input.shrink_to(2 * READ_BYTES);
        bench.sieve.shrink(2 * READ_BYTES);
        let mut spare = self.spare.lock();
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(bench);
        }
    }
}
