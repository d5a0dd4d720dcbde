//! Deletes the files of chunks on a thread of its own: unlinking a large trace takes seconds, and
//! neither its producer nor the other sessions on the same worker may wait for that.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use tracing::warn;

type Job = Box<dyn FnOnce() + Send>;

/// One queue for the process: deletions are rare, and one at a time keeps the disk free for
/// writers. None: the thread could not be started.
static QUEUE: OnceLock<Option<Sender<Job>>> = OnceLock::new();

/// Enqueues a deletion. Without a thread the deletion runs at once, on the thread of the caller.
pub(super) fn enqueue(job: impl FnOnce() + Send + 'static) {
    let job: Job = Box::new(job);
    let rejected = match QUEUE.get_or_init(start) {
        Some(queue) => queue.send(job).map_err(|rejected| rejected.0).err(),
        None => Some(job),
    };
    if let Some(job) = rejected {
        job();
    }
}

fn start() -> Option<Sender<Job>> {
    let (queue, jobs) = channel::<Job>();
    let run = move || jobs.into_iter().for_each(|job| job());
    match Builder::new().name("delete".to_owned()).spawn(run) {
        Ok(_) => Some(queue),
        Err(error) => {
            warn!(%error, "thread for deletions not started: producers wait while chunks are deleted");
            None
        }
    }
}

/// Waits until all enqueued deletions are done. Returns whether that happened within `timeout`.
#[must_use]
pub fn finish(timeout: Duration) -> bool {
    // Nothing was ever enqueued, and no thread is started only to be waited for.
    if QUEUE.get().is_none() {
        return true;
    }
    let (done, is_done) = channel();
    enqueue(move || {
        // The caller's timeout may have passed.
        let _ = done.send(());
    });
    is_done.recv_timeout(timeout).is_ok()
}
