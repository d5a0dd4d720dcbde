//! Closes all sessions at shutdown. Closing a session writes its buffered packets: a file call of
//! one session that hangs must keep neither the other sessions from being closed nor the relay from
//! stopping.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use crate::limits::MAX_REPLACEMENT_WORKERS;

/// Calls `close` for each of `sessions` on one thread. Whenever no session is closed within
/// `timeout`, the thread is taken to hang, and another continues with the next session; at most
/// [`MAX_REPLACEMENT_WORKERS`] are added. Returns the number of sessions that are not closed.
pub(super) fn close_all<T: Send + 'static>(
    sessions: Vec<T>,
    close: impl Fn(T) + Clone + Send + 'static,
    timeout: Duration,
) -> usize {
    let count = sessions.len();
    let pending = Arc::new(Mutex::new(sessions));
    let (done, is_done) = channel();
    let mut closed = 0;
    for _ in 0..=MAX_REPLACEMENT_WORKERS {
        let (rest, close, done) = (Arc::clone(&pending), close.clone(), done.clone());
        let started = std::thread::Builder::new()
            .name("close".to_owned())
            .spawn(move || {
                loop {
                    // A statement of its own: the lock must not be held while a session is closed.
                    let next = rest.lock().pop();
                    let Some(session) = next else { break };
                    close(session);
                    // The relay does not wait any more, and the process is about to end.
                    if done.send(()).is_err() {
                        break;
                    }
                }
            });
        if let Err(error) = started {
            warn!(%error, "sessions not closed: cannot start thread");
            break;
        }
        while closed < count {
            if is_done.recv_timeout(timeout).is_err() {
                break;
            }
            closed += 1;
        }
        // A session that another thread is closing cannot be taken from it.
        if closed == count || pending.lock().is_empty() {
            break;
        }
    }
    count - closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_closed_although_one_of_them_hangs() {
        let (unblock, is_unblocked) = channel::<()>();
        let is_unblocked = Arc::new(Mutex::new(is_unblocked));
        let closed = Arc::new(Mutex::new(Vec::new()));
        let of_close = Arc::clone(&closed);
        let close = move |session: u32| {
            if session == 5 {
                let _ = is_unblocked.lock().recv();
            }
            of_close.lock().push(session);
        };
        let left = close_all((0..10).collect(), close, Duration::from_millis(100));
        assert_eq!(left, 1);
        let mut others = std::mem::take(&mut *closed.lock());
        others.sort_unstable();
        assert_eq!(others, [0, 1, 2, 3, 4, 6, 7, 8, 9]);
        drop(unblock);
    }
}
