//! The turn of a data connection to read: the data connections of a worker read one after the
//! other, with commands between them. A connection that is alone takes an uncontended lock for each
//! read, an idle one costs nothing.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard};

thread_local! {
    /// The turns of the worker that runs on this thread.
    static OF_WORKER: ReadTurns = ReadTurns::default();
}

/// Hands the turn to the data connections of one worker, one at a time, in the order in which they
/// ask.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadTurns(Arc<Mutex<()>>);

/// The turn of a connection, until it is dropped.
#[derive(Debug)]
pub(super) struct ReadTurn<'a> {
    _turn: MutexGuard<'a, ()>,
}

impl ReadTurns {
    /// The turns of the worker that runs on this thread.
    pub(super) fn of_this_worker() -> Self {
        OF_WORKER.with(Clone::clone)
    }

    /// Waits for the turn. Cancel-safe.
    pub(super) async fn take(&self) -> ReadTurn<'_> {
        let turn = self.0.lock().await;
        ReadTurn { _turn: turn }
    }
}

impl ReadTurn<'_> {
    /// Ends the turn after the worker has handled the commands that have arrived.
    pub(super) async fn end_after_commands(self) {
        handle_commands().await;
    }
}

/// Lets the worker handle the commands that have arrived: runs its other tasks, and polls the
/// system for events.
pub(super) async fn handle_commands() {
    tokio::task::yield_now().await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn commands_are_handled_between_two_reads() {
        let turns = ReadTurns::of_this_worker();
        let done = RefCell::new(Vec::new());
        let read = |name: &'static str| {
            let (turns, done) = (turns.clone(), &done);
            async move {
                let turn = turns.take().await;
                done.borrow_mut().push(name);
                turn.end_after_commands().await;
            }
        };
        let command = async {
            done.borrow_mut().push("command");
        };
        tokio::join!(read("first"), read("second"), command);
        assert_eq!(*done.borrow(), ["first", "command", "second"]);
    }
}
