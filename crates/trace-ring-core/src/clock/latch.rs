//! Numbers that belong together, which one thread changes while others, and signal handlers in the
//! middle of a change, read them without waiting.
//!
//! The technique is the latch of the kernel (`seqcount_latch_t`): there are two copies, and readers
//! take the one that is not being changed. The lowest bit of `turn` says which that is. Every
//! access orders those after it (loads) or before it (stores): a reader that sees a number of a
//! change sees the turn, too.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Word;

#[derive(Debug)]
pub(super) struct Latch<W, const N: usize> {
    pub(super) turn: W,
    pub(super) copies: [[W; N]; 2],
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
}

impl<const N: usize> Latch<AtomicU64, N> {
    pub(super) fn new() -> Self {
        Self {
            turn: AtomicU64::new(0),
            copies: [const { [const { AtomicU64::new(0) }; N] }; 2],
        }
    }
}

impl<W: Word, const N: usize> Latch<W, N> {
    #[inline]
    pub(super) fn load(&self) -> [u64; N] {
        let [even, odd] = &self.copies;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let copy = if turn & 1 == 0 { even } else { odd };
            let numbers = copy.each_ref().map(|word| word.load(Ordering::Acquire));
            if self.turn.load(Ordering::Relaxed) == turn {
                return numbers;
            }
        }
    }

    /// Changes the numbers. One thread at a time may do so.
    pub(super) fn store(&self, numbers: [u64; N]) {
        let [even, odd] = &self.copies;
        let turn = self.turn.load(Ordering::Relaxed);
        for (step, copy) in [(1, even), (2, odd)] {
            self.turn.store(turn.wrapping_add(step), Ordering::Release);
            for (word, number) in copy.iter().zip(numbers) {
                word.store(number, Ordering::Release);
            }
        }
    }
}
