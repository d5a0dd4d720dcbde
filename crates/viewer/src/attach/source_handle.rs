//! The handle of a source that runs on a thread of its own.

use std::io;
use std::thread::{self, JoinHandle};

/// A source on a thread of its own. Dropping the handle requests the end, and waits for nothing.
pub struct SourceHandle {
    request_end: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl SourceHandle {
    /// Runs `run` on a thread called `name`, until `request_end` has been called or the source has
    /// ended.
    pub(super) fn spawn(
        name: &str,
        request_end: impl Fn() + Send + Sync + 'static,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self {
            request_end: Box::new(request_end),
            thread: Some(thread),
        })
    }

    /// Requests the end. Events that are being sent may still arrive.
    pub fn stop(&self) {
        (self.request_end)();
    }

    /// Waits until the thread has ended. The caller must have dropped the receiver, or keep
    /// receiving: the thread may be waiting for room in the channel.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its thread.
            let _ = thread.join();
        }
    }
}

impl Drop for SourceHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
