//! Model check of the latch: every interleaving, up to a number of preemptions, and every allowed
//! memory order.

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

use super::latch::Latch;
use crate::protocol::Word;

struct ModelWord(AtomicU64);

impl Word for ModelWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }
}

fn latch() -> Latch<ModelWord, 2> {
    let word = || ModelWord(AtomicU64::new(0));
    Latch {
        turn: word(),
        copies: [[word(), word()], [word(), word()]],
    }
}

#[test]
fn numbers_of_a_latch_belong_together() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let latch = Arc::new(latch());
        let writer = Arc::clone(&latch);
        let writer = thread::spawn(move || (1..=2).for_each(|turn| writer.store([turn; 2])));
        let [first, second] = latch.load();
        assert_eq!(first, second);
        writer.join().unwrap();
        assert_eq!(latch.load(), [2; 2]);
    });
}
