//! Closing the sessions when the relay stops. To close one is to write what it has received: the files of
//! one session that hang must not keep the others from it, nor the relay from stopping.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use crate::limits::MAX_REPLACEMENT_WORKERS;

/// Calls `close` for each of `sessions`, by one thread after the other. When a thread has not come to
/// the end within `timeout`, another goes on behind the session that it is at. Gives how many
/// sessions have not been closed.
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
                    let next = rest.lock().pop();
                    let Some(session) = next else { break };
                    close(session);
                    if done.send(()).is_err() {
                        break;
                    }
                }
            });
        if let Err(error) = started {
            warn!(%error, "sessions not closed: no thread");
            break;
        }
        while closed < count {
            match is_done.recv_timeout(timeout) {
                Ok(()) => closed += 1,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
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
    fn sessions_behind_one_that_hangs_are_closed() {
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
