//! Buffers of encrypted bytes: those that all connections of a thread share, and what a socket has
//! not taken yet.

use std::cell::RefCell;

thread_local! {
    pub(super) static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Buffers of all connections of a thread. Nothing is left in them between calls.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) received: Vec<u8>,
    pub(super) encrypted: Vec<u8>,
}

/// Encrypted bytes that the socket has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pub(super) bytes: Vec<u8>,
    /// Number of bytes in front that have been sent.
    pub(super) sent: usize,
    /// Where the bytes to send end. What is behind belongs to the buffer, which would have to be
    /// cleared again if it were made shorter.
    pub(super) end: usize,
}

impl Unsent {
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..self.end).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end <= self.sent
    }

    /// Appends what `append` appends to the bytes.
    pub(super) fn append<T>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.bytes.truncate(self.end);
        let appended = append(&mut self.bytes);
        self.end = self.bytes.len();
        appended
    }

    /// Gives the buffer to the thread, if nothing is left in it: an idle connection keeps none.
    pub(super) fn recycle(&mut self) {
        if !self.is_empty() {
            return;
        }
        let buffer = std::mem::take(self).bytes;
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.encrypted.len() < buffer.len() {
                scratch.encrypted = buffer;
            }
        });
    }
}

/// Makes a buffer at least `len` bytes long. Its content may be lost.
pub(super) fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        // Not by `resize`, which clears byte by byte where programs are compiled for size.
        *buffer = vec![0; len];
    }
}
