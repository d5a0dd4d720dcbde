//! A pool of read buffers, each with the validator for the lines that are read into it.
//!
//! Only clients that are being read from have a buffer, so that a thousand idle ones cost nothing.

use parking_lot::Mutex;

use crate::limits::{MAX_SPARE_BUFFERS, READ_BYTES};
use crate::line_validator::LineValidator;

/// A buffer for one read, and the validator for its lines.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    pub(crate) input: Vec<u8>,
    pub(crate) validator: LineValidator,
}

/// The pool: buffers that are not in use, [`MAX_SPARE_BUFFERS`] at most.
#[derive(Debug)]
pub(crate) struct ReadBufferPool {
    max_line_bytes: usize,
    spare: Mutex<Vec<ReadBuffer>>,
}

impl ReadBufferPool {
    pub(crate) fn new(max_line_bytes: usize) -> Self {
        Self {
            max_line_bytes,
            spare: Mutex::default(),
        }
    }

    /// Takes an empty buffer from the pool, or makes one.
    pub(crate) fn take_buffer(&self) -> ReadBuffer {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| ReadBuffer {
            input: Vec::with_capacity(READ_BYTES),
            validator: LineValidator::new(self.max_line_bytes),
        })
    }

    /// Empties a buffer and returns it to the pool.
    pub(crate) fn return_buffer(&self, mut buffer: ReadBuffer) {
        buffer.input.clear();
        // A long line may have made the buffers large; a spare buffer keeps memory for two reads at
        // most.
        buffer.input.shrink_to(2 * READ_BYTES);
        buffer.validator.shrink_memory(2 * READ_BYTES);
        let mut spare = self.spare.lock();
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(buffer);
        }
    }
}
