//! The turn of a data connection to read: while several connections of a worker have packets to read, the worker looks
//! for commands between two reads, because producers wait for the replies and not for their packets to be read.
//!
//! While a few producers send large packets, commands are not looked for after each read, but when all that has arrived is
//! read, or [`MAX_COMMAND_DELAY`] after the last time. A producer whose index is answered before its packet is read sends the
//! next packet as well, and two packets of each producer wait in the buffers of the sockets. To read them costs more then,
//! probably because they have left the caches of the processor.
//!
//! It engages while several data connections of the worker are active, and costs them up to one poll of the sockets for each
//! read. A connection that is alone takes an uncontended lock for each read, and its worker looks for commands before the
//! read if the producer waits for replies. An idle one costs nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, MutexGuard};

use crate::limits::{LONG_ACTIVITY_WINDOW, MAX_COMMAND_DELAY};

thread_local! {
    /// The turns of the worker that runs on this thread.
    static OF_WORKER: ReadTurns = ReadTurns::default();
    /// When that worker last polled the system for events, and handled commands.
    static COMMANDS_HANDLED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// When it last read a connection that sends small packets.
    static SMALL_PACKETS: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Hands the turn to the data connections of one worker, one at a time, in the order in which they ask.
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
    /// Ends the turn after the worker has handled the commands that have arrived. If they may be delayed, and it has handled
    /// commands a short time ago, it does not, unless another connection sends small packets.
    pub(super) async fn end_after_commands(self, may_be_delayed: bool) {
        let is_within =
            |last: Option<Instant>, time| last.is_some_and(|last| last.elapsed() < time);
        let is_delayed = may_be_delayed
            && is_within(COMMANDS_HANDLED.get(), MAX_COMMAND_DELAY)
            && !is_within(SMALL_PACKETS.get(), LONG_ACTIVITY_WINDOW);
        if !is_delayed {
            handle_commands().await;
        }
    }
}

/// Lets the worker handle the commands that have arrived: runs its other tasks, and polls the system for events.
pub(super) async fn handle_commands() {
    tokio::task::yield_now().await;
    record_commands_handled();
}

/// Records that the worker of this thread has just polled the system for events. To be called when it has waited for some.
pub(super) fn record_commands_handled() {
    COMMANDS_HANDLED.set(Some(Instant::now()));
}

/// Records that a connection of this worker that sends small packets is read.
pub(super) fn record_small_packets(now: Instant) {
    SMALL_PACKETS.set(Some(now));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn commands_are_handled_between_two_reads() {
        let turns = ReadTurns::of_this_worker();
        let done = RefCell::new(Vec::new());
        let read = |name: &'static str, may_be_delayed: bool| {
            let (turns, done) = (turns.clone(), &done);
            async move {
                let turn = turns.take().await;
                done.borrow_mut().push(name);
                turn.end_after_commands(may_be_delayed).await;
            }
        };
        let command = async {
            done.borrow_mut().push("command");
        };
        tokio::join!(read("first", false), read("second", false), command);
        assert_eq!(*done.borrow(), ["first", "command", "second"]);
        done.borrow_mut().clear();
        // Recent, however long this test takes.
        COMMANDS_HANDLED.set(Some(Instant::now() + Duration::from_secs(600)));
        let command = async {
            done.borrow_mut().push("command");
        };
        tokio::join!(read("first", true), read("second", true), command);
        assert_eq!(*done.borrow(), ["first", "second", "command"]);
        done.borrow_mut().clear();
        // In the future, as above.
        SMALL_PACKETS.set(COMMANDS_HANDLED.get());
        let command = async {
            done.borrow_mut().push("command");
        };
        tokio::join!(read("first", true), read("second", true), command);
        assert_eq!(*done.borrow(), ["first", "command", "second"]);
        done.borrow_mut().clear();
        SMALL_PACKETS.set(None);
        COMMANDS_HANDLED.set(Instant::now().checked_sub(MAX_COMMAND_DELAY));
        let command = async {
            done.borrow_mut().push("command");
        };
        tokio::join!(read("first", true), read("second", true), command);
        assert_eq!(*done.borrow(), ["first", "command", "second"]);
    }
}
